// What is kept after completion, until every member is known to have it. Rules D5 to D7, T1 to T5.

#include <algorithm>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"
#include "proto/check.h"

namespace gradring::core {

// D6: every slice is final here, and of each one that some member may still lack we have a copy
// that is not the trainer's.
void JobEngine::complete_if_final(Op& op) {
  if (!op.open() || frozen_ || !op.signature) return;
  Outcome outcome;
  outcome.epoch = view_.epoch;
  if (op.plan.slices == 0) {
    if (!op.ready_here() || (!op.confirmed && (!op.all_ready() || op.grows))) return;
    if (!op.confirmed) op.outcome = {view_.epoch, op.contributed_all};
    if (!may_tell_decided(op)) return;
    outcome.ranks_min = outcome.ranks_max = op.outcome.ranks;
  } else {
    const bool enough =
        planted(Bug::kOwnOutputIsEnough) && op.plan.to_one() && op.ready_here() && done_here(op);
    if (op.slices_held != op.plan.slices && !enough) return;
    if (op.plan.to_one() && !may_tell_decided(op)) return;
    let_go(op, true);  // others wait for that as we may for them, when there is no room
    if (rises(op) && !op.passed_confirm) pass_confirm(op);  // likewise
    drop_if_everywhere(op);
    if (waits_for_answers(op) || !keep_finals(op)) {
      waiting_.insert(op.key);
      return;
    }
    outcome.ranks_min = kNoRank;
    for (const SliceProgress& slice : op.slices) {
      outcome.ranks_min = std::min(outcome.ranks_min, slice.value.ranks);
      outcome.ranks_max = std::max(outcome.ranks_max, slice.value.ranks);
    }
  }
  settle(op, &outcome);
  waiting_.erase(op.key);
  starting_.remove(op);
  verify(op);
  tell_locals(op, outcome);
  ++counters_.ops_completed;
  ended_keys_.insert(op.key);
  set_state(op, OpState::kCompleted);
  journal_->ended(op);
  if (op.plan.slices == 0 && !op.passed_confirm) pass_confirm(op);
  forget_if_dropped(op.key);
}

// V10: whether it is one with contributions missing, which can be said of sums alone.
void JobEngine::settle(const Op& op, Outcome* outcome) const {
  const Collective collective = op.signature->collective;
  if (needs_all_ranks(collective)) {
    outcome->ranks_min = outcome->ranks_max = op.signature->ranks;
  }
  const bool may_lack = !needs_all_ranks(collective) && collective != Collective::kBroadcast;
  const bool shrunk = may_lack && outcome->ranks_min < op.expected;
  outcome->verdict = shrunk ? Verdict::kOkShrunk : Verdict::kOk;
}

// D7 for an op without slices, or with such as most members never hold. What is decided here is
// said in our report, so that where all have decided, every view that follows has the same outcome:
// then it may be told.
bool JobEngine::may_tell_decided(Op& op) {
  if (!options_.stable_completion || op.everywhere || members() == 1) return true;
  if (planted(Bug::kToldBeforeStable)) return true;
  if (waiting_.insert(op.key).second && op.plan.slices == 0) journal_->decided(op);
  if (!op.passed_confirm) pass_confirm(op);
  return op.everywhere;
}

// T1, T3: all of them, or none and the op waits until it is stable.
bool JobEngine::keep_finals(Op& op) {
  if (op.slices_dropped == op.plan.slices || op.plan.to_one()) return true;
  if (options_.stable_completion) return false;
  if (planted(Bug::kNoRetention)) {
    for (uint32_t i = 0; i < op.plan.slices; ++i) set_dropped(op, i);
    return true;
  }
  // In a large ring most of an op may be unstable when it is final. To copy until the room is full
  // again, whenever a few slices have become stable, would take far longer than the op did.
  const uint64_t unstable = op.plan.slices - op.slices_dropped;
  if (op.no_room && unstable > op.no_room->found + copies_dropped_ - op.no_room->dropped) {
    return false;
  }
  std::vector<uint32_t> fresh;
  for (uint32_t i = 0; i < op.plan.slices; ++i) {
    SliceProgress& slice = op.slices[i];
    if (slice.state != SliceState::kHeld || slice.kept) continue;
    slice.kept = actions_->keep(op, i);
    if (!slice.kept) {
      for (const uint32_t back : fresh) {
        actions_->drop(*op.slices[back].kept);
        op.slices[back].kept.reset();
      }
      op.no_room = {fresh.size(), copies_dropped_};
      return false;
    }
    fresh.push_back(i);
  }
  for (const uint32_t slice : fresh) journal_->kept(op, slice);
  counters_.slices_kept += fresh.size();
  return true;
}

// Something was dropped, or became stable: what waited for that may complete.
void JobEngine::retry_waiting() {
  const std::set<OpKey> waiting = waiting_;
  for (const OpKey& key : waiting) {
    const auto it = ops_.find(key);
    if (it != ops_.end()) complete_if_final(*it->second);
  }
}

// T2.
void JobEngine::set_dropped(Op& op, uint32_t slice) {
  SliceProgress& progress = op.slices[slice];
  if (progress.state != SliceState::kHeld) return;
  progress.state = SliceState::kDropped;
  ++op.slices_dropped;
  journal_->dropped(op, slice);
  if (!progress.kept) return;
  actions_->drop(*progress.kept);
  progress.kept.reset();
  ++copies_dropped_;
}

// Final where it is wanted, and known there to be.
void JobEngine::set_elsewhere(Op& op, uint32_t slice, ValueId value) {
  SliceProgress& progress = op.slices[slice];
  if (progress.state != SliceState::kUntouched) return;
  progress.state = SliceState::kDropped;
  progress.value = value;
  ++op.slices_held;
  ++op.slices_dropped;
  journal_->elsewhere(op, slice, value);
}

// Every slice that is wanted here is final, and nothing is left to be done with the others.
bool JobEngine::done_here(const Op& op) const {
  for (uint32_t i = 0; i < op.plan.slices; ++i) {
    if (op.slices[i].state != SliceState::kUntouched) continue;
    if (op.plan.wanted_here(i) || op.slices[i].next_step < steps_of(op, i).size()) return false;
  }
  return true;
}

void JobEngine::forget_if_dropped(const OpKey& key) {
  const auto it = ops_.find(key);
  if (it == ops_.end()) return;
  Op& op = *it->second;
  if (op.state != OpState::kCompleted) return;
  if (op.plan.slices == 0 ? !op.everywhere : op.slices_dropped < op.plan.slices) return;
  forget(op);
}

uint32_t JobEngine::last_member(const Op& op, uint32_t slice) const {
  const SliceProgress& progress = op.slices[slice];
  return progress.route == Route::kHand ? op.plan.last_from(progress.holder)
                                        : op.plan.last_of(slice);
}

// D5: we are the last receiver of this slice.
void JobEngine::say_stable(Op& op, uint32_t slice) {
  set_dropped(op, slice);
  if (members() == 1) return;
  stable_.push_back({op.key, slice});
}

// T4: each slice of each op by itself.
void JobEngine::tell_stable() {
  if (stable_.empty() || failure_) return;
  std::swap(stable_, telling_);
  stable_.clear();
  std::sort(telling_.begin(), telling_.end());
  Frame f;
  bool any = false;
  for (const auto& [key, slice] : telling_) {
    if (planted(Bug::kPrefixAcks) &&
        std::any_of(ops_.begin(), ops_.end(),
                    [&key = key](const auto& e) { return e.first < key && e.second->open(); })) {
      stable_.push_back({key, slice});
      continue;
    }
    const uint32_t first = slice / kStableSlices * kStableSlices;
    if (any && (key != f.key || first != f.stable.first)) {
      actions_->send(successor(), f);
      any = false;
    }
    if (!any) f = frame(FrameType::kStable, key);
    f.stable.first = first;
    f.stable.bits[(slice - first) / 64] |= uint64_t{1} << (slice % 64);
    any = true;
  }
  if (any) actions_->send(successor(), f);
}

void JobEngine::on_stable(uint32_t from, const Frame& f) {
  if (from != predecessor() || members() == 1) {
    return protocol_fault(from, "STABLE from a node that is not the predecessor");
  }
  const auto it = ops_.find(f.key);
  if (it == ops_.end()) {
    if (ended_keys_.contains(f.key)) {
      ++counters_.frames_repeated;
      return;
    }
    return protocol_fault(from, "STABLE for " + describe(f.key) + ", which never ended here");
  }
  Op& op = *it->second;
  if (f.stable.kind == StableKind::kConfirm) {
    on_confirm(op, from, f);
  } else if (f.stable.bits == decltype(f.stable.bits){}) {
    on_everywhere(op, from);
  } else {
    on_stable_slices(op, from, f.stable);
    retry_waiting();
  }
}

void JobEngine::on_confirm(Op& op, uint32_t from, const Frame& f) {
  const bool confirms = op.plan.slices == 0 || op.plan.to_one() || rises(op);
  if (!confirms || !op.ready_here()) {
    return protocol_fault(from, "a confirmation of " + describe(f.key) + " out of turn");
  }
  if (op.confirmed) {
    ++counters_.frames_repeated;
    return;
  }
  op.confirmed = true;
  if (!op.open()) {
    pass_confirm(op);
    return forget_if_dropped(f.key);
  }
  if (op.plan.slices == 0) op.outcome = {view_.epoch, static_cast<uint32_t>(f.stable.bits[0])};
  complete_if_final(op);  // passes it on
}

void JobEngine::on_everywhere(Op& op, uint32_t from) {
  const OpKey key = op.key;  // outlives it
  const bool decided = op.plan.slices == 0
                           ? op.outcome.ranks != 0
                           : (op.plan.to_one() || rises(op)) && op.slices_held == op.plan.slices;
  if (!decided) {
    return protocol_fault(from, "STABLE for " + describe(key) + ", which is not decided here");
  }
  if (op.everywhere) {
    ++counters_.frames_repeated;
    return;
  }
  op.everywhere = true;
  if (rises(op)) set_dropped(op, 0);
  pass_stable(op);
  complete_if_final(op);
  forget_if_dropped(key);
}

void JobEngine::on_stable_slices(Op& op, uint32_t from, const StableBody& stable) {
  const OpKey key = op.key;  // outlives it
  for (uint32_t i = 0; i < kStableSlices; ++i) {
    if ((stable.bits[i / 64] >> (i % 64) & 1) == 0) continue;
    const uint32_t slice = stable.first + i;
    const bool known = slice < op.plan.slices;
    const bool elsewhere = known && !op.plan.wanted_here(slice) && op.ready_here() &&
                           op.slices[slice].next_step == steps_of(op, slice).size();
    if (!known || (op.slices[slice].state == SliceState::kUntouched && !elsewhere)) {
      return protocol_fault(from, "STABLE for slice " + std::to_string(slice) + " of " +
                                      describe(key) + ", which is not final here");
    }
    if (op.slices[slice].state == SliceState::kDropped) continue;  // repeated
    if (elsewhere) {
      set_elsewhere(op, slice, {view_.epoch, op.plan.contributions_of(op.signature->ranks)});
    } else {
      set_dropped(op, slice);
    }
    if (successor() == last_member(op, slice)) continue;
    stable_.push_back({key, slice});
  }
  if (op.plan.to_one()) complete_if_final(op);
  forget_if_dropped(key);
}

// Of an op without slices, or one that goes along a tree, nothing goes round and shows who has it.
// So a confirmation goes round in its place: from the first member, each passes it on when the op
// is decided there, and the last one knows that it is everywhere.
void JobEngine::pass_confirm(Op& op) {
  if (me_ != 0 && !op.confirmed) return;
  op.passed_confirm = true;
  if (me_ + 1 == members()) {
    op.everywhere = true;
    if (rises(op)) set_dropped(op, 0);
    return pass_stable(op);
  }
  Frame f = frame(FrameType::kStable, op.key);
  f.stable.kind = StableKind::kConfirm;
  f.stable.bits[0] = op.outcome.ranks;
  actions_->send(successor(), f);
}

// On to the last but one.
void JobEngine::pass_stable(Op& op) {
  if (members() == 1 || me_ + 2 == members()) return;
  actions_->send(successor(), frame(FrameType::kStable, op.key));
}

}  // namespace gradring::core
