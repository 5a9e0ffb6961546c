#pragma once

#include <cstdint>
#include <vector>

#include "proto/types.h"

namespace gradring::tools {

// One line of the table: what is measured.
struct Case {
  Collective collective = Collective::kAllreduce;
  Dtype dtype = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // kNone where nothing is reduced
  uint32_t root = 0;             // where there is one
  uint64_t count = 0;            // elements of the larger buffer; 0 for a barrier
  double scale = 1;              // inputs are multiplied by it, and the result by its inverse
  bool uneven = false;           // the blocks are, some of them empty

  uint64_t bytes() const { return count * size_of(dtype); }
  bool operator==(const Case&) const = default;
};

// What a wire type is for: whether any of them sends float32.
bool any_float32(const std::vector<Case>& cases);

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

// The case for so many ranks: where buffers are in blocks, they are so many, of one element at
// least.
Case rounded(const Case& of, int ranks);
// All of them, without those that are the same as the one before.
std::vector<Case> rounded(const std::vector<Case>& all, int ranks);
// Elements per rank and block; of uneven blocks so many on average.
uint64_t count_of(const Case& of, int ranks);
// The blocks of an uneven case: of::count elements together, for each rank of an alltoall.
Blocks blocks_of(const Case& of, int ranks);

}  // namespace gradring::tools
