#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace gradring {

// Fills `count` elements with what changes no result of `op`: zero for sums, one for products, the
// largest value for minima and the like; zero as well where nothing is reduced (kNone). `to` is
// aligned to the element.
void fill_identity(Dtype dtype, ReduceOp op, std::byte* to, uint64_t count);

}  // namespace gradring
