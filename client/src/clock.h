#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace gradring::client {

// Only monotonic time enters a deadline.
using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
inline constexpr TimePoint kNever = TimePoint::max();

// From milliseconds as the C interface gives them: negative means for ever. Lengths that would pass
// the end of the clock mean the same.
inline TimePoint deadline_after(int64_t ms) {
  constexpr int64_t kCenturyMs = int64_t{100} * 366 * 24 * 3600 * 1000;
  if (ms < 0 || ms > kCenturyMs) return kNever;
  return Clock::now() + std::chrono::milliseconds(ms);
}

// As a peer or the caller told it. Cut to a length that can be added to a time without passing its
// end.
inline std::chrono::milliseconds clamped_ms(uint64_t ms) {
  constexpr uint64_t kYearMs = uint64_t{366} * 24 * 3600 * 1000;
  return std::chrono::milliseconds(ms < kYearMs ? ms : kYearMs);
}

// What is left until `deadline`, for ppoll; a deadline that has passed leaves zero. Not for kNever.
inline timespec time_left(TimePoint deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now());
  const int64_t ns = left.count() > 0 ? left.count() : 0;
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace gradring::client
