#pragma once

#include <ctime>

#include "tests/sanitized.h"

namespace gradring::core {

// Of this process, so that what else the machine does counts little.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// For what takes a quarter of it or less, and took more where it grew with the square of the nodes.
inline constexpr double kCpuSecondsAtMost = kSanitized ? 60 : 2;

}  // namespace gradring::core
