#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "daemon/core/time.h"

namespace gradring::core {

// The upper one of two in the middle; 0 of none.
inline Time median_of(std::vector<Time> times) {
  if (times.empty()) return 0;
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace gradring::core
