#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace gradring::transport {
namespace {

// Above this, rounding up to pages could leave the range of off_t. No machine comes near.
constexpr uint64_t kBytesMax = uint64_t{1} << 62;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

uint64_t page_bytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

uint64_t whole_pages(uint64_t bytes) {
  const uint64_t page = page_bytes();
  return (bytes + page - 1) / page * page;
}

// What a failed system call means for whoever asked for the segment.
Status refusal(uint64_t bytes, const char* call) {
  const int error = errno;
  std::string text = "cannot make a shared segment of " + std::to_string(bytes) +
                     " bytes: " + call + ": " + std::strerror(error);
  switch (error) {
    case ENOMEM:
    case ENOSPC:
    case EFBIG:
    case EOVERFLOW:
      text += "; ask for less, or raise the memory limit of the daemon's service or container";
      return {Code::kResourceExhausted, text};
    case EMFILE:
    case ENFILE:
      text += "; raise the daemon's limit of open files (LimitNOFILE, ulimit -n)";
      return {Code::kResourceExhausted, text};
    default:
      return {Code::kInternal, text};
  }
}

}  // namespace

tl::expected<Segment, Status> Segment::create(uint64_t bytes) {
  if (bytes == 0) {
    return tl::unexpected(
        Status(Code::kInvalidArgument, "a shared segment needs at least 1 byte, 0 were asked for"));
  }
  if (bytes > kBytesMax) {
    return tl::unexpected(Status(Code::kInvalidArgument,
                                 "a shared segment of " + std::to_string(bytes) +
                                     " bytes is beyond any machine; check the size computation"));
  }
  const uint64_t size = whole_pages(bytes);
  const int fd = memfd_create("gradring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return tl::unexpected(refusal(size, "memfd_create"));
  Segment segment(fd, {});  // closes the descriptor on every way out of here
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) {
    return tl::unexpected(refusal(size, "ftruncate"));
  }
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) return tl::unexpected(refusal(size, "F_ADD_SEALS"));
  if (!segment.map(size)) return tl::unexpected(refusal(size, "mmap"));
  return segment;
}

tl::expected<Segment, Status> Segment::adopt(int fd) {
  Segment segment(fd, {});
  struct stat status {};
  const int seals = fcntl(fd, F_GET_SEALS);  // fails for whatever is no memfd
  if (seals != kSeals || fstat(fd, &status) != 0) {
    return tl::unexpected(Status(
        Code::kInvalidArgument,
        "descriptor " + std::to_string(fd) + " is no shared segment: it is not sealed as one is"));
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size == 0 || size != whole_pages(size)) {
    return tl::unexpected(
        Status(Code::kInvalidArgument, "descriptor " + std::to_string(fd) +
                                           " is no shared segment: it has " + std::to_string(size) +
                                           " bytes, and a segment has whole pages"));
  }
  if (!segment.map(size)) return tl::unexpected(refusal(size, "mmap"));
  return segment;
}

// With a page behind that nobody can touch. Otherwise buffers of 256 MiB that are made one after
// the other would be exactly so far apart, and a processor that sums two such streams needs up
// to 1.4 times as long (seen on an AMD EPYC), whatever in it tells addresses by some of their bits.
bool Segment::map(uint64_t size) {
  const uint64_t reserved = size + page_bytes();
  void* memory = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  memory_ = {static_cast<std::byte*>(memory), size};
  return mmap(memory, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, 0) == memory;
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), memory_(std::exchange(other.memory_, {})) {}

// Through a third, so that the old contents are freed here and moving onto itself does no harm.
Segment& Segment::operator=(Segment&& other) noexcept {
  Segment incoming(std::move(other));
  std::swap(fd_, incoming.fd_);
  std::swap(memory_, incoming.memory_);
  return *this;
}

Segment::~Segment() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size() + page_bytes());
  if (fd_ >= 0) close(fd_);
}

}  // namespace gradring::transport
