// Ranks without more data: a rank that joins is asked to stand in for itself in each op of the
// others, until all ranks have joined. See docs/collectives.md, uneven data.

#include <algorithm>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"

namespace gradring::core {

// A join under another key is how a rank says that it cannot stand in.
Status JobEngine::check_join(const Submission& submission, const Local& local) const {
  const bool join = submission.signature.collective == Collective::kJoin;
  const bool of_joins = submission.key.space == OpKey::kNoMoreSpace;
  const std::string rank = "rank " + std::to_string(local.rank);
  if (!join && of_joins) {
    return {Code::kInvalidArgument, "this key is that of joins; give the op another name"};
  }
  if (join && of_joins && local.joined) {
    return {Code::kInvalidArgument, rank + " has joined already"};
  }
  if (join && !of_joins && !local.joined) {
    return {Code::kInvalidArgument, rank + " has not joined, so it can do no other's op"};
  }
  return {};
}

// `key`: of what was just submitted.
void JobEngine::join(Local& local, const OpKey& key, Time now) {
  if (key.space != OpKey::kNoMoreSpace) {
    if (!local.joined) return;
    // The others go on, and so does its join.
    const auto index = static_cast<size_t>(&local - locals_.data());
    for (auto it = ops_.lower_bound({OpKey::kNoMoreSpace, 0});
         it != ops_.end() && it->first.space == OpKey::kNoMoreSpace; ++it) {
      Op& op = *it->second;
      if (index < op.locals.size() && op.locals[index]) op.stood_in = now;
    }
    return;
  }
  const auto own = ops_.find(key);
  local.joined = own != ops_.end() && own->second->open();
  if (!local.joined || frozen_) return;
  std::vector<OpKey> keys;  // since an op may end by it
  for (const auto& [other, op] : ops_) keys.push_back(other);
  for (const OpKey& other : keys) {
    if (const auto it = ops_.find(other); it != ops_.end()) ask_joined(*it->second);
  }
}

void JobEngine::ask_joined(Op& op) {
  if (frozen_ || failure_ || op.key.space == OpKey::kNoMoreSpace) return;
  // Once all have joined nothing else is open anywhere, so what is new comes after the join, from
  // somebody who was quicker to know its end. So it is where an earlier view had the end.
  for (auto it = ops_.lower_bound({OpKey::kNoMoreSpace, 0});
       it != ops_.end() && it->first.space == OpKey::kNoMoreSpace; ++it) {
    const Op& join = *it->second;
    if (join.open() && (join.all_ready() || join.slice_bytes != 0 || moved(join))) return;
  }
  bool failed = op.state == OpState::kFailed;
  if (!failed && (!op.open() || !op.signature)) return;
  for (size_t i = 0; i < locals_.size(); ++i) {
    const Local& local = locals_[i];
    if (!local.joined || !local.member || (i < op.locals.size() && op.locals[i])) continue;
    if (op.key.space == OpKey::kJoinSpace && !failed) {
      // It has an op open, so it cannot stand there; it is asked for it, so as to count it.
      Signature joined = *op.signature;
      joined.collective = Collective::kJoin;
      mismatch(op, {op.signed_by, local.rank, *op.signature, joined});
      failed = true;
    }
    if (!op.asked.insert(local.rank).second) continue;
    actions_->stand_in(local.rank, op.key, failed ? std::nullopt : op.signature);
  }
}

// A join is that its rank waits for the others, and a rank that is gone waits no more: they would
// stand at their next join point until that join is over, which they never do.
void JobEngine::take_back_joins() {
  for (auto it = ops_.lower_bound({OpKey::kNoMoreSpace, 0});
       it != ops_.end() && it->first.space == OpKey::kNoMoreSpace; ++it) {
    Op& op = *it->second;
    const bool stands = std::ranges::any_of(op.locals, [this](const auto& submitted) {
      return submitted && locals_[local_index(submitted->rank)].member;
    });
    if (!op.open() || stands) continue;
    for (size_t i = 0; i < op.locals.size(); ++i) {
      const Local& local = locals_[i];
      if (!op.locals[i]) continue;
      actions_->complete(local.rank, op.locals[i]->ticket,
                         failed_outcome(local.left.value_or(Failure{Cause::kTrainerDied, {}})));
      op.locals[i].reset();
    }
  }
}

// Whoever says READY for a join point has nothing else open, so nothing is under way there, but for
// the join of others, who have to hear of the join point so as to fail it. So it is with a join:
// all who have joined have been asked for everything then, even what has failed.
bool JobEngine::waits_for_others(const Op& op) const {
  if (op.key.space != OpKey::kJoinSpace) {
    return op.key.space == OpKey::kNoMoreSpace && open_ + failed_open_ > 1;
  }
  const auto join = std::find_if(ops_.lower_bound({OpKey::kNoMoreSpace, 0}), ops_.end(),
                                 [](const auto& entry) { return entry.second->open(); });
  const bool elsewhere = !planted(Bug::kJoinOfOthersCounted) && join != ops_.end() &&
                         join->first.space == OpKey::kNoMoreSpace &&
                         locals_here(*join->second) == 0;
  return open_ > (elsewhere ? 2 : 1);
}

// Ranks that have joined count what they are asked for. When an op fails by the answer of one of
// them the others join, and the answers of the rest may be behind that.
bool JobEngine::waits_for_answers(const Op& op) const {
  if (op.key.space != OpKey::kNoMoreSpace) return false;
  return std::any_of(ops_.begin(), ops_.end(), [this](const auto& entry) {
    const Op& other = *entry.second;
    if (other.state != OpState::kFailed) return false;
    return std::any_of(other.asked.begin(), other.asked.end(), [&](uint32_t rank) {
      const uint32_t i = local_index(rank);
      const bool answered = i < other.locals.size() && other.locals[i];
      return locals_[i].joined && locals_[i].member && !answered;
    });
  });
}

// The last other op of this node may have ended, but for a join of others.
void JobEngine::check_alone() {
  if (open_ == 0 || open_ > 2 || frozen_ || failure_) return;
  for (const uint64_t space : {OpKey::kJoinSpace, OpKey::kNoMoreSpace}) {
    for (auto it = ops_.lower_bound({space, 0}); it != ops_.end() && it->first.space == space;
         ++it) {
      Op& op = *it->second;
      if (!op.open()) continue;
      if (op.signature && all_local(op) && locals_here(op) > 0 && !op.ready_here() &&
          !waits_for_others(op)) {
        say_ready(op);
      }
      return;
    }
  }
}

}  // namespace gradring::core
