#include "daemon/control/doorkeeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include "daemon/control/process.h"
#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

// Of a daemon with few descriptors an eighth; else what 64 lanes or segments take.
constexpr rlim_t kLeftMost = 64;

// At `listen`: of each peer of the largest ring a connection, and one that its host has left
// behind.
constexpr rlim_t kFromPeersMost = 2 * kPeersMax;

// At `listen`: what comes before a hello, and that.
constexpr uint64_t kFirstMost = 1 << 20;

// Descriptors of which it shows without a lock whether anybody listens to what they bring.
constexpr int kSeenAtOnce = 1 << 16;

// How often it is looked which connections of who has its share are still there.
constexpr core::Time kRecount = 100 * core::kMillisecond;

ino_t inode_of(int fd) {
  struct stat state {};
  return fstat(fd, &state) == 0 ? state.st_ino : 0;
}

// A connection that was let in. It may have ended since, and the number be another's.
struct Guest {
  int fd;
  ino_t inode;
};
struct Guests {
  std::vector<Guest> all;
  core::Time counted = 0;

  bool has_room(size_t most) {
    const core::Time now = monotonic_now();
    if (all.size() >= most && now - counted >= kRecount) {
      counted = now;
      std::erase_if(all, [](const Guest& guest) { return inode_of(guest.fd) != guest.inode; });
    }
    return all.size() < most;
  }
  void add(int fd) { all.push_back({fd, inode_of(fd)}); }
};

// What a connection has sent since a message of it was taken, and may.
struct Unheard {
  ino_t inode = 0;
  uint64_t bytes = 0;
  uint64_t most = 0;
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
  std::mutex hearing;
  std::map<int, Unheard> unheard;  // of guests, at `listen` until their hello
  std::array<std::atomic<bool>, kSeenAtOnce> listened_to{};  // whether there may be an entry
  std::atomic<uint64_t> beyond_hope = 0;                     // whose messages had no end
  std::string talker;                                        // the last of these,
  uint64_t talked = 0;                                       // and what it had sent
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

std::string host_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                  nullptr, 0, NI_NUMERICHOST) != 0) {
    return "a host that has gone";
  }
  return host.data();
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

void listen_to(int guest, uint64_t most) {
  Door& it = door();
  const std::scoped_lock lock(it.hearing);
  it.unheard[guest] = {inode_of(guest), 0, most};
  if (guest < kSeenAtOnce) it.listened_to[static_cast<size_t>(guest)] = true;
}

void listen_no_more(Door& it, std::map<int, Unheard>::iterator guest) {
  if (guest->first < kSeenAtOnce) it.listened_to[static_cast<size_t>(guest->first)] = false;
  it.unheard.erase(guest);
}

// False: it has sent more than messages that are let in can have.
bool makes_sense(int guest, uint64_t bytes) {
  Door& it = door();
  // All that receive in this process come by here, UCX in the midst of its data too.
  if (guest < kSeenAtOnce && !it.listened_to[static_cast<size_t>(guest)]) return true;
  const std::scoped_lock lock(it.hearing);
  const auto known = it.unheard.find(guest);
  if (known == it.unheard.end()) return true;
  Unheard& unheard = known->second;
  unheard.bytes += bytes;
  if (unheard.bytes <= unheard.most) return true;
  const bool still_it = inode_of(guest) == unheard.inode;  // the number may be another's now
  const bool local = unheard.most == kUnheardMost;
  const uint64_t talked = unheard.bytes;
  listen_no_more(it, known);
  if (!still_it) return true;
  it.talker = local ? fmt::format("of uid {} to control.sock", credentials_of(guest).uid)
                    : fmt::format("from {} to `listen`", host_of(guest));
  it.talked = talked;
  ++it.beyond_hope;
  return false;
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
    listen_to(stranger, kFirstMost);
    return stranger;
  }
  if (stranger >= 0) {
    if (!leaves_enough_files(stranger)) return send_away(stranger, &door().turned_away);
    if (!is_within_share(stranger)) return send_away(stranger, &door().beyond_share);
    listen_to(stranger, kUnheardMost);
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

void heard_from(int guest) {
  Door& it = door();
  const std::scoped_lock lock(it.hearing);
  const auto known = it.unheard.find(guest);
  if (known != it.unheard.end()) known->second.bytes = 0;
}

void has_greeted(int guest) {
  Door& it = door();
  const std::scoped_lock lock(it.hearing);
  const auto known = it.unheard.find(guest);
  if (known != it.unheard.end()) listen_no_more(it, known);
}

void guard_peers_port(uint16_t port) {
  Door& it = door();
  const std::scoped_lock lock(it.mutex);
  if (it.spare < 0) it.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  it.peers_ports.insert(port);
}

void tell_turned_away() {
  // What comes too soon after another is told by a later call.
  const auto tell_if_grew = [](const std::atomic<uint64_t>& counter, uint64_t* told,
                               const auto& what) {
    const uint64_t now = counter;
    if (*told != now && tell_limit({Code::kResourceExhausted, what()})) *told = now;
  };
  static uint64_t turned_away = 0, beyond_share = 0, beyond_network = 0, beyond_hope = 0;
  tell_if_grew(door().turned_away, &turned_away, [] { return no_files_left(); });
  tell_if_grew(door().beyond_share, &beyond_share, [] {
    return fmt::format(
        "uid {} has half of the connections to control.sock that LimitNOFILE of "
        "gradringd's unit has room for, and gets no more",
        door().greedy.load());
  });
  tell_if_grew(door().beyond_hope, &beyond_hope, [] {
    const std::scoped_lock lock(door().hearing);
    return fmt::format("a connection {} was closed: it had sent {} MiB of a message without an end",
                       door().talker, door().talked >> 20);
  });
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

// Likewise, of what libzmq reads. By another name, since the C library's headers may have a body
// for its own.
extern "C" ssize_t recv_guarded(int socket, void* to, size_t bytes, int flags) asm("recv");
extern "C" ssize_t recv_guarded(int socket, void* to, size_t bytes, int flags) {
  const ssize_t got = recvfrom(socket, to, bytes, flags, nullptr, nullptr);
  const bool good = got <= 0 || gradring::daemon::makes_sense(socket, static_cast<uint64_t>(got));
  return good ? got : 0;  // as if it had hung up
}
