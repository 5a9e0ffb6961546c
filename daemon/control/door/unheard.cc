#include "daemon/control/door/unheard.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "daemon/clock.h"
#include "daemon/control/door/guest.h"
#include "daemon/control/door/process.h"

namespace gradring::daemon {
namespace {

// At `listen`: what comes before a hello, and that.
constexpr uint64_t kFirstMost = 1 << 20;

// Descriptors of which it shows without a lock whether their bytes are counted.
constexpr int kSeenAtOnce = 1 << 16;

// What connections gone in the midst of a message leave behind is found so often at most.
constexpr core::Time kRecountUnheard = core::kSecond;

// What is no message, such as a greeting, is never taken, and must not add up.
constexpr uint64_t kLittle = 4096;

// What a connection has sent that was not taken.
struct Unheard {
  Guest guest;
  Entrance entrance;
  std::optional<uint32_t> bounded = {};  // the user, if all of its connections have a bound
  uint64_t bytes = 0;
};

struct Counts {
  std::mutex mutex;
  std::map<int, Unheard> unheard;                        // at `listen` until their hello
  std::array<std::atomic<bool>, kSeenAtOnce> counted{};  // whether there may be an entry
  std::map<uint32_t, uint64_t> of_user;                  // bytes, those of who is gone as well
  core::Time recounted = 0;
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

void take_off(uint64_t bytes, uint64_t* from) { *from -= std::min(*from, bytes); }

void cut_off(Counts& it, std::map<int, Unheard>::iterator guest, std::string why) {
  count_no_more(it, guest);
  it.last = std::move(why);
  ++it.endless;
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
  const uint64_t of_user = unheard.bounded ? it.of_user[*unheard.bounded] += bytes : 0;
  const bool endless = unheard.bytes > (local ? kUnheardMost : kFirstMost);
  if (!endless && of_user <= kUnheardOfUserMost) return true;
  if (!unheard.guest.is_there()) {
    count_no_more(it, known);
    return true;
  }
  if (!endless) {
    cut_off(it, known,
            fmt::format("a connection of uid {} to control.sock was closed: that user had sent {} "
                        "MiB which are still to be read",
                        *unheard.bounded, of_user >> 20));
    return false;
  }
  cut_off(it, known,
          fmt::format("a connection {} was closed: it had sent {} MiB of a message without an end",
                      local ? fmt::format("of uid {} to control.sock", credentials_of(guest).uid)
                            : fmt::format("from {} to `listen`", host_of(guest)),
                      unheard.bytes >> 20));
  return false;
}

}  // namespace

void bound_unheard(int guest, Entrance entrance) {
  Counts& it = counts();
  Unheard unheard{Guest(guest), entrance};
  const uint32_t uid = credentials_of(guest).uid;
  if (entrance == Entrance::kControlSocket && uid != 0 && uid != geteuid()) unheard.bounded = uid;
  const std::scoped_lock lock(it.mutex);
  it.unheard.insert_or_assign(guest, unheard);
  if (guest < kSeenAtOnce) it.counted[static_cast<size_t>(guest)] = true;
}

void heard_from(int guest, uint32_t uid, uint64_t bytes) {
  Counts& it = counts();
  const std::scoped_lock lock(it.mutex);
  if (const auto of_user = it.of_user.find(uid); of_user != it.of_user.end()) {
    take_off(bytes, &of_user->second);
  }
  // It may be gone, and its number another's, which then may send a little more.
  const auto known = it.unheard.find(guest);
  if (known == it.unheard.end()) return;
  take_off(bytes, &known->second.bytes);
  if (known->second.bytes < kLittle) known->second.bytes = 0;
}

// What is left are beginnings of messages, and of those only what has a connection.
void heard_all() {
  Counts& it = counts();
  const std::scoped_lock lock(it.mutex);
  const bool near = std::any_of(it.of_user.begin(), it.of_user.end(), [](const auto& user) {
    return user.second > kUnheardOfUserMost / 2;
  });
  const core::Time now = near ? monotonic_now() : 0;
  if (!near || now - it.recounted < kRecountUnheard) return;
  it.recounted = now;
  it.of_user.clear();
  for (const auto& [fd, unheard] : it.unheard) {
    if (unheard.bounded && unheard.guest.is_there()) it.of_user[*unheard.bounded] += unheard.bytes;
  }
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
