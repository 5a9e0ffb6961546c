// The end of one epoch and the beginning of the next: rules V2, V6, V8, V10.

#include <algorithm>
#include <utility>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"
#include "daemon/core/seats.h"
#include "proto/check.h"

namespace gradring::core {

Report JobEngine::freeze() {
  frozen_ = true;
  if (!planted(Bug::kDataAfterReport)) {
    for (Slot& slot : slots_) slot.op = nullptr;  // what is still arriving is let go when it lands
    for (const uint32_t slot : landed_) receive_slots_.give_back(slot);
    for (const uint32_t slot : forward_) receive_slots_.give_back(slot);
    landed_.clear();
    forward_.clear();
    end_sending();
    end_eager();
  }
  give_up_unfinished();
  stable_.clear();  // these die with their epoch
  Report report;
  report.node = view_.members[me_].node;
  report.ended = ended_keys_;
  if (!planted(Bug::kFailedNotReported)) report.failed = failed_;
  report.condemned = condemned_;
  for (const auto& [key, op] : ops_) {
    if (op->state == OpState::kFailed) continue;
    if (op->open() && locals_here(*op) == 0) continue;  // known by a READY only
    report.ops.push_back(report_of(*op));
  }
  return report;
}

OpReport JobEngine::report_of(const Op& op) const {
  OpReport r;
  r.key = op.key;
  r.name = op.name;
  r.signature = op.signature;
  r.completed = op.state == OpState::kCompleted;
  r.expected = op.expected;
  if (r.completed || all_local(op)) r.contributions = contributions_here(op);
  for (const auto& local : op.locals) {
    if (!local) continue;
    if (!r.signature) r.signature = local->signature;
    r.root_here =
        r.root_here || (local->counts && local->signature.collective == Collective::kBroadcast &&
                        local->rank == local->signature.root);
  }
  r.outcome = op.outcome;
  if (op.slices.empty()) return r;
  r.slice_bytes = op.plan.slice_bytes;
  for (const SliceProgress& slice : op.slices) {
    const ValueId value = slice.state == SliceState::kUntouched ? ValueId{} : slice.value;
    if (!r.slices.empty() && r.slices.back().state == slice.state &&
        r.slices.back().value == value) {
      ++r.slices.back().count;
    } else {
      r.slices.push_back({1, slice.state, value});
    }
  }
  return r;
}

void JobEngine::adopt(const Proposal& proposal) {
  if (failure_) return;
  enter(proposal);
  if (!view_.closed) take_back_joins();  // else nobody comes to a join point any more
  std::vector<OpKey> unknown;
  for (const auto& [key, op] : ops_) {
    begin_anew(*op);
    if (op->open() && locals_here(*op) == 0) unknown.push_back(key);  // their READY comes anew
  }
  for (const OpKey& key : unknown) {
    ops_.erase(key);
    --open_;
  }
  for (const OpFate& fate : proposal.ops.all()) apply(fate);
  if (failure_requested_) return;
  std::vector<OpKey> keys;
  for (const auto& [key, op] : ops_) keys.push_back(key);
  for (const OpKey& key : keys) {
    const auto it = ops_.find(key);
    if (it == ops_.end()) continue;
    // The last rank that was to be told may be gone.
    if (it->second->state == OpState::kFailed && all_local(*it->second)) {
      forget(*it->second);
      continue;
    }
    if (!it->second->open()) continue;
    if (view_.closed && !it->second->spared) {
      fail_op(*it->second, *view_.closed);
    } else {
      go_on(*it->second);
    }
  }
  for (const OpKey& key : keys) {
    if (const auto it = ops_.find(key); it != ops_.end()) ask_joined(*it->second);
  }
  retry_waiting();
  journal_->begin(record());
  tell_credits();
}

// The view, and all that is counted by its members.
void JobEngine::enter(const Proposal& proposal) {
  const std::string self = view_.members[me_].node;
  const Tuning before = view_.tuning;
  view_ = proposal.view;
  if (planted(Bug::kTableOfBefore) && me_ == 0) view_.tuning = before;
  const auto me = view_.index_of(self);
  GRADRING_CHECK(me, "only a member adopts a view");
  me_ = *me;
  plant_tree();
  places_ = places_of(view_);
  frozen_ = false;
  grows_ = false;
  gone_.assign(members(), std::nullopt);  // all of them have reported, so they came back
  for (Local& local : locals_) {
    local.member = false;
    local.told = false;
  }
  for (const RankInfo& info : view_.members[me_].ranks) {
    auto known = std::find_if(locals_.begin(), locals_.end(),
                              [&info](const Local& local) { return local.rank == info.rank; });
    if (known == locals_.end()) {
      locals_.emplace_back();
      known = std::prev(locals_.end());
      known->rank = info.rank;
    }
    if (info.since == view_.epoch) begin_anew(*known);
    known->member = true;
  }
  carried_.clear();
  starting_.clear();
  handing_.clear();
  credits_ = SendCredits(options_.slots, 0);
  credits_.limit(window_);
  receive_slots_.begin_epoch();
  credits_told_ = confirmed_told_ = 0;
  end_sending();
  end_eager();
  condemned_.clear();
  digests_.clear();
  if (view_.grown != view_.epoch) return;
  // New ranks begin to count where they come in, and so does everybody. All ops before the join
  // point are complete everywhere, or it would not have been reached.
  ended_keys_ = {};
  failed_.clear();
  failed_order_.clear();
  for (const auto& [key, op] : ops_) {
    for (const SliceProgress& slice : op->slices) {
      if (slice.kept) actions_->drop(*slice.kept);
    }
  }
  std::erase_if(ops_, [this](const auto& entry) {
    const bool open = entry.second->open();
    if (open && locals_here(*entry.second) > 0) return false;
    open_ -= open ? 1 : 0;  // known by a READY only
    return true;
  });
  failed_open_ = 0;
  for (Local& local : locals_) local.join_points = 0;
  GRADRING_CHECK(ops_.size() <= 1, "nothing but a join point is open where a job grows");
  if (ops_.empty()) return;
  auto join_point = ops_.extract(ops_.begin());
  join_point.key() = {OpKey::kJoinSpace, 0};
  Op& op = *join_point.mapped();
  op.key = join_point.key();
  op.expected = view_.size;
  for (size_t i = 0; i < op.locals.size(); ++i) {
    if (!op.locals[i]) continue;
    op.locals[i]->key = op.key;
    locals_[i].join_points = 1;
  }
  ops_.insert(std::move(join_point));
}

void JobEngine::plant_tree() {
  const bool large = members() > options_.ready_tree_above;
  tree_ = large ? ReadyTree(members(), me_, options_.ready_tree_arity) : ReadyTree();
  ranks_before_.clear();
  if (!tree_) return;
  ranks_before_.push_back(0);
  for (const Member& member : view_.members) {
    ranks_before_.push_back(ranks_before_.back() + static_cast<uint32_t>(member.ranks.size()));
  }
}

// A rank that comes in is a new process, whatever one of the same number has left open.
void JobEngine::begin_anew(Local& local) {
  const auto index = static_cast<size_t>(&local - locals_.data());
  for (const auto& [key, op] : ops_) {
    if (index >= op->locals.size() || !op->locals[index]) continue;
    if (op->open()) {
      actions_->complete(local.rank, op->locals[index]->ticket,
                         failed_outcome(local.left.value_or(Failure{Cause::kTrainerDied, {}})));
    }
    op->locals[index].reset();
  }
  const uint32_t rank = local.rank;
  local = {};
  local.rank = rank;
}

void JobEngine::begin_anew(Op& op) {
  const bool looked_at = op.eager.looked_at;
  op.eager = {};
  op.eager.looked_at = looked_at;
  begin_ready(op);
  op.confirmed = false;
  op.passed_confirm = false;
  if (op.open()) op.everywhere = false;
  op.spared = false;
  op.locals.resize(locals_.size());
  for (SliceProgress& slice : op.slices) {
    slice.next_step = 0;
    slice.arriving = false;
  }
  if (!op.open()) return;
  op.outcome = {};
  if (op.plan.slices == 0) waiting_.erase(op.key);
  if (op.slices_held == 0) {
    // What an earlier view said of it counts no more: its root's node may be gone since. This one
    // says it again, unless the op was submitted too late to be reported.
    op.root_node.clear();
    op.slice_bytes = 0;
    op.slices.clear();
    op.plan = {};
  }
  set_state(op, OpState::kGathering);
  op.expected = view_.size;  // unless some member reported it, and it has a fate
  op.signature.reset();
  op.signed_by = kNoRank;
  for (const auto& local : op.locals) {
    if (!local || op.signature) continue;
    op.signature = local->signature;
    op.signed_by = local->rank;
  }
}

void JobEngine::apply(const OpFate& fate) {
  // Where a job grew, the keys of the epoch before mean nothing any more.
  if (view_.grown == view_.epoch) return;
  const auto it = ops_.find(fate.key);
  if (it == ops_.end()) {
    if (ended_keys_.contains(fate.key)) return;  // here it is over
    if (fate.kind == OpFate::Kind::kFail) return fail_op(op_of(fate.key), fate.failure);
    carried_[fate.key] = fate;
    return;
  }
  Op& op = *it->second;
  if (op.state == OpState::kFailed) return;
  switch (fate.kind) {
    case OpFate::Kind::kFresh:
      op.expected = fate.expected;
      op.root_node = fate.root_node;
      op.spared = fate.spared;
      op.slice_bytes = 0;
      op.slices.clear();
      op.plan = {};
      return;
    case OpFate::Kind::kRecover:
      return recover(op, fate);
    case OpFate::Kind::kComplete:
      // Every member of this view does so, and so it is known to all of them.
      op.everywhere = true;
      op.outcome = fate.outcome;
      if (op.open()) {
        Outcome outcome;
        outcome.epoch = fate.outcome.epoch;
        outcome.ranks_min = outcome.ranks_max = fate.outcome.ranks;
        op.expected = fate.expected;
        settle(op, &outcome);
        tell_locals(op, outcome);
        ++counters_.ops_completed;
      }
      return forget(op);
    case OpFate::Kind::kFail:
      if (!op.open()) return contradicted(op, "to fail although it ended well here");
      return fail_op(op, fate.failure);
  }
}

// The view was agreed on, so no member is to blame; but nothing can be done with it here.
void JobEngine::contradicted(const Op& op, const std::string& what) {
  Failure failure{Cause::kProtocol, {}};
  failure.blame.node = view_.members[me_].node;
  failure.blame.evidence = "the new view wants " + title(op) + " " + what;
  request_failure(failure);
}

void JobEngine::recover(Op& op, const OpFate& fate) {
  uint64_t count = 0;
  bool sound = op.signature.has_value();
  for (const SliceFate& run : fate.slices) {
    count += run.count;
    sound = sound && (run.route != Route::kHand || run.holder < members());
  }
  const uint64_t cut = fate.slice_bytes;
  sound = sound && cut != 0 && count == slices_for(*op.signature, cut) &&
          (op.seats.size() == op.signature->ranks) &&
          (op.slices_held == 0 || cut == op.plan.slice_bytes) &&
          (members() == 1 || cut <= options_.plan.slice_bytes_max);
  if (!sound) {
    return contradicted(op, "to go on in " + std::to_string(count) + " slices of " +
                                std::to_string(cut) + " bytes");
  }
  op.expected = fate.expected;
  op.root_node = fate.root_node;
  op.spared = fate.spared;
  op.slice_bytes = fate.slice_bytes;
  plan(op);
  bool hands = false;
  uint32_t slice = 0;
  for (const SliceFate& run : fate.slices) {
    for (uint32_t i = 0; i < run.count; ++i, ++slice) {
      SliceProgress& progress = op.slices[slice];
      progress.route = run.route;
      progress.holder = run.holder;
      if (progress.state == SliceState::kUntouched) progress.value = run.value;
      if (run.route == Route::kHand) hands = hands || run.holder == me_;
      // T2b: everybody has it. STABLE died with its epoch, so nothing else would ever say so.
      if (run.route == Route::kNone && !planted(Bug::kCopiesKeptOnAll)) set_dropped(op, slice);
      if (run.route != Route::kNone || progress.state != SliceState::kUntouched) continue;
      if (op.plan.wanted_here(slice)) return contradicted(op, "to be held where it is not");
      set_elsewhere(op, slice, run.value);
    }
  }
  op.everywhere = op.plan.to_one() && op.slices_dropped == op.plan.slices;
  if (hands) handing_.push_back(&op);
  if (planted(Bug::kOkAtCommit) && op.open()) {
    Outcome outcome;
    outcome.epoch = view_.epoch;
    outcome.ranks_min = outcome.ranks_max = op.expected;
    tell_locals(op, outcome);
    set_state(op, OpState::kCompleted);
    ended_keys_.insert(op.key);
  }
  if (op.state == OpState::kCompleted) forget_if_dropped(op.key);
}

// An op that is open here, in the new epoch.
void JobEngine::go_on(Op& op) {
  for (const auto& local : op.locals) {
    if (!local || local->signature == *op.signature) continue;
    return mismatch(op, {op.signed_by, local->rank, *op.signature, local->signature});
  }
  // Likewise, and it was submitted while we were frozen: then the view did not speak of it.
  take_seats(op, *op.signature);
  if (const auto wrong = wrong_ranks(op, op.signed_by, *op.signature, view_)) {
    return mismatch(op, *wrong);
  }
  // Submitted while we were frozen, and its root is gone. Had any member reported the root's input,
  // the op would have a fate.
  if (op.signature->collective == Collective::kBroadcast && op.root_node.empty() &&
      op.slice_bytes == 0 && !view_.has(op.signature->root)) {
    Failure failure{Cause::kRootLost, {}};
    failure.blame.rank = op.signature->root;
    failure.blame.evidence = "is no longer in the job";
    return fail_op(op, failure);
  }
  check_absent(op);
  if (!all_local(op) || locals_here(op) == 0) return;
  if (op.computed()) return complete_if_final(op);
  // Submitted while the view changed, so that no report has it: all who did so find the same.
  if (op.signature->collective == Collective::kBroadcast && op.root_node.empty() &&
      !view_.has(op.signature->root)) {
    return fail_op(
        op, {Cause::kRootLost, blame_of(op.signature->root, "nobody has its input any more")});
  }
  say_ready(op);
}

}  // namespace gradring::core
