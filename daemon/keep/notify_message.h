#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace gradring::keep {

// As systemd: what is longer is not read.
inline constexpr size_t kNotifyBytesMax = 4096;

// What a process says to whoever looks after it, in the words of sd_notify(3).
struct NotifyMessage {
  enum class Watchdog : uint8_t { kSilent, kFed, kTriggered };
  enum class Store : uint8_t { kNothing, kAdd, kRemove };

  bool ready = false;
  bool stopping = false;
  std::string extend;    // microseconds that it may take; empty: it did not say
  bool barrier = false;  // and nothing else
  Watchdog watchdog = Watchdog::kSilent;
  std::string status;

  Store store = Store::kNothing;
  std::string name;  // of the descriptors that came along; "stored" if they have none
  bool poll = true;  // let them go when they hang up

  std::string complaint;  // what was passed over, and why; the rest holds
};

// The error says why the whole datagram is passed over. Fields that are not ours are nobody's
// mistake.
tl::expected<NotifyMessage, std::string> parse_notify_message(std::string_view datagram);

}  // namespace gradring::keep
