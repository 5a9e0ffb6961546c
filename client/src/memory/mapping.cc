#include "client/src/memory/mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace gradring::client {
namespace {

#ifdef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#else
constexpr int kPopulateWrite = 23;  // Linux's number; older C libraries do not know it yet
#endif

Status check(const UniqueFd& memfd, uint64_t bytes) {
  if (!memfd.valid()) return {Code::kInternal, "the daemon sent a segment without its memory"};
  const int seals = ::fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
    return {Code::kInternal, "the daemon sent memory that is not sealed against a change of size"};
  }
  struct stat state {};
  if (::fstat(memfd.get(), &state) != 0 || static_cast<uint64_t>(state.st_size) != bytes) {
    return {Code::kInternal, fmt::format("the daemon sent a segment of {} bytes and called it {}",
                                         state.st_size, bytes)};
  }
  return {};
}

}  // namespace

tl::expected<Mapping, Status> Mapping::of(const UniqueFd& memfd, uint64_t bytes) {
  if (Status checked = check(memfd, bytes); !checked.ok()) return tl::unexpected(checked);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (data == MAP_FAILED) {
    return tl::unexpected(Status(
        Code::kResourceExhausted,
        fmt::format("cannot map {} bytes of shared memory: {}", bytes, std::strerror(errno))));
  }
  Mapping mapping(static_cast<std::byte*>(data), bytes);
  // An older kernel says EINVAL; the pages then come when they are first touched.
  if (::madvise(data, bytes, kPopulateWrite) != 0 && errno != EINVAL) {
    return tl::unexpected(Status(
        Code::kResourceExhausted,
        fmt::format("cannot get {} bytes of shared memory: {}; free some, or raise this process's "
                    "memory limit",
                    bytes, std::strerror(errno))));
  }
  return mapping;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace gradring::client
