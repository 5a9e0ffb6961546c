#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "daemon/fd.h"

namespace gradring::daemon {

// What the control thread waits for besides its ZeroMQ sockets.
enum class Source : uint8_t {
  kAttachListener = 1,
  kAttachSocket,
  kPidfd,
  kMailbox,
  kSignals,
  kPorts,
  kGpus
};

// A source and, where there are many, the session it belongs to (56 bits), in one word of epoll.
inline uint64_t tag_of(Source source, uint64_t id = 0) {
  return (static_cast<uint64_t>(source) << 56) | id;
}
inline Source source_of(uint64_t tag) { return static_cast<Source>(tag >> 56); }
inline uint64_t id_of(uint64_t tag) { return tag & ((uint64_t{1} << 56) - 1); }

class Epoll {
 public:
  Epoll() : fd_(epoll_create1(EPOLL_CLOEXEC)) {}

  // False when the kernel's limits are reached. Closing `fd` takes it out again.
  bool add(int fd, uint64_t tag) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    return epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  void remove(int fd) { epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr); }
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

}  // namespace gradring::daemon
