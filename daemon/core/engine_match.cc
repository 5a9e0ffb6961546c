// Op matching: submissions meet by key, without any round of agreement, and a node says READY when
// all of its own ranks have submitted. See docs/architecture.md, rule D1.

#include <algorithm>
#include <memory>

#include "daemon/core/job_engine.h"

namespace gradring::core {

Op& JobEngine::op_of(const OpKey& key) {
  std::unique_ptr<Op>& op = ops_[key];
  if (!op) {
    op = std::make_unique<Op>();
    op->key = key;
    op->locals.resize(view_.members[me_].ranks.size());
    op->ready.assign(members(), false);
  }
  return *op;
}

Status JobEngine::submit(const Submission& submission, Time now) {
  const uint32_t index = local_index(submission.rank);
  const OpKey& key = submission.key;
  if (left_[index]) {
    return {Code::kAborted, "rank " + std::to_string(submission.rank) + " has left the job"};
  }
  if (failure_) {
    actions_->complete(submission.rank, submission.ticket, failed_outcome(*failure_));
    return {};
  }
  if (submission.signature.collective == Collective::kBroadcast &&
      submission.signature.root >= view_.size) {
    return {Code::kInvalidArgument,
            "broadcast from rank " + std::to_string(submission.signature.root) +
                ", which is outside the job's " + std::to_string(view_.size) + " ranks"};
  }
  if (ended_keys_.intervals() - ended_keys_.spaces() >= options_.open_ops_per_rank_max) {
    return {Code::kResourceExhausted,
            "the job passed over too many op keys; sequence numbers must count up by one"};
  }
  const auto twice = [&] {
    return Status(Code::kInvalidArgument, "rank " + std::to_string(submission.rank) +
                                              " submitted " + describe(key) + " twice");
  };
  if (ended_keys_.contains(key)) return twice();
  if (open_per_rank_[index] >= options_.open_ops_per_rank_max) {
    return {Code::kResourceExhausted,
            "rank " + std::to_string(submission.rank) + " has " +
                std::to_string(open_per_rank_[index]) +
                " ops open that other ranks have not submitted; wait for some first"};
  }
  if (!ended_keys_.knows_space(key.space) && ended_keys_.spaces() >= options_.names_max) {
    return {Code::kResourceExhausted,
            "the job uses more than " + std::to_string(options_.names_max) + " op names"};
  }
  Op& op = op_of(key);
  if (op.locals[index]) return twice();

  op.locals[index] = submission;
  ++op.locals_here;
  ++open_per_rank_[index];
  ++submitted_[index];
  if (!op.since) op.since = now;
  if (op.name.empty()) op.name = submission.name;
  if (op.state == OpState::kFailed) {
    --open_per_rank_[index];
    actions_->complete(submission.rank, submission.ticket, failed_outcome(op.failure));
    if (op.all_local()) forget(op);
    return {};
  }
  meet(op, submission.rank, submission.signature);
  return {};
}

// A rank, ours or the spokesman of another node, has submitted the op with this signature.
void JobEngine::meet(Op& op, uint32_t rank, const Signature& signature) {
  if (!op.signature) {
    op.signature = signature;
    op.signed_by = rank;
  } else if (*op.signature != signature) {
    return mismatch(op, {op.signed_by, rank, *op.signature, signature}, true);
  }
  check_left(op);
  if (op.all_local() && !op.ready[me_]) {
    say_ready(op);
  } else {
    check_ready(op);
  }
}

void JobEngine::say_ready(Op& op) {
  const uint32_t root = op.signature->collective == Collective::kBroadcast ? op.signature->root : 0;
  op.plan = make_plan(*op.signature, members(), me_, view_.host_of(root), options_.plan);
  op.slices.assign(op.plan.slices, {});
  op.next_start = op.plan.rotate ? me_ : op.plan.starts_here(0) ? 0 : op.plan.slices;
  op.ready[me_] = true;
  ++op.ready_count;
  Frame ready = frame(FrameType::kReady, op.key);
  ready.ready = {view_.members[me_].ranks.front().rank, *op.signature};
  send_to_others(ready);
  check_ready(op);
}

void JobEngine::check_ready(Op& op) {
  if (op.state != OpState::kGathering || !op.all_ready()) return;
  op.state = OpState::kMoving;
  if (op.next_start < op.plan.slices) starting_.push_back(&op);
  complete_if_final(op);
}

void JobEngine::on_ready(uint32_t from, const Frame& f) {
  if (ended_keys_.contains(f.key)) {
    ++counters_.frames_repeated;
    return;
  }
  if (f.ready.rank >= view_.size || view_.host_of(f.ready.rank) != from) {
    return protocol_fault(from, "READY in the name of rank " + std::to_string(f.ready.rank) +
                                    ", which is not on that node");
  }
  if (f.ready.signature.collective == Collective::kBroadcast &&
      f.ready.signature.root >= view_.size) {
    return protocol_fault(from, "READY for a broadcast from a rank outside the job");
  }
  Op& op = op_of(f.key);
  if (op.ready[from] || op.state == OpState::kFailed) {
    ++counters_.frames_repeated;
    return;
  }
  op.ready[from] = true;
  ++op.ready_count;
  meet(op, f.ready.rank, f.ready.signature);
}

// No slice of the op has moved anywhere: a slice starts only when all members said READY with one
// and the same signature.
void JobEngine::mismatch(Op& op, const MismatchBody& body, bool tell) {
  if (moved(op)) {
    return protocol_fault(view_.host_of(body.rank_b),
                          "a second signature for " + title(op) + ", of which slices have moved");
  }
  const auto side = [this](uint32_t rank, const Signature& signature) {
    return "rank " + std::to_string(rank) + " (node " + view_.members[view_.host_of(rank)].node +
           ", pid " + std::to_string(view_.info_of(rank).pid) + ") submitted " +
           describe(signature);
  };
  op.failure.cause = Cause::kMismatch;
  op.failure.blame = blame_of(body.rank_b, title(op) + ": " + side(body.rank_a, body.a) + ", but " +
                                               side(body.rank_b, body.b));
  op.state = OpState::kFailed;
  if (tell) {
    Frame f = frame(FrameType::kMismatch, op.key);
    f.mismatch = body;
    send_to_others(f);
  }
  tell_locals(op, failed_outcome(op.failure));
  if (op.all_local()) forget(op);
}

void JobEngine::on_mismatch(const Frame& f) {
  if (ended_keys_.contains(f.key)) {
    ++counters_.frames_repeated;
    return;
  }
  Op& op = op_of(f.key);
  if (op.state == OpState::kFailed) {
    ++counters_.frames_repeated;
    return;
  }
  mismatch(op, f.mismatch, false);
}

bool JobEngine::moved(const Op& op) const {
  return op.state == OpState::kMoving ||
         std::any_of(op.slices.begin(), op.slices.end(), [](const SliceProgress& progress) {
           return progress.arriving || progress.next_step > 0;
         });
}

void JobEngine::member_gone(uint32_t member, const Failure& failure) {
  gone_[member] = failure;
  for (const auto& [key, op] : ops_) check_left(*op);
}

void JobEngine::leave(uint32_t rank) {
  left_[local_index(rank)] = true;
  for (const auto& [key, op] : ops_) check_left(*op);
}

// An op that somebody waits for and that a rank which left never submitted will never be complete.
void JobEngine::check_left(const Op& op) {
  if (op.state == OpState::kFailed) return;
  for (uint32_t i = 0; i < members(); ++i) {
    if (gone_[i] && !op.ready[i]) return request_failure(*gone_[i]);
  }
  for (size_t i = 0; i < op.locals.size(); ++i) {
    if (!left_[i] || op.locals[i]) continue;
    request_failure(
        {Cause::kTrainerLeft, blame_of(view_.members[me_].ranks[i].rank,
                                       "left the job without submitting " + title(op) + " (" +
                                           describe(*op.signature) + "), which others wait for")});
  }
}

}  // namespace gradring::core
