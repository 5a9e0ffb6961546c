#pragma once

#include <cstdint>

namespace gradring::core {

// Nanoseconds of a monotonic clock that somebody else reads. The core is told the time, always.
using Time = int64_t;

inline constexpr Time kMillisecond = 1'000'000;
inline constexpr Time kSecond = 1'000'000'000;

}  // namespace gradring::core
