#pragma once

#include <cstdint>

#include "daemon/core/random.h"

namespace gradring::sim {

inline uint32_t between(core::Random* random, uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(random->below(high - low + 1));
}
inline bool chance(core::Random* random, uint32_t percent) { return random->below(100) < percent; }

}  // namespace gradring::sim
