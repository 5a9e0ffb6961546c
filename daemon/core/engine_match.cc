// Op matching: submissions meet by key, without any round of agreement. See docs/architecture.md,
// rule D1.

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"
#include "daemon/core/seats.h"
#include "daemon/core/titles.h"
#include "proto/gone_back.h"

namespace gradring::core {

namespace {

// Of ops without a name, of join points and of joins.
constexpr std::array<uint64_t, 3> kUnnamed = {0, OpKey::kJoinSpace, OpKey::kNoMoreSpace};

}  // namespace

Op& JobEngine::op_of(const OpKey& key) {
  std::unique_ptr<Op>& op = ops_[key];
  if (!op) {
    op = std::make_unique<Op>();
    ++open_;
    op->key = key;
    names_.give({}, 0, op.get());  // our ranks may be those who do not submit it
    begin_ready(*op);
    op->expected = view_.size;
    if (const auto carried = carried_.find(key); carried != carried_.end()) {
      op->expected = carried->second.expected;
      op->root_node = carried->second.root_node;
      carried_.erase(carried);
    }
  }
  if (op->locals.size() < locals_.size()) op->locals.resize(locals_.size());
  return *op;
}

uint32_t JobEngine::locals_here(const Op& op) const {
  return static_cast<uint32_t>(std::count_if(op.locals.begin(), op.locals.end(),
                                             [](const auto& local) { return local.has_value(); }));
}

uint32_t JobEngine::contributions_here(const Op& op) const {
  return static_cast<uint32_t>(
      std::count_if(op.locals.begin(), op.locals.end(),
                    [](const auto& local) { return local && local->counts; }));
}

// What a rank that is dead submitted before still counts; what it did not is not waited for once
// the view is without it.
bool JobEngine::all_local(const Op& op) const {
  for (size_t i = 0; i < locals_.size(); ++i) {
    if (!locals_[i].member) continue;
    if (i >= op.locals.size() || !op.locals[i] || !op.locals[i]->counts) return false;
  }
  return true;
}

// The op of which this very submission is a part already.
Op* JobEngine::submitted_as(uint32_t index, const Submission& submission) const {
  OpKey key = submission.key;
  if (submission.signature.collective == Collective::kJoinPoint) {
    key = {OpKey::kJoinSpace, locals_[index].join_points - 1};
  }
  const auto it = ops_.find(key);
  if (it == ops_.end() || index >= it->second->locals.size()) return nullptr;
  const auto& known = it->second->locals[index];
  return known && known->ticket == submission.ticket ? it->second.get() : nullptr;
}

Status JobEngine::submit(const Submission& submission, Time now) {
  const uint32_t index = local_index(submission.rank);
  Local& local = locals_[index];
  OpKey key = submission.key;
  now_ = now;
  if (local.left) {
    return {Code::kAborted, "rank " + std::to_string(submission.rank) + " has left the job"};
  }
  const bool join_point = submission.signature.collective == Collective::kJoinPoint;
  if (Op* const op = submitted_as(index, submission)) {  // from before a restart
    if (op->state == OpState::kFailed) {
      actions_->complete(submission.rank, submission.ticket,
                         named(*op, failed_outcome(op->failure)));
    }
    return {};
  }
  if (join_point) key = {OpKey::kJoinSpace, local.join_points};
  if (!join_point && key.space == OpKey::kJoinSpace) {
    return {Code::kInvalidArgument, "this key is that of join points; give the op another name"};
  }
  if (Status odd = check_join(submission, local); !odd.ok()) return odd;
  // Where a job grows the keys begin anew: nothing may be open but the join point.
  const auto here = ops_.find({OpKey::kJoinSpace, local.join_points - 1});
  if (local.join_points > 0 && here != ops_.end() && here->second->open()) {
    return {Code::kInvalidArgument, "rank " + std::to_string(submission.rank) +
                                        " is at a join point; wait for its end first"};
  }
  const auto known = ops_.find(key);
  const bool failed_already = known != ops_.end() && known->second->state == OpState::kFailed;
  std::optional<Failure> over = failure_;
  if (!over && view_.closed && !failed_already && !planted(Bug::kLateSubmissionNotFailed)) {
    over = view_.closed;
  }
  if (over) {
    actions_->complete(submission.rank, submission.ticket, failed_outcome(*over));
    return {};
  }
  const auto twice = [&] {
    return Status(Code::kInvalidArgument, "rank " + std::to_string(submission.rank) +
                                              " submitted " + describe(key) + " twice");
  };
  if (ended_keys_.contains(key)) return twice();
  if (submission.signature.collective == Collective::kBroadcast && !failed_already &&
      !view_.has(submission.signature.root) &&
      (known == ops_.end() || known->second->root_node.empty()) && carried_.count(key) == 0) {
    return {Code::kInvalidArgument,
            "broadcast from rank " + std::to_string(submission.signature.root) +
                ", which is not among the job's " + std::to_string(view_.size) + " ranks"};
  }
  const Op* const there = known == ops_.end() ? nullptr : known->second.get();
  if (Status odd = check_seat(submission, there); !odd.ok() && !failed_already) return odd;
  if (ended_keys_.intervals() - ended_keys_.spaces() >= options_.open_ops_per_rank_max) {
    return {Code::kResourceExhausted,
            "the job passed over too many op keys; sequence numbers must count up by one"};
  }
  if (local.open >= options_.open_ops_per_rank_max) {
    return {Code::kResourceExhausted,
            "rank " + std::to_string(submission.rank) + " has " + std::to_string(local.open) +
                " ops open that other ranks have not submitted; wait for some first"};
  }
  if (std::find(kUnnamed.begin(), kUnnamed.end(), key.space) == kUnnamed.end() &&
      !ended_keys_.knows_space(key.space) &&
      ended_keys_.spaces() >= options_.names_max + kUnnamed.size()) {
    return {Code::kResourceExhausted,
            "the job uses more than " + std::to_string(options_.names_max) + " op names"};
  }
  Op& op = op_of(key);
  if (op.locals[index]) return twice();

  op.locals[index] = submission;
  op.locals[index]->key = key;
  op.locals[index]->input_here = 0;
  input_came(submission.rank, key, submission.input_here);
  ++local.open;
  ++local.submitted;
  if (join_point) ++local.join_points;
  if (!op.since) op.since = now;
  arrived(op, index, 0);
  names_.give(submission.name, options_.names_max, &op);
  take_seats(op, submission.signature);
  journal_->submitted(op, *op.locals[index], record_of(local));
  if (op.state == OpState::kFailed) {
    --local.open;
    actions_->complete(submission.rank, submission.ticket, named(op, failed_outcome(op.failure)));
    if (all_local(op)) forget(op);
    retry_waiting();  // a join that has all but this
    return {};
  }
  // While frozen nothing is told to anybody; adopt() looks at it again.
  if (!frozen_ || planted(Bug::kFailedAfterReport)) {
    meet(op, submission.rank, submission.signature);
    if (const auto it = ops_.find(key); it != ops_.end()) ask_joined(*it->second);
  }
  join(local, key, now);
  return {};
}

// A rank, ours or the spokesman of another node, has submitted the op with this signature.
void JobEngine::meet(Op& op, uint32_t rank, const Signature& signature) {
  if (!op.signature) {
    op.signature = signature;
    op.signed_by = rank;
  } else if (*op.signature != signature) {
    return mismatch(op, {op.signed_by, rank, *op.signature, signature});
  }
  // Other nodes tell the digest of unequal blocks alone; ours know them.
  if (signature.blocks.known()) op.signature->blocks = signature.blocks;
  if (const auto wrong = wrong_ranks(op, rank, signature, view_)) return mismatch(op, *wrong);
  check_absent(op);
  if (all_local(op) && locals_here(op) > 0 && !op.ready_here()) {
    say_ready(op);
  } else {
    check_ready(op);
  }
}

// Behind all that are as urgent, and before what is less so: if that has begun, its next slice
// waits until this op has none left to start.
void JobEngine::line_up(Op& op) {
  op.priority = std::numeric_limits<int32_t>::min();
  for (const auto& local : op.locals) {
    if (local) op.priority = std::max(op.priority, local->priority);
  }
  starting_.add(op);
}

// No slice of the op has moved anywhere: a slice starts only when all members said READY with one
// and the same signature.
void JobEngine::mismatch(Op& op, const MismatchBody& body, std::optional<uint32_t> from) {
  if (moved(op)) {
    const uint32_t blamed = view_.has(body.rank_b) ? view_.host_of(body.rank_b) : me_;
    return protocol_fault(blamed,
                          "a second signature for " + title(op) + ", of which slices have moved");
  }
  const auto side = [this, &op](uint32_t rank, const Signature& signature) {
    if (rank == kNoRank) {
      // Whoever counted wrong is told what came between: the rank that was lost is to blame.
      const std::string why = view_.explanation.empty() ? "" : " (" + view_.explanation + ")";
      return "the job has " + std::to_string(signature.ranks) + " ranks" + why;
    }
    std::string who = "rank " + std::to_string(rank);
    if (view_.has(rank)) {
      who += " (node " + view_.members[view_.host_of(rank)].node + ", pid " +
             std::to_string(view_.info_of(rank).pid) + ")";
    }
    if (signature == gone_back()) return who + " has gone back to an earlier step";
    // At a join point, whose own signature says no more than that it has one of these reasons.
    const bool joined = signature.collective == Collective::kJoin;
    if (joined && op.key.space == OpKey::kJoinSpace) {
      return who + " has gone back to an earlier step, or joined as it has no more data";
    }
    return who + " submitted " + describe(signature);
  };
  Frame f = frame(FrameType::kMismatch, op.key);
  f.mismatch = body;
  if (tree_) {
    send_to_neighbours(f, from);
  } else if (!from) {
    send_to_others(f);
  }
  fail_op(op,
          {Cause::kMismatch, blame_of(body.rank_b, title(op) + ": " + side(body.rank_a, body.a) +
                                                       ", but " + side(body.rank_b, body.b))});
}

void JobEngine::on_mismatch(uint32_t from, const Frame& f) {
  if (ended_keys_.contains(f.key)) {
    ++counters_.frames_repeated;
    return;
  }
  Op& op = op_of(f.key);
  if (op.state == OpState::kFailed) {
    ++counters_.frames_repeated;
    return;
  }
  if (moved(op)) {
    return protocol_fault(from,
                          "a second signature for " + title(op) + ", of which slices have moved");
  }
  mismatch(op, f.mismatch, from);
  if (const auto it = ops_.find(f.key); it != ops_.end()) ask_joined(*it->second);
}

}  // namespace gradring::core
