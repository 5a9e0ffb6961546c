#pragma once

#include <cstdint>
#include <vector>

#include "proto/types.h"

namespace gradring::tools {

// One line of the table: what is measured.
struct Case {
  Collective collective = Collective::kAllreduce;
  Dtype dtype = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // kNone but for allreduce
  uint32_t root = 0;             // broadcast only
  uint64_t count = 0;            // elements; 0 for a barrier

  uint64_t bytes() const { return count * size_of(dtype); }
  bool operator==(const Case&) const = default;
};

struct SizeRange {
  uint64_t min = 4 << 10;
  uint64_t max = 256 << 20;
  uint64_t factor = 4;
};

// min, min x factor, ... up to max. Needs 1 <= min <= max and factor >= 2.
std::vector<uint64_t> sizes_in(const SizeRange& range);

// What --all measures: every type, and every operation that a type has, at each size, rounded down
// to whole elements, one at least. A barrier has a single case.
std::vector<Case> all_cases(Collective collective, const SizeRange& range, uint32_t root);
// The same for one type and operation.
std::vector<Case> cases_of(Collective collective, const SizeRange& range, Dtype dtype, ReduceOp op,
                           uint32_t root);

// What nccl-tests multiply algorithm bandwidth by, so that it can be compared with the speed of a
// link: 2(n-1)/n for an allreduce, whose ring sends each byte so many times, 1 for a broadcast.
double bus_factor(Collective collective, int ranks);

}  // namespace gradring::tools
