#pragma once

#include <cstdint>
#include <vector>

#include "daemon/core/time.h"

namespace gradring::scale {

// What every rank does again and again: compute, and hand over buckets of gradients of equal size
// as they become ready. The next step begins when all have come back and the computing is done.
struct Step {
  core::Time compute = 0;
  uint64_t bucket_bytes = 0;      // of float32
  std::vector<core::Time> ready;  // of each bucket, since the step began; ascending
};

// One allreduce after the other, with nothing in between.
inline Step loop_of(uint64_t bytes) { return {0, bytes, {0}}; }

}  // namespace gradring::scale
