#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "daemon/data/reduce_team.h"
#include "proto/types.h"
#include "transport/reducer.h"

namespace gradring::daemon {

// One pass over a slice of an op: every input is read once, and the result is written to `to`, if
// there is one, and to each of `outputs`, block by block while the block is in the cache. `to` or
// an output may be one of the inputs; apart from that nothing overlaps.
//
// Where values travel packed, `to` and `arrived` are, and what the outputs get is rounded as much;
// so is the one input of a copy, which then has outputs alone.
struct Pass {
  Dtype dtype = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // kNone: there is one input, which is copied
  uint32_t divisor = 0;          // not 0: divide the result
  std::span<const void* const> inputs;
  std::byte* to = nullptr;
  std::span<std::byte* const> outputs;
  uint64_t bytes = 0;
  WireType wire = WireType::kNative;
  const std::byte* arrived = nullptr;  // packed: one more input, the last; may be `to`
  // Packed, of as many elements: what rounding took away the last time, which is added now, and
  // what it takes away this time. Requires `to`.
  float* residue = nullptr;
  transport::Scale scale = {};  // of the inputs and the result, before it is packed
};

// Makes passes, with a team where that pays. One thread.
class PassRunner {
 public:
  explicit PassRunner(uint32_t helpers) : team_(helpers) {}

  // Told of `length` bytes from `first` on whose result is not finite, in ascending order: all
  // inputs but `to` are untouched there at this moment.
  using Spoilt =
      std::function<void(uint64_t first, uint64_t length, const transport::FoldFindings& findings)>;
  void run(const Pass& pass, const Spoilt& spoilt);

 private:
  // Where a part of a pass stopped, since a block of it is spoilt: that is not written to the
  // outputs yet.
  struct Stop {
    uint64_t at = 0;  // the end of the part if nothing is
    transport::FoldFindings findings;
  };
  static void run_part(void* runner, uint32_t part);
  void finish_part(uint32_t part, const Spoilt& spoilt);

  ReduceTeam team_;
  const Pass* pass_ = nullptr;  // under way
  std::vector<Stop> stops_;     // by part
};

}  // namespace gradring::daemon
