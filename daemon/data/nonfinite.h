#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "daemon/core/op.h"
#include "daemon/data/messages.h"
#include "transport/gpus.h"
#include "transport/reducer.h"

namespace gradring::daemon {

// Where NaN and infinity come from, of one job on one node: how many values of each local rank's
// inputs were not finite, and where the first of all came up. What arrives from another node so is
// that node's to tell. Data thread only.
class NonfiniteWatch {
 public:
  // For `bytes` bytes of an op, from `offset` on, whose fold found something. `inputs`: the local
  // contributions to them, of `ranks`, as untouched as they were folded. True once: when this is
  // the job's first origin here.
  bool look(const core::Op& op, uint64_t offset, uint64_t bytes,
            std::span<const void* const> inputs, std::span<const uint32_t> ranks,
            const transport::FoldFindings& findings, core::Time now);

  // The same of a sum that GPUs have made of inputs of these ranks, from `offset` on; one input
  // more came from other nodes.
  bool look(const core::Op& op, uint64_t offset, std::span<const uint32_t> ranks,
            const transport::Gpus::Nonfinite& found, core::Time now);

  // Values of this rank that were not finite so far. Exact for sums, averages and products; an
  // infinity that a minimum or maximum passed over is nobody's trouble, and may be left out.
  uint64_t inputs(uint32_t rank) const {
    const auto it = inputs_.find(rank);
    return it == inputs_.end() ? 0 : it->second;
  }
  const std::optional<NonfiniteOrigin>& first() const { return first_; }

 private:
  using Kind = NonfiniteOrigin::Kind;
  bool remember(const core::Op& op, Kind kind, uint32_t rank, uint64_t element, core::Time now);

  std::map<uint32_t, uint64_t> inputs_;
  std::optional<NonfiniteOrigin> first_;
};

}  // namespace gradring::daemon
