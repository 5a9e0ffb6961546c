#pragma once

#include <cstdint>

namespace gradring::device {

// What the first GPU's copies attain, in bytes a second: nothing that is copied can be quicker.
struct Floors {
  double within = 0;     // from one place of the GPU to another: as many are read as written
  double both_ways = 0;  // to the host's pinned memory and, at the same time, from it; each
};
// By the tests' way to a GPU (tests/client/cuda_twin.h), which must be had already; each of several
// tries, the best counts. Throws std::runtime_error with CUDA's words.
Floors measure_floors(uint64_t bytes, int copies);

}  // namespace gradring::device
