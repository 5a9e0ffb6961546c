#include "daemon/control/doorkeeper.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

// Of a daemon with few descriptors an eighth; else what 64 lanes or segments take.
constexpr rlim_t kLeftMost = 64;

struct Door {
  std::atomic<int> listener = -1;
  std::atomic<uint64_t> turned_away = 0;
  std::mutex mutex;
  int spare = -1;  // given up for a moment, so that a stranger can be accepted and sent away
};

// Never destroyed: libzmq's threads may end later.
Door& door() {
  static Door& one = *new Door;
  return one;
}

int accept_as_asked(int listener, sockaddr* address, socklen_t* size, int flags) {
  return static_cast<int>(syscall(SYS_accept4, listener, address, size, flags));
}

// One that is gone already (-1) is not counted.
int send_away(int stranger) {
  if (stranger >= 0) {
    close(stranger);
    ++door().turned_away;
  }
  errno = ECONNABORTED;
  return -1;
}

// Else whoever waits would keep the listener readable, and its thread awake.
int send_away_with_spare(int listener) {
  Door& it = door();
  const std::scoped_lock lock(it.mutex);
  if (it.spare >= 0) close(it.spare);
  send_away(accept_as_asked(listener, nullptr, nullptr, SOCK_CLOEXEC));
  it.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  errno = ECONNABORTED;
  return -1;
}

int accept_guarded(int listener, sockaddr* address, socklen_t* size, int flags) {
  const int stranger = accept_as_asked(listener, address, size, flags);
  if (stranger >= 0) return leaves_enough_files(stranger) ? stranger : send_away(stranger);
  if (errno == EMFILE || errno == ENFILE) return send_away_with_spare(listener);
  if (errno == ENOBUFS || errno == ENOMEM) errno = ECONNABORTED;
  return -1;
}

}  // namespace

bool leaves_enough_files(int newest) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  // The kernel gives the lowest number that is free: a high one tells that nearly all are in use.
  return static_cast<rlim_t>(newest) + std::min(kLeftMost, limit.rlim_cur / 8) < limit.rlim_cur;
}

std::string no_files_left(const char* for_what) {
  return std::string("gradringd has no file descriptors left for ") + for_what +
         ": raise LimitNOFILE of its unit, or see in `ls -l /proc/PID/fd` who holds them";
}

void guard_listener(int listener) {
  Door& it = door();
  const std::scoped_lock lock(it.mutex);
  if (it.spare < 0) it.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  it.listener = listener;
}

void tell_turned_away() {
  static uint64_t told = 0;
  const uint64_t now = door().turned_away;
  if (now == told) return;
  told = now;
  tell_limit({Code::kResourceExhausted, no_files_left()});
}

}  // namespace gradring::daemon

// Instead of the C library's, for libzmq as well: what a shared library calls is looked for in the
// program first.
extern "C" int accept4(int listener, sockaddr* address, socklen_t* size, int flags) {
  using namespace gradring::daemon;
  if (listener == door().listener) return accept_guarded(listener, address, size, flags);
  return accept_as_asked(listener, address, size, flags);
}
