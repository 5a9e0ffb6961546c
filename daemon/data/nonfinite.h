#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/core/op.h"
#include "daemon/data/messages.h"
#include "transport/reducer.h"

namespace gradring::daemon {

// Where NaN and infinity come from, of one job on one node: how many values of each local rank's
// inputs were not finite, and where the first of all came up. What arrives from another node so is
// that node's to tell. Data thread only.
class NonfiniteWatch {
 public:
  explicit NonfiniteWatch(size_t local_ranks) : inputs_(local_ranks) {}

  // For a slice whose fold found something. `inputs`: the local contributions to it, by local
  // index, as untouched as they were folded. True once: when this is the job's first origin here.
  bool look(const core::Op& op, uint32_t slice, std::span<const void* const> inputs,
            const transport::FoldFindings& findings, core::Time now);

  // Values that were not finite so far, by local index. Exact for sums, averages and products; an
  // infinity that a minimum or maximum passed over is nobody's trouble, and may be left out.
  const std::vector<uint64_t>& inputs() const { return inputs_; }
  const std::optional<NonfiniteOrigin>& first() const { return first_; }

 private:
  std::vector<uint64_t> inputs_;
  std::optional<NonfiniteOrigin> first_;
};

}  // namespace gradring::daemon
