// Ops whose slices go round the ring on GPUs: which may, and what their ranks give and get.
#include <algorithm>

#include "daemon/data/gpu_ops.h"

namespace gradring::daemon {

// What the ring's members sum or pass on slice by slice, and of which no slice has come yet: what
// has is in the host's memory.
bool GpuOps::fits_ring(const OnGpu& on, const core::Op& op) const {
  // One place more, for what comes from the predecessor.
  if (ride_on_.empty() || resting_ || on.ranks.size() >= transport::kGpuInputsMax) return false;
  const bool along_ring = op.plan.direct == core::Direct::kNo;
  const bool untouched = std::all_of(op.slices.begin(), op.slices.end(), [](const auto& slice) {
    return slice.state == core::SliceState::kUntouched && slice.route == core::Route::kCompute &&
           slice.next_step == 0 && !slice.arriving;
  });
  if (!along_ring || !untouched) return false;
  std::vector<transport::GpuRange> all;
  for (const Rank& rank : on.ranks) {
    all.push_back(rank.input);
    all.push_back(rank.output);
  }
  const auto may_ride = [this](const auto& range) { return ride_on_[range.memory->gpu()]; };
  if (!std::ranges::all_of(all, may_ride)) return false;
  return std::all_of(on.ranks.begin(), on.ranks.end(), [&](const Rank& rank) {
    return orders_->gpus().reaches(rank.input.memory->gpu(), all);
  });
}

// The engine may fold all of it from now on, and only in memory that GPUs have.
void GpuOps::ride(OnGpu& on, const OpKey& key, core::JobEngine* engine) {
  engine->keep_to_ring(key);
  for (const Rank& rank : on.ranks) {
    engine->input_came(rank.rank, key, core::Submission::kAllHere);
  }
}

void GpuOps::inputs_of(const core::Op& op, uint32_t slice, std::vector<transport::GpuRange>* to,
                       std::vector<double>* factors) const {
  const OnGpu& on = ops_.at(op.key);
  const core::Block block = op.plan.block_of(slice);
  const uint64_t at = op.plan.input_at(slice);
  for (const auto& local : op.locals) {
    if (!local || !local->counts) continue;
    if (block.source != kNoRank && block.source != local->rank) continue;
    const auto rank = std::find_if(on.ranks.begin(), on.ranks.end(), [&local](const Rank& one) {
      return one.is(local->rank, local->ticket);
    });
    to->push_back(from(rank->input, at));
    factors->push_back(local->prescale);
  }
}

std::vector<uint32_t> GpuOps::ranks_that_give(const core::Op& op) {
  std::vector<uint32_t> ranks;
  for (const auto& local : op.locals) {
    if (local && local->counts) ranks.push_back(local->rank);
  }
  return ranks;
}

// Also of a rank that is gone: what others lack may have to come from there.
void GpuOps::outputs_of(const core::Op& op, uint32_t slice,
                        std::vector<transport::GpuRange>* to) const {
  const core::Block block = op.plan.block_of(slice);
  const uint64_t at = op.plan.output_at(slice);
  for (const Rank& rank : ops_.at(op.key).ranks) {
    if (!rank.unreadable && block.goes_to(rank.rank)) to->push_back(from(rank.output, at));
  }
}

uint32_t GpuOps::gpu_of(const OpKey& key, uint32_t slice) const {
  const OnGpu& on = ops_.at(key);
  const Rank& turn = on.ranks[slice % on.ranks.size()];
  if (!turn.unreadable) return static_cast<uint32_t>(turn.input.memory->gpu());
  const auto other = std::find_if(on.ranks.begin(), on.ranks.end(),
                                  [](const Rank& rank) { return !rank.unreadable; });
  const Rank& rank = other != on.ranks.end() ? *other : turn;
  return static_cast<uint32_t>(rank.input.memory->gpu());
}

bool GpuOps::may_ride_on() const {
  return !resting_ || std::none_of(ops_.begin(), ops_.end(), [](const auto& entry) {
    return entry.second.way == Way::kRing;
  });
}

void GpuOps::ride_began(const GpuWork& work) {
  if (work.counted) ++ops_.at(work.key).under_way;
}

}  // namespace gradring::daemon
