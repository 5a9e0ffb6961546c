#pragma once

#include <cstdint>

#include "tests/differential/program.h"
#include "tests/transport/fold_reference.h"

namespace gradring::differential {

using fold_reference::Bytes;

// Inputs repeat after so many elements. A prime: data that ends up in another place is noticed,
// since slices and blocks are no multiples of it.
inline constexpr uint64_t kPeriod = 1021;
// No fraction (Values::kFractions) is larger.
inline constexpr double kFractionMax = 0.5;

// What a rank of the group puts in: so many elements, or a whole period of them.
Bytes cycle_of(uint64_t seed, const Op& op, uint32_t rank, uint64_t elements);

// Fills a buffer of whole elements from such a cycle.
void repeat(const Bytes& cycle, std::byte* to, uint64_t bytes);

}  // namespace gradring::differential
