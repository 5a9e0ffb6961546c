#include "daemon/control/door/doorkeeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/control/door/guest.h"
#include "daemon/control/door/process.h"
#include "daemon/control/door/unheard.h"
#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

// Of a daemon with few descriptors an eighth; else what 64 lanes or segments take.
constexpr rlim_t kLeftMost = 64;

// At `listen`: of each peer of the largest ring a connection, and one that its host has left
// behind.
constexpr rlim_t kFromPeersMost = 2 * kPeersMax;

// How often it is looked which connections of who has its share are still there.
constexpr core::Time kRecount = 100 * core::kMillisecond;

struct Guests {
  std::vector<Guest> all;
  core::Time counted = 0;

  bool has_room(size_t most) {
    const core::Time now = monotonic_now();
    if (all.size() >= most && now - counted >= kRecount) {
      counted = now;
      std::erase_if(all, [](const Guest& guest) { return !guest.is_there(); });
    }
    return all.size() < most;
  }
  void add(int fd) { all.emplace_back(fd); }
};

struct Door {
  std::atomic<int> listener = -1;
  std::atomic<uint64_t> turned_away = 0;
  std::atomic<uint64_t> beyond_share = 0;  // likewise, for what its user has
  std::atomic<uint32_t> greedy = 0;        // the last such user
  std::mutex mutex;
  int spare = -1;  // given up for a moment, so that a stranger can be accepted and sent away
  std::map<uint32_t, Guests> users;
  std::set<uint16_t> peers_ports;
  Guests from_network;
  std::atomic<uint64_t> beyond_network = 0;  // as turned_away
  std::string last_host;                     // of these
};

// Never destroyed: libzmq's threads may end later.
Door& door() {
  static Door& one = *new Door;
  return one;
}

int accept_as_asked(int listener, sockaddr* address, socklen_t* size, int flags) {
  return static_cast<int>(syscall(SYS_accept4, listener, address, size, flags));
}

// Nobody but root and the daemon's own user has more connections than half of what can be open, or
// there would be none for the others.
bool is_within_share(int stranger) {
  Door& it = door();
  const uint32_t uid = credentials_of(stranger).uid;
  rlimit limit{};
  if (uid == 0 || uid == geteuid() || getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  const std::scoped_lock lock(it.mutex);
  Guests& guests = it.users[uid];
  if (!guests.has_room(limit.rlim_cur / 2)) {
    it.greedy = uid;
    return false;
  }
  guests.add(stranger);
  return true;
}

// Whoever reaches `listen` has a connection before it has shown a key. All of them together have
// half of what can be open at most, so that trainers and gradringctl get in.
bool is_within_share_of_network(int stranger) {
  Door& it = door();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  const std::scoped_lock lock(it.mutex);
  if (!it.from_network.has_room(std::min(limit.rlim_cur / 2, kFromPeersMost))) {
    it.last_host = host_of(stranger);
    return false;
  }
  it.from_network.add(stranger);
  return true;
}

bool is_for_peers(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  uint16_t port = 0;
  if (address.ss_family == AF_INET) {
    port = ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  } else if (address.ss_family == AF_INET6) {
    port = ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  Door& it = door();
  const std::scoped_lock lock(it.mutex);
  return it.peers_ports.count(port) > 0;
}

// One that is gone already (-1) is not counted.
int send_away(int stranger, std::atomic<uint64_t>* counter) {
  if (stranger >= 0) {
    close(stranger);
    ++*counter;
  }
  errno = ECONNABORTED;
  return -1;
}

// Else whoever waits would keep the listener readable, and its thread awake.
int send_away_with_spare(int listener) {
  Door& it = door();
  const std::scoped_lock lock(it.mutex);
  if (it.spare >= 0) close(it.spare);
  send_away(accept_as_asked(listener, nullptr, nullptr, SOCK_CLOEXEC), &it.turned_away);
  it.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  errno = ECONNABORTED;
  return -1;
}

int accept_guarded(int listener, sockaddr* address, socklen_t* size, int flags) {
  const int stranger = accept_as_asked(listener, address, size, flags);
  if (stranger >= 0 && listener != door().listener) {
    if (!is_within_share_of_network(stranger)) return send_away(stranger, &door().beyond_network);
    bound_unheard(stranger, Entrance::kListen);
    return stranger;
  }
  if (stranger >= 0) {
    if (!leaves_enough_files(stranger)) return send_away(stranger, &door().turned_away);
    if (!is_within_share(stranger)) return send_away(stranger, &door().beyond_share);
    bound_unheard(stranger, Entrance::kControlSocket);
    return stranger;
  }
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

bool is_within_share(uint32_t uid, uint64_t descriptors) {
  rlimit limit{};
  if (uid == 0 || uid == geteuid() || getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  return descriptors <= limit.rlim_cur / 2;
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

void guard_peers_port(uint16_t port) {
  Door& it = door();
  const std::scoped_lock lock(it.mutex);
  if (it.spare < 0) it.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  it.peers_ports.insert(port);
}

void tell_turned_away() {
  // What comes too soon after another is told by a later call.
  const auto tell_if_grew = [](uint64_t now, uint64_t* told, const auto& what) {
    if (*told != now && tell_limit({Code::kResourceExhausted, what()})) *told = now;
  };
  static uint64_t turned_away = 0, beyond_share = 0, beyond_network = 0, endless = 0;
  tell_if_grew(door().turned_away, &turned_away, [] { return no_files_left(); });
  tell_if_grew(door().beyond_share, &beyond_share, [] {
    return fmt::format(
        "uid {} has half of the connections to control.sock that LimitNOFILE of "
        "gradringd's unit has room for, and gets no more",
        door().greedy.load());
  });
  tell_if_grew(endless_messages(), &endless, [] { return last_endless_message(); });
  tell_if_grew(door().beyond_network, &beyond_network, [] {
    const std::scoped_lock lock(door().mutex);
    return fmt::format(
        "the connections to `listen` take half of what LimitNOFILE of gradringd's "
        "unit has room for, or are {}: more are turned away, as one from {} was",
        kFromPeersMost, door().last_host);
  });
}

}  // namespace gradring::daemon

// Instead of the C library's, for libzmq as well: what a shared library calls is looked for in the
// program first.
extern "C" int accept4(int listener, sockaddr* address, socklen_t* size, int flags) {
  using namespace gradring::daemon;
  if (listener == door().listener || is_for_peers(listener)) {
    return accept_guarded(listener, address, size, flags);
  }
  return accept_as_asked(listener, address, size, flags);
}
