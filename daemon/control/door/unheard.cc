#include "daemon/control/door/unheard.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "daemon/control/door/guest.h"
#include "daemon/control/door/process.h"

namespace gradring::daemon {
namespace {

// At `listen`: what comes before a hello, and that.
constexpr uint64_t kFirstMost = 1 << 20;

// Descriptors of which it shows without a lock whether their bytes are counted.
constexpr int kSeenAtOnce = 1 << 16;

// What a connection has sent since a message of it was taken.
struct Unheard {
  Guest guest;
  Entrance entrance;
  uint64_t bytes = 0;
};

struct Counts {
  std::mutex mutex;
  std::map<int, Unheard> unheard;                        // at `listen` until their hello
  std::array<std::atomic<bool>, kSeenAtOnce> counted{};  // whether there may be an entry
  std::atomic<uint64_t> endless = 0;
  std::string last;  // of these
};

// Never destroyed: libzmq's threads may end later.
Counts& counts() {
  static Counts& one = *new Counts;
  return one;
}

void count_no_more(Counts& it, std::map<int, Unheard>::iterator guest) {
  if (guest->first < kSeenAtOnce) it.counted[static_cast<size_t>(guest->first)] = false;
  it.unheard.erase(guest);
}

// False: it has sent more than messages that are let in can have.
bool makes_sense(int guest, uint64_t bytes) {
  Counts& it = counts();
  // All that receive in this process come by here, UCX in the midst of its data too.
  if (guest < kSeenAtOnce && !it.counted[static_cast<size_t>(guest)]) return true;
  const std::scoped_lock lock(it.mutex);
  const auto known = it.unheard.find(guest);
  if (known == it.unheard.end()) return true;
  known->second.bytes += bytes;
  const Unheard unheard = known->second;
  const bool local = unheard.entrance == Entrance::kControlSocket;
  if (unheard.bytes <= (local ? kUnheardMost : kFirstMost)) return true;
  count_no_more(it, known);
  if (!unheard.guest.is_there()) return true;
  it.last =
      fmt::format("a connection {} was closed: it had sent {} MiB of a message without an end",
                  local ? fmt::format("of uid {} to control.sock", credentials_of(guest).uid)
                        : fmt::format("from {} to `listen`", host_of(guest)),
                  unheard.bytes >> 20);
  ++it.endless;
  return false;
}

}  // namespace

void bound_unheard(int guest, Entrance entrance) {
  Counts& it = counts();
  const std::scoped_lock lock(it.mutex);
  it.unheard.insert_or_assign(guest, Unheard{Guest(guest), entrance});
  if (guest < kSeenAtOnce) it.counted[static_cast<size_t>(guest)] = true;
}

void heard_from(int guest) {
  Counts& it = counts();
  const std::scoped_lock lock(it.mutex);
  const auto known = it.unheard.find(guest);
  if (known != it.unheard.end()) known->second.bytes = 0;
}

void has_greeted(int guest) {
  Counts& it = counts();
  const std::scoped_lock lock(it.mutex);
  const auto known = it.unheard.find(guest);
  if (known != it.unheard.end()) count_no_more(it, known);
}

uint64_t endless_messages() { return counts().endless; }

std::string last_endless_message() {
  Counts& it = counts();
  const std::scoped_lock lock(it.mutex);
  return it.last;
}

}  // namespace gradring::daemon

// Instead of the C library's, for libzmq as well: what a shared library calls is looked for in the
// program first. By another name, since the C library's headers may have a body for its own.
extern "C" ssize_t recv_guarded(int socket, void* to, size_t bytes, int flags) asm("recv");
extern "C" ssize_t recv_guarded(int socket, void* to, size_t bytes, int flags) {
  const ssize_t got = recvfrom(socket, to, bytes, flags, nullptr, nullptr);
  const bool good = got <= 0 || gradring::daemon::makes_sense(socket, static_cast<uint64_t>(got));
  return good ? got : 0;  // as if it had hung up
}
