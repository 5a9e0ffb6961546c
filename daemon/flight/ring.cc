#include "daemon/flight/ring.h"

#include <algorithm>
#include <array>

namespace gradring::daemon {
namespace {

// A job's name may have 256 bytes, evidence is a sentence. More would push out what came before.
constexpr size_t kTextOfEventMax = 10 * kFlightTextBytes;

}  // namespace

void FlightRing::record(const FlightEvent& event, std::string_view name, std::string_view words) {
  if (on()) record_at(event, monotonic_now(), name, words);
}

void FlightRing::record_at(const FlightEvent& event, core::Time at, std::string_view name,
                           std::string_view words) {
  if (!on()) return;
  std::array<char, kTextOfEventMax> text;
  size_t size = name.copy(text.data(), kTextOfEventMax);
  if (!words.empty() && size < kTextOfEventMax) {
    text[size++] = '\0';
    size += words.copy(text.data() + size, kTextOfEventMax - size);
  }
  put(event, at);
  for (size_t from = 0; from < size; from += kFlightTextBytes) {
    FlightEvent more;
    set_text(more, {text.data() + from, std::min(kFlightTextBytes, size - from)});
    put(more, at);
  }
}

FlightRing* FlightRing::off() {
  static FlightRing none;
  return &none;
}

}  // namespace gradring::daemon
