#include "daemon/data/gpu_ops.h"

#include <algorithm>
#include <utility>

namespace gradring::daemon {

void GpuOps::add(const Submit& submit) {
  const core::Submission& s = submit.submission;
  OnGpu& on = ops_[s.key];
  // Whose differs from the first one's is no part of an op that ever begins.
  if (on.ranks.empty()) {
    const Extent extent = extent_of(s.signature, s.rank, s.position);
    on.dtype = s.signature.dtype;
    on.op = s.signature.op;
    on.collective = s.signature.collective;
    on.bytes = extent.output;
    on.part_bytes = submit.part_bytes != 0 ? submit.part_bytes : kRunBytesMost;
    on.part_bytes = std::min(on.part_bytes, kRunBytesMost);
  }
  on.ranks.push_back({.rank = s.rank,
                      .ticket = s.ticket,
                      .prescale = s.prescale,
                      .input = submit.gpu_input,
                      .output = submit.gpu_output,
                      .host_input = submit.input,
                      .host_output = submit.output});
  look_at_buffers(on);
}

// Of one op ranks may leave some there and others not.
void GpuOps::look_at_buffers(OnGpu& on) {
  on.sums = std::ranges::any_of(on.ranks, [](const Rank& one) { return one.input.memory; });
  on.spreads = std::ranges::any_of(on.ranks, [](const Rank& one) { return one.output.memory; });
  const bool both = on.sums && on.spreads;
  on.gathers = both && on.collective == Collective::kAllgather;
  on.scatters = both && on.collective == Collective::kReduceScatter;
}

bool GpuOps::holds(const OpKey& key) const {
  const auto it = ops_.find(key);
  return it != ops_.end() && it->second.ended;
}

void GpuOps::drop(const OpKey& key, uint32_t rank, uint64_t ticket) {
  const auto it = ops_.find(key);
  std::erase_if(it->second.ranks, [&](const Rank& one) { return one.is(rank, ticket); });
  if (it->second.ranks.empty()) {
    ops_.erase(it);
  } else {
    look_at_buffers(it->second);
  }
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

bool GpuOps::rides(const OpKey& key) const {
  if (ops_.empty()) return false;
  const auto it = ops_.find(key);
  return it != ops_.end() && it->second.way == Way::kRing;
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
      // What nobody takes is not waited for.
      for (const Source& source : on.sources) {
        if (on.begun) tell(on, source, at->first, engine);
      }
      if (on.begun && on.way == Way::kRing) ride(on, at->first, engine);
    }
    if (!open || !on.begun || !on.spreads || on.ended) continue;
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

// Of a slice that another node was to hand to this one, and has not, the inputs were not fetched;
// if that node is gone it is to be computed.
bool GpuOps::left_out(const core::Op& op) {
  return std::any_of(op.slices.begin(), op.slices.end(), [](const core::SliceProgress& slice) {
    return slice.state == core::SliceState::kUntouched && slice.route != core::Route::kCompute;
  });
}

bool GpuOps::come_to_rest() {
  resting_ = true;
  return std::none_of(ops_.begin(), ops_.end(), [](const auto& entry) {
    const bool there = entry.second.way == Way::kThere || entry.second.way == Way::kRing;
    return there && entry.second.under_way > 0;
  });
}

// As far as it is without a gap.
void GpuOps::count_final(OnGpu& on, const core::Op& op) const {
  if (op.slices.size() != op.plan.slices || on.scatters) return;
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
      if (on.ranks[i].gone || on.ranks[i].output.memory == nullptr) continue;
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
  Status begun = orders_->give(transport::Gpus::Spread{host + on.spread, ranges_, bytes},
                               {nullptr, key, false}, GpuTask::kSpread, bytes);
  if (!begun.ok()) return begun;
  ++on.spreading;
  ++on.under_way;
  return {};
}

void GpuOps::on_ended(const GpuWork& work, const Status& status, core::JobEngine* engine) {
  const auto at = work.counted ? ops_.find(work.key) : ops_.end();
  if (at == ops_.end()) {  // what others lacked of it was copied
    if (!status.ok()) fail(status);
    return;
  }
  OnGpu& on = at->second;
  --on.under_way;
  on.still_since = 0;
  if (work.rides) {
    if (!status.ok()) fail(status);
    return settle(at);
  }
  if (!work.sums) --on.spreading;
  if (work.sums && on.begun) --on.sources[work.source].under_way;
  if (!status.ok()) {
    fail(status);
  } else if (work.sums && on.begun) {
    Source& source = on.sources[work.source];
    source.runs[work.run].here = true;
    Status more = on.ended ? Status() : begin_more(work.key, on);
    if (!more.ok()) fail(more);
    tell(on, source, work.key, engine);
  } else if (!work.sums) {
    spread_more(work.key, on);
  }
  settle(at);
}

// The sources of what is under way stay as they are until it has ended.
GpuOps::Summed GpuOps::summed_by(const GpuWork& work, const core::Op& op) const {
  if (work.rides) return {op.plan.input_at(work.run), ranks_that_give(op)};
  const OnGpu& on = ops_.at(work.key);
  const Source& source = on.sources[work.source];
  Summed summed{source.runs[work.run].first, {}};
  for (const size_t rank : source.ranks) summed.ranks.push_back(on.ranks[rank].rank);
  return summed;
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

// Once no GPU has anything to do with their memory.
void GpuOps::settle(Ops::iterator at) {
  OnGpu& on = at->second;
  if (!on.ended || (on.under_way > 0 && !gave_up_)) return;
  tell_ends(on);
  const bool all =
      std::all_of(on.ranks.begin(), on.ranks.end(), [](const Rank& rank) { return rank.told; });
  if (all && on.under_way == 0) ops_.erase(at);
}

void GpuOps::tell_ends(OnGpu& on) const {
  for (Rank& rank : on.ranks) {
    if (!rank.outcome || std::exchange(rank.told, true)) continue;
    const bool there = why_failed_.empty() || rank.outcome->verdict == Verdict::kFailed;
    end_(rank.rank, rank.ticket,
         there ? *rank.outcome
               : core::refused(rank.rank,
                               "the op is done, but its result is not on its GPU: " + why_failed_));
  }
}

bool GpuOps::hang(core::Time now, core::Time within) {
  bool any = false;
  for (auto& [key, on] : ops_) {
    const bool is_over = on.ended || !why_failed_.empty();
    if (!is_over || on.under_way == 0) continue;
    if (on.still_since == 0) on.still_since = now;
    any = any || now - on.still_since >= within;
  }
  return any;
}

void GpuOps::give_up(const Status& why) {
  gave_up_ = true;
  fail(why);
  for (auto it = ops_.begin(); it != ops_.end();) settle(it++);
}

void GpuOps::leave(uint32_t rank, bool readable, core::JobEngine* engine) {
  for (auto& entry : ops_) {
    OnGpu& on = entry.second;
    for (Rank& one : on.ranks) {
      if (one.rank != rank) continue;
      one.gone = true;
      one.unreadable = one.unreadable || !readable;
    }
    if (on.way == Way::kRing && !readable) engine->input_lost(rank, entry.first);
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
    if (op == nullptr || !op->open() || !on.begun || on.ended) continue;
    if (on.way == Way::kRing) continue;
    const auto counts = [&](const Source& source) {
      return std::all_of(source.ranks.begin(), source.ranks.end(), [&](size_t rank) {
        return std::any_of(op->locals.begin(), op->locals.end(), [&](const auto& local) {
          return local && local->counts && local->rank == on.ranks[rank].rank;
        });
      });
    };
    // Each for itself is no part of a sum that would be another without it.
    const bool stands = on.way == Way::kEach || std::ranges::all_of(on.sources, counts);
    if (stands && !left_out(*op)) continue;
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
