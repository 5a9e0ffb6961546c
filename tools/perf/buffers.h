#pragma once

#include <cstdint>
#include <vector>

#include "tools/perf/plan.h"

namespace gradring::tools {

// A run of elements in a rank's memory, and which elements of the whole they are (Pattern).
struct Part {
  uint64_t at = 0;
  uint64_t first = 0;
  uint64_t count = 0;

  bool operator==(const Part&) const = default;
};

// Where the buffers of a case lie in a rank's memory, in elements: in place wherever the collective
// has that.
struct Buffers {
  uint64_t elements = 0;  // that are used
  uint64_t input = 0;
  uint64_t output = 0;
  std::vector<Part> given;     // what this rank puts in
  std::vector<Part> expected;  // what it must find afterwards
};

// `of` is rounded() for that many ranks.
Buffers buffers_of(const Case& of, int rank, int ranks);

}  // namespace gradring::tools
