// Which way ops go over GPUs, and what is begun for them.
#include <algorithm>
#include <set>

#include "daemon/data/gpu_ops.h"

namespace gradring::daemon {

GpuOps::Way GpuOps::way_for(const OnGpu& on, const core::Op& op,
                            const core::JobEngine& engine) const {
  const auto on_gpu = [&on](const core::Submission& local) {
    return std::any_of(on.ranks.begin(), on.ranks.end(), [&](const Rank& one) {
      return one.is(local.rank, local.ticket) && on.sums == (one.input.memory != nullptr) &&
             on.spreads == (one.output.memory != nullptr);
    });
  };
  const bool all = std::all_of(op.locals.begin(), op.locals.end(),
                               [&](const auto& local) { return !local || on_gpu(*local); });
  if (!all || on.ranks.size() > transport::kGpuInputsMax) return Way::kEach;
  const bool alone = engine.view().members.size() == 1 && op.slices_held == 0;
  const bool all_there = on.sums && on.spreads && op.plan.wire == WireType::kNative;
  if (alone && all_there) return Way::kThere;
  if (all_there && fits_ring(on, op)) return Way::kRing;
  return on.gathers || on.scatters ? Way::kEach : Way::kTogether;
}

void GpuOps::begin(OnGpu& on, const core::Op& op, const core::JobEngine& engine) {
  // Once together, always: its results lie in one place; and likewise otherwise.
  const bool again = on.begun_before;
  const Way way = again ? on.way : way_for(on, op, engine);
  if (way == Way::kThere && resting_) return;
  if (way == Way::kRing) {
    on.way = way;
    on.begun = true;
    on.spread = on.may_spread = on.bytes;
    return;
  }
  Status begun = begin(on, op, way);
  const bool may_be_each = !again && way != Way::kEach && on.under_way == 0;
  if (!begun.ok() && begun.code() == Code::kUnavailable && may_be_each) {
    begun = begin(on, op, Way::kEach);
  }
  if (!begun.ok()) fail(begun);
}

Status GpuOps::begin(OnGpu& on, const core::Op& op, Way way) {
  on.way = way;
  on.divisor = on.op == ReduceOp::kAverage ? op.contributed : 0;
  on.factor = op.signature->postscale;
  choose_sources(on, op);
  Status begun = begin_more(op.key, on);
  on.begun = begun.ok();
  on.begun_before = on.begun_before || on.begun;
  if (on.begun && way == Way::kThere) on.spread = on.may_spread = on.bytes;
  return begun;
}

void GpuOps::choose_sources(OnGpu& on, const core::Op& op) const {
  on.sources.clear();
  on.leader.takes = on.spreads;
  for (const auto& local : op.locals) {
    if (!local) continue;
    const auto one = std::find_if(on.ranks.begin(), on.ranks.end(), [&](const Rank& rank) {
      return rank.is(local->rank, local->ticket);
    });
    if (one == on.ranks.end()) continue;
    if (on.leader.rank == kNoRank) on.leader.rank = one->rank;
    if (!on.sums) continue;
    // Several ops may give one input at once, so that nothing else may lie in its place. A
    // reduce-scatter has no other place (the client gives it an input of its own).
    const std::byte* const place = on.spreads ? one->host_output : one->host_input;
    if (on.leader.input == nullptr) on.leader.input = place;
    if (!local->counts || one->input.memory == nullptr) continue;
    const bool for_itself = on.way == Way::kEach || on.gathers;
    if (for_itself || on.sources.empty()) on.sources.emplace_back();
    on.sources.back().ranks.push_back(static_cast<size_t>(one - on.ranks.begin()));
  }
  on.leader.alone = on.sources.size() == 1 && on.sources[0].ranks.size() == 1;
  for (Source& source : on.sources) source.runs = runs_of(on, source, op);
}

// What goes from GPU to GPU waits for nothing in parts: each GPU takes one, to be done at once.
uint64_t GpuOps::run_bytes_of(const OnGpu& on) {
  if (on.way != Way::kThere) return on.part_bytes;
  std::set<size_t> gpus;
  for (const Rank& rank : on.ranks) {
    if (!rank.gone && rank.output.memory != nullptr) gpus.insert(rank.output.memory->gpu());
  }
  const uint64_t share = on.bytes / std::max<size_t>(gpus.size(), 1) + 1;
  return std::clamp(share, on.part_bytes, kRunBytesMost);
}

std::vector<GpuOps::Run> GpuOps::runs_of(const OnGpu& on, const Source& source,
                                         const core::Op& op) {
  const uint32_t giver = on.ranks[source.ranks.front()].rank;
  const uint64_t run_bytes = run_bytes_of(on);
  // Of what is final, or will be handed, nobody looks at the input; and it may be overwritten.
  std::vector<Run> runs;
  for (uint32_t slice = 0; slice < op.plan.slices; ++slice) {
    const core::SliceProgress& progress = op.slices[slice];
    const core::Block block = op.plan.block_of(slice);
    const bool wanted =
        progress.route == core::Route::kCompute && progress.state == core::SliceState::kUntouched;
    if (!wanted || (on.gathers && block.source != giver)) continue;
    const Run run{op.plan.input_at(slice), op.plan.length_of(slice), op.plan.output_at(slice),
                  on.scatters ? block.target : kNoRank};
    Run* const last = runs.empty() ? nullptr : &runs.back();
    const bool adjacent = last != nullptr && last->first + last->bytes == run.first &&
                          last->target == run.target && last->bytes < run_bytes;
    if (adjacent) {
      last->bytes += run.bytes;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

Status GpuOps::begin_more(const OpKey& key, OnGpu& on) {
  for (uint32_t s = 0; s < on.sources.size(); ++s) {
    Source& source = on.sources[s];
    if (is_lost(on, source)) continue;
    while (source.begun < source.runs.size() && source.under_way < kRunsAtOnce) {
      Run& run = source.runs[source.begun];
      const auto wants = [&run](const Rank& rank) { return takes(rank, run); };
      if (on.way == Way::kThere && std::none_of(on.ranks.begin(), on.ranks.end(), wants)) {
        run.here = true;  // whoever was to get it is gone
        ++source.begun;
        continue;
      }
      Status begun = begin_run(on, source, run, {nullptr, key, true, s, source.begun});
      if (!begun.ok()) return begun;
      ++source.begun;
      ++source.under_way;
      ++on.under_way;
    }
  }
  return {};
}

bool GpuOps::takes(const Rank& rank, const Run& run) {
  return !rank.gone && (run.target == kNoRank || run.target == rank.rank);
}

Status GpuOps::begin_run(const OnGpu& on, const Source& source, const Run& run,
                         const GpuWork& work) {
  const uint64_t count = run.bytes / size_of(on.dtype);
  ranges_.clear();
  factors_.clear();
  for (const size_t rank : source.ranks) {
    ranges_.push_back(from(on.ranks[rank].input, run.first));
    factors_.push_back(on.ranks[rank].prescale);
  }
  if (on.way == Way::kThere) {
    outputs_.clear();
    for (const Rank& rank : on.ranks) {
      if (takes(rank, run)) outputs_.push_back(from(rank.output, run.to));
    }
    if (on.gathers) {
      return orders_->give(transport::Gpus::copy(ranges_.front(), outputs_, run.bytes), work,
                           GpuTask::kStay, run.bytes);
    }
    return orders_->give(transport::Gpus::Allreduce{on.dtype, on.op, ranges_, outputs_, on.divisor,
                                                    count, factors_, on.factor},
                         work, GpuTask::kStay, run.bytes);
  }
  if (ranges_.size() == 1) factors_.clear();  // it is copied, and multiplied where it is folded
  // It is the trainer's memory, which it has lent for this.
  const std::byte* const to =
      on.way == Way::kTogether ? on.leader.input : on.ranks[source.ranks[0]].host_input;
  auto* const out = const_cast<std::byte*>(to) + run.first;  // NOLINT
  return orders_->give(transport::Gpus::Sum{on.dtype, on.op, ranges_, out, count, factors_}, work,
                       GpuTask::kBring, run.bytes);
}

}  // namespace gradring::daemon
