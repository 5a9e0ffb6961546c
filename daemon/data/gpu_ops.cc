#include "daemon/data/gpu_ops.h"

#include <algorithm>
#include <utility>

namespace gradring::daemon {
namespace {

transport::GpuRange from(const transport::GpuRange& range, uint64_t bytes) {
  return {range.memory, range.offset + bytes};
}

// What is begun at once, of each op and each way: a GPU always has something to do, and the driver
// never so much that it would make us wait. Of a run the GPU makes pieces (transport/cuda).
constexpr uint32_t kRunsAtOnce = 4;
constexpr uint64_t kRunBytesMost = uint64_t{64} << 20;

}  // namespace

void GpuOps::add(const Submit& submit) {
  const core::Submission& s = submit.submission;
  OnGpu& on = ops_[s.key];
  // Whose differs from the first one's is no part of an op that ever begins.
  if (on.ranks.empty()) {
    const Extent extent = extent_of(s.signature, s.rank, s.position);
    on.dtype = s.signature.dtype;
    on.op = s.signature.op;
    on.sums = submit.given_on_gpu();
    on.spreads = submit.gpu_output.memory != nullptr;
    on.bytes = extent.output;
    on.part_bytes = submit.part_bytes != 0 ? submit.part_bytes : kRunBytesMost;
    on.part_bytes = std::min(on.part_bytes, kRunBytesMost);
  }
  on.ranks.push_back({.rank = s.rank,
                      .ticket = s.ticket,
                      .input = submit.gpu_input,
                      .output = submit.gpu_output,
                      .host_input = submit.input,
                      .host_output = submit.output});
}

void GpuOps::drop(const OpKey& key, uint32_t rank, uint64_t ticket) {
  const auto it = ops_.find(key);
  std::erase_if(it->second.ranks, [&](const Rank& one) { return one.is(rank, ticket); });
  if (it->second.ranks.empty()) ops_.erase(it);
}

const GpuOps::Leader* GpuOps::leader_of(const OpKey& key) const {
  if (ops_.empty()) return nullptr;
  const auto it = ops_.find(key);
  return it != ops_.end() && it->second.way == Way::kTogether ? &it->second.leader : nullptr;
}

bool GpuOps::stays_there(const OpKey& key) const {
  if (ops_.empty()) return false;
  const auto it = ops_.find(key);
  return it != ops_.end() && it->second.way == Way::kThere;
}

void GpuOps::look(core::JobEngine* engine) {
  for (auto it = ops_.begin(); it != ops_.end();) {
    const auto at = it++;
    OnGpu& on = at->second;
    const core::Op* const op = engine->find(at->first);
    const bool open = op != nullptr && op->open() && !on.ended;
    // Sums of before, which do not count, would land on those that do.
    const bool may = why_failed_.empty() && on.under_way == 0;
    if (open && may && !on.begun && op->ready_here() && !waits_for_loss(on, *op)) {
      begin(on, *op, *engine);
    }
    if (!open || !on.begun || !on.spreads) continue;
    count_final(on, *op);
    // In parts, since each has its price; the rest goes when the op ends.
    on.may_spread = std::max(on.may_spread, on.final_bytes / on.part_bytes * on.part_bytes);
    spread_more(at->first, on);
  }
}

// Of a rank that counts until the next epoch.
bool GpuOps::waits_for_loss(const OnGpu& on, const core::Op& op) {
  return on.sums && std::any_of(on.ranks.begin(), on.ranks.end(), [&op](const Rank& one) {
           return one.unreadable &&
                  std::any_of(op.locals.begin(), op.locals.end(), [&one](const auto& local) {
                    return local && local->counts && one.is(local->rank, local->ticket);
                  });
         });
}

bool GpuOps::is_lost(const OnGpu& on, const Source& source) {
  return std::any_of(source.ranks.begin(), source.ranks.end(),
                     [&on](size_t rank) { return on.ranks[rank].unreadable; });
}

GpuOps::Way GpuOps::way_for(const OnGpu& on, const core::Op& op,
                            const core::JobEngine& engine) const {
  const auto on_gpu = [&on](const core::Submission& local) {
    return std::any_of(on.ranks.begin(), on.ranks.end(),
                       [&local](const Rank& one) { return one.is(local.rank, local.ticket); });
  };
  const bool all = std::all_of(op.locals.begin(), op.locals.end(),
                               [&](const auto& local) { return !local || on_gpu(*local); });
  if (!all || on.ranks.size() > transport::kGpuInputsMax) return Way::kEach;
  const bool alone = engine.view().members.size() == 1 && op.slices_held == 0;
  const bool as_it_is =
      on.sums && on.spreads && op.plan.wire == WireType::kNative && op.signature->postscale == 1;
  return alone && as_it_is ? Way::kThere : Way::kTogether;
}

void GpuOps::begin(OnGpu& on, const core::Op& op, const core::JobEngine& engine) {
  // Once together, always: its results lie in one place.
  const bool again = on.way == Way::kTogether;
  const Way way = again ? on.way : way_for(on, op, engine);
  if (way == Way::kThere && resting_) return;
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
  choose_sources(on, op);
  Status begun = begin_more(op.key, on);
  on.begun = begun.ok();
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
    if (on.leader.input == nullptr) on.leader.input = one->host_input;
    if (!local->counts) continue;
    if (on.way == Way::kEach || on.sources.empty()) on.sources.emplace_back();
    on.sources.back().ranks.push_back(static_cast<size_t>(one - on.ranks.begin()));
  }
  // Of what is final, or will be handed, nobody looks at the input; and it may be overwritten.
  std::vector<Run> runs;
  for (uint32_t slice = 0; slice < op.plan.slices; ++slice) {
    const core::SliceProgress& progress = op.slices[slice];
    const uint64_t at = op.plan.input_at(slice);
    const bool wanted =
        progress.route == core::Route::kCompute && progress.state == core::SliceState::kUntouched;
    if (!wanted) continue;
    const bool adjacent = !runs.empty() && runs.back().first + runs.back().bytes == at;
    if (adjacent && runs.back().bytes < on.part_bytes) {
      runs.back().bytes += op.plan.length_of(slice);
    } else {
      runs.push_back({at, op.plan.length_of(slice)});
    }
  }
  for (Source& source : on.sources) source.runs = runs;
}

Status GpuOps::begin_more(const OpKey& key, OnGpu& on) {
  for (uint32_t s = 0; s < on.sources.size(); ++s) {
    Source& source = on.sources[s];
    if (is_lost(on, source)) continue;
    while (source.begun < source.runs.size() && source.under_way < kRunsAtOnce) {
      Status begun =
          begin_run(on, source, source.runs[source.begun], {job_, key, true, s, source.begun});
      if (!begun.ok()) return begun;
      ++source.begun;
      ++source.under_way;
      ++on.under_way;
    }
  }
  return {};
}

Status GpuOps::begin_run(const OnGpu& on, const Source& source, const Run& run,
                         const GpuWork& work) {
  const uint64_t count = run.bytes / size_of(on.dtype);
  ranges_.clear();
  for (const size_t rank : source.ranks) ranges_.push_back(from(on.ranks[rank].input, run.first));
  if (on.way == Way::kThere) {
    outputs_.clear();
    for (const Rank& rank : on.ranks) {
      if (!rank.gone) outputs_.push_back(from(rank.output, run.first));
    }
    return desk_->begin(
        transport::Gpus::Allreduce{on.dtype, on.op, ranges_, outputs_, on.divisor, count}, work);
  }
  // It is the trainer's memory, which it has lent for this.
  const std::byte* const to =
      on.way == Way::kTogether ? on.leader.input : on.ranks[source.ranks[0]].host_input;
  auto* const out = const_cast<std::byte*>(to) + run.first;  // NOLINT
  return desk_->begin(transport::Gpus::Sum{on.dtype, on.op, ranges_, out, count}, work);
}

bool GpuOps::come_to_rest() {
  resting_ = true;
  return std::none_of(ops_.begin(), ops_.end(), [](const auto& entry) {
    return entry.second.way == Way::kThere && entry.second.under_way > 0;
  });
}

// As far as it is without a gap.
void GpuOps::count_final(OnGpu& on, const core::Op& op) const {
  if (op.slices.size() != op.plan.slices) return;
  for (; on.final_slices < op.plan.slices; ++on.final_slices) {
    if (op.slices[on.final_slices].state == core::SliceState::kUntouched) break;
    if (op.plan.output_at(on.final_slices) != on.final_bytes) break;
    on.final_bytes += op.plan.length_of(on.final_slices);
  }
}

void GpuOps::spread_more(const OpKey& key, OnGpu& on) {
  Status begun;
  while (begun.ok() && on.spread < on.may_spread && on.spreading < kRunsAtOnce) {
    const uint64_t bytes = std::min(on.may_spread - on.spread, kRunBytesMost);
    std::vector<size_t> all;
    for (size_t i = 0; i < on.ranks.size() && begun.ok(); ++i) {
      if (on.ranks[i].gone) continue;
      if (on.way == Way::kTogether) {
        all.push_back(i);
      } else {
        begun = spread_over(key, on, on.ranks[i].host_output, {i}, bytes);
      }
    }
    const auto leads = [&on](const Rank& one) { return one.rank == on.leader.rank; };
    if (!all.empty()) {
      const auto leader = std::find_if(on.ranks.begin(), on.ranks.end(), leads);
      begun = spread_over(key, on, leader->host_output, all, bytes);
    }
    on.spread += bytes;
  }
  if (!begun.ok()) fail(begun);
}

Status GpuOps::spread_over(const OpKey& key, OnGpu& on, const std::byte* host,
                           const std::vector<size_t>& ranks, uint64_t bytes) {
  ranges_.clear();
  for (const size_t rank : ranks) ranges_.push_back(from(on.ranks[rank].output, on.spread));
  Status begun =
      desk_->begin(transport::Gpus::Spread{host + on.spread, ranges_, bytes}, {job_, key, false});
  if (!begun.ok()) return begun;
  ++on.spreading;
  ++on.under_way;
  return {};
}

void GpuOps::on_ended(const GpuWork& work, const Status& status, core::JobEngine* engine) {
  const auto at = ops_.find(work.key);
  OnGpu& on = at->second;
  --on.under_way;
  if (!work.sums) --on.spreading;
  if (work.sums && on.begun) --on.sources[work.source].under_way;
  if (!status.ok()) {
    fail(status);
  } else if (work.sums && on.begun) {
    Source& source = on.sources[work.source];
    source.runs[work.run].here = true;
    tell(on, source, work.key, engine);
    Status more = on.ended ? Status() : begin_more(work.key, on);
    if (!more.ok()) fail(more);
  } else if (!work.sums) {
    spread_more(work.key, on);
  }
  settle(at);
}

void GpuOps::fail(const Status& status) {
  if (!why_failed_.empty()) return;
  why_failed_ = status.message();
  failed_(why_failed_);
}

void GpuOps::tell(const OnGpu& on, const Source& source, const OpKey& key,
                  core::JobEngine* engine) const {
  const auto missing = std::find_if(source.runs.begin(), source.runs.end(),
                                    [](const Run& run) { return !run.here; });
  const uint64_t here = missing == source.runs.end() ? core::Submission::kAllHere : missing->first;
  for (const size_t rank : source.ranks) engine->input_came(on.ranks[rank].rank, key, here);
}

bool GpuOps::hold_end(const OpKey& key, uint32_t rank, uint64_t ticket,
                      const core::Outcome& outcome) {
  const auto at = ops_.find(key);
  if (at == ops_.end()) return false;
  OnGpu& on = at->second;
  const auto one = std::find_if(on.ranks.begin(), on.ranks.end(), [&](const Rank& known) {
    return known.is(rank, ticket) && !known.outcome;
  });
  if (one == on.ranks.end()) return false;
  one->outcome = outcome;
  on.ended = true;
  if (outcome.verdict != Verdict::kFailed && on.spreads) {
    on.may_spread = on.bytes;
    spread_more(key, on);
  }
  settle(at);
  return true;
}

// Tells the ends that wait, once no GPU has anything to do with their memory.
void GpuOps::settle(Ops::iterator at) {
  OnGpu& on = at->second;
  if (on.under_way > 0 || !on.ended) return;
  for (Rank& rank : on.ranks) {
    if (!rank.outcome || std::exchange(rank.told, true)) continue;
    const bool there = why_failed_.empty() || rank.outcome->verdict == Verdict::kFailed;
    end_(rank.rank, rank.ticket,
         there ? *rank.outcome
               : core::refused(rank.rank,
                               "the op is done, but its result is not on its GPU: " + why_failed_));
  }
  const bool all =
      std::all_of(on.ranks.begin(), on.ranks.end(), [](const Rank& rank) { return rank.told; });
  if (all) ops_.erase(at);
}

void GpuOps::leave(uint32_t rank, bool readable) {
  for (auto& entry : ops_) {
    OnGpu& on = entry.second;
    for (Rank& one : on.ranks) {
      if (one.rank != rank) continue;
      one.gone = true;
      one.unreadable = one.unreadable || !readable;
    }
    if (on.way != Way::kThere || !on.begun || on.ended) continue;
    const bool stuck =
        std::any_of(on.sources.begin(), on.sources.end(), [&on](const Source& source) {
          return is_lost(on, source) && source.begun < source.runs.size();
        });
    if (!stuck) continue;
    fail({Code::kUnavailable,
          "a rank's GPU was lost while GPUs wrote a sum over its inputs, so that it cannot be made "
          "without that rank"});
  }
}

void GpuOps::end_epoch(core::JobEngine* engine) {
  resting_ = false;
  for (auto& entry : ops_) {
    const OpKey& key = entry.first;
    OnGpu& on = entry.second;
    on.final_slices = 0;  // they may be cut differently from now on
    on.final_bytes = 0;
    const core::Op* const op = engine->find(key);
    if (op == nullptr || !op->open() || !on.begun) continue;
    if (on.way != Way::kTogether) continue;
    const auto counts = [&](const Source& source) {
      return std::all_of(source.ranks.begin(), source.ranks.end(), [&](size_t rank) {
        return std::any_of(op->locals.begin(), op->locals.end(), [&](const auto& local) {
          return local && local->counts && local->rank == on.ranks[rank].rank;
        });
      });
    };
    if (std::all_of(on.sources.begin(), on.sources.end(), counts)) continue;
    on.begun = false;
    engine->inputs_come_again(key);
  }
}

uint32_t GpuOps::coming_of(uint32_t rank) const {
  uint32_t coming = 0;
  for (const auto& [key, on] : ops_) {
    const bool here = std::any_of(on.ranks.begin(), on.ranks.end(),
                                  [rank](const Rank& one) { return one.rank == rank; });
    const bool whole =
        on.begun && std::all_of(on.sources.begin(), on.sources.end(), [](const Source& source) {
          return std::all_of(source.runs.begin(), source.runs.end(),
                             [](const Run& run) { return run.here; });
        });
    coming += on.sums && here && !whole ? 1 : 0;
  }
  return coming;
}

bool GpuOps::under_way() const {
  return std::any_of(ops_.begin(), ops_.end(),
                     [](const auto& entry) { return entry.second.under_way > 0; });
}

}  // namespace gradring::daemon
