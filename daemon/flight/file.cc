#include "daemon/flight/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "proto/version.h"

namespace gradring::daemon {
namespace {

constexpr std::array<std::string_view, 2> kThreads = {"control", "data"};

// It names jobs, programs and pids: for the daemon's user and group.
constexpr mode_t kMode = 0640;

std::string content_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Shown to people next to monotonic times. Nothing is measured or decided by it.
int64_t wall_offset(core::Time now) {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  return wall.tv_sec * core::kSecond + wall.tv_nsec - now;
}

FlightHeader describe_self(const std::string& node, uint64_t events) {
  FlightHeader header;
  header.magic = kFlightMagic;
  header.version = kFlightVersion;
  header.event_bytes = kFlightEventBytes;
  header.pid = getpid();
  header.pid_start = start_in_stat(content_of("/proc/self/stat")).value_or(0);
  struct stat space {};
  if (stat("/proc/self/ns/pid", &space) == 0) header.pid_space = space.st_ino;
  std::string boot = content_of("/proc/sys/kernel/random/boot_id");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  put_text(header.machine_boot, boot);
  header.started = monotonic_now();
  header.wall_offset = wall_offset(header.started);
  put_text(header.node, node);
  put_text(header.product, kProductVersion);
  header.ring_count = kThreads.size();
  for (size_t i = 0; i < kThreads.size(); ++i) {
    put_text(header.rings[i].thread, kThreads[i]);
    header.rings[i].offset = kFlightHeaderBytes + i * events * kFlightEventBytes;
    header.rings[i].events = events;
  }
  return header;
}

// With all of its blocks; an error is an errno.
int make_file(const std::string& path, size_t bytes, Fd* made) {
  unlink(path.c_str());
  Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || fchmod(file.get(), kMode) != 0) return errno;
  if (const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    return error;
  }
  *made = std::move(file);
  return 0;
}

}  // namespace

Status FlightFile::make(const std::string& path, const std::string& node, uint64_t bytes_per_ring) {
  const uint64_t events = bytes_per_ring / kFlightEventBytes;
  const auto refuse = [&path](int error) {
    unlink(path.c_str());
    return Status(Code::kResourceExhausted,
                  fmt::format("cannot make {}: {}", path, std::strerror(error)));
  };
  const size_t bytes = kFlightHeaderBytes + kThreads.size() * events * kFlightEventBytes;
  Fd file;
  if (const int error = make_file(path, bytes, &file); error != 0) return refuse(error);
  // Populated, so that no event waits for a page.
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (base == MAP_FAILED) return refuse(errno);
  base_ = static_cast<std::byte*>(base);
  bytes_ = bytes;
  file_ = std::move(file);

  const FlightHeader header = describe_self(node, events);
  std::memcpy(base_, &header, sizeof header);
  const auto slots = [&](size_t i) {
    return FlightSlots(reinterpret_cast<FlightEvent*>(base_ + header.rings[i].offset), events);
  };
  control_ = slots(0);
  data_ = slots(1);
  return {};
}

void FlightFile::follow_wall_clock() {
  if (base_ == nullptr) return;
  auto* offset = reinterpret_cast<int64_t*>(base_ + offsetof(FlightHeader, wall_offset));
  std::atomic_ref(*offset).store(wall_offset(monotonic_now()), std::memory_order_relaxed);
}

FlightFile::~FlightFile() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

// By the file and not by the mapping, into which another thread writes.
bool FlightFile::read_at(uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = pread(file_.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (n <= 0) return false;
    offset += static_cast<uint64_t>(n);
    to = to.subspan(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace gradring::daemon
