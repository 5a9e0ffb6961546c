#include "daemon/core/job_engine.h"

#include <algorithm>
#include <utility>

#include "proto/check.h"

namespace gradring::core {

JobEngine::JobEngine(View view, uint32_t me, const EngineOptions& options, EngineActions* actions)
    : view_(std::move(view)),
      me_(me),
      options_(options),
      actions_(actions),
      credits_(options.slots),
      receive_slots_(options.slots),
      slots_(options.slots) {
  GRADRING_CHECK(
      options.slots >= 2 && options.start_buffers >= 1 && options.plan.slice_bytes_max >= 64,
      "a lane needs two slots, a start buffer and slices of a cache line");
  const size_t locals = view_.members[me_].ranks.size();
  submitted_.assign(locals, 0);
  open_per_rank_.assign(locals, 0);
  left_.assign(locals, false);
  gone_.resize(members());
  ranks_before_.push_back(0);
  for (const Member& member : view_.members) {
    ranks_before_.push_back(ranks_before_.back() + static_cast<uint32_t>(member.ranks.size()));
  }
  for (uint32_t i = options.start_buffers; i > 0; --i) free_starts_.push_back(i - 1);
}

uint32_t JobEngine::local_index(uint32_t rank) const {
  const std::vector<RankInfo>& ranks = view_.members[me_].ranks;
  const auto it = std::find_if(ranks.begin(), ranks.end(),
                               [rank](const RankInfo& info) { return info.rank == rank; });
  GRADRING_CHECK(it != ranks.end(), "a rank of another node");
  return static_cast<uint32_t>(it - ranks.begin());
}

Frame JobEngine::frame(FrameType type, const OpKey& key) const {
  Frame f;
  f.type = type;
  f.job = view_.incarnation;
  f.epoch = view_.epoch;
  f.key = key;
  return f;
}

void JobEngine::send_to_others(const Frame& f) {
  for (uint32_t i = 0; i < members(); ++i) {
    if (i != me_) actions_->send(i, f);
  }
}

Outcome JobEngine::failed_outcome(const Failure& failure) const {
  Outcome outcome;
  outcome.verdict = Verdict::kFailed;
  outcome.failure = failure;
  outcome.epoch = view_.epoch;
  return outcome;
}

Blame JobEngine::blame_of(uint32_t rank, std::string evidence) const {
  Blame blame;
  blame.rank = rank;
  blame.node = view_.members[view_.host_of(rank)].node;
  blame.pid = view_.info_of(rank).pid;
  blame.evidence = std::move(evidence);
  return blame;
}

void JobEngine::request_failure(const Failure& failure) {
  if (failure_requested_ || failure_) return;
  failure_requested_ = true;
  actions_->fail_job(failure);
}

void JobEngine::protocol_fault(uint32_t from, const std::string& what) {
  Failure failure{Cause::kProtocol, {}};
  failure.blame.node = view_.members[from].node;
  failure.blame.evidence = what;
  request_failure(failure);
}

// Every local submission of the op ends with `outcome`.
void JobEngine::tell_locals(Op& op, const Outcome& outcome) {
  for (size_t i = 0; i < op.locals.size(); ++i) {
    if (!op.locals[i]) continue;
    --open_per_rank_[i];
    actions_->complete(op.locals[i]->rank, op.locals[i]->ticket, outcome);
  }
}

void JobEngine::forget(Op& op) {
  op.state = OpState::kDone;
  ended_keys_.insert(op.key);
  std::erase(starting_, &op);
  for (Slot& slot : slots_) {
    if (slot.op == &op) slot.op = nullptr;
  }
  ops_.erase(op.key);  // destroys op
}

void JobEngine::fail(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  const Outcome outcome = failed_outcome(failure);
  for (auto& [key, op] : ops_) {
    if (op->state != OpState::kFailed) tell_locals(*op, outcome);
  }
  starting_.clear();
  for (Slot& slot : slots_) slot.op = nullptr;
  for (const uint32_t slot : landed_) receive_slots_.give_back(slot);
  for (const uint32_t slot : forward_) receive_slots_.give_back(slot);
  landed_.clear();
  forward_.clear();
  ops_.clear();
}

std::string JobEngine::title(const Op& op) const {
  if (op.name.empty()) return describe(op.key);
  return "op '" + op.name + "' use " + std::to_string(op.key.sequence);
}

// The node of a rank that is missing knows who it is and speaks at once; the others, who only see
// that its node is not ready, leave it the time to.
void JobEngine::tick(Time now) {
  constexpr Time kTimeToSpeak = 1 * kSecond;
  if (failure_ || failure_requested_) return;
  for (const auto& [key, op] : ops_) {
    if (op->state == OpState::kFailed || !op->signature) continue;
    if (!op->since) op->since = now;
    const Time waited = now - *op->since;
    if (waited < options_.op_deadline) continue;
    if (op->all_local() && waited < options_.op_deadline + kTimeToSpeak) continue;
    return request_failure(deadline_failure(*op));
  }
}

Failure JobEngine::deadline_failure(const Op& op) const {
  const std::string what = title(op) + " (" + describe(*op.signature) + ") was not complete " +
                           std::to_string(options_.op_deadline / kSecond) +
                           " s after its first submission; ";
  Failure failure{Cause::kDeadline, {}};
  for (size_t i = 0; i < op.locals.size(); ++i) {
    if (op.locals[i]) continue;
    failure.blame =
        blame_of(view_.members[me_].ranks[i].rank, what + "this rank never submitted it");
    return failure;
  }
  for (uint32_t i = 0; i < members(); ++i) {
    if (op.ready[i]) continue;
    failure.blame.node = view_.members[i].node;
    failure.blame.evidence = what + "this node has not said that its ranks submitted it";
    return failure;
  }
  failure.blame.node = view_.members[predecessor()].node;
  failure.blame.evidence = what + "all ranks submitted it, but slices do not arrive from this node";
  return failure;
}

bool JobEngine::drained() const {
  const bool needed = std::any_of(ops_.begin(), ops_.end(), [](const auto& entry) {
    return entry.second->locals_here > 0 && entry.second->state != OpState::kFailed;
  });
  return !needed && std::all_of(left_.begin(), left_.end(), [](bool left) { return left; }) &&
         receive_slots_.free() == options_.slots && free_starts_.size() == options_.start_buffers;
}

std::vector<OpProgress> JobEngine::progress(size_t most) const {
  std::vector<OpProgress> list;
  for (const auto& [key, op] : ops_) {
    if (list.size() == most) break;
    if (!op->signature || op->state == OpState::kFailed) continue;
    OpProgress p;
    p.key = key;
    p.name = op->name;
    p.signature = *op->signature;
    p.since = op->since.value_or(0);
    for (size_t i = 0; i < op->locals.size(); ++i) {
      if (!op->locals[i]) p.missing_ranks.push_back(view_.members[me_].ranks[i].rank);
    }
    for (uint32_t i = 0; i < members(); ++i) {
      if (i != me_ && !op->ready[i]) p.missing_members.push_back(i);
    }
    p.slices_final = op->slices_held;
    p.slices = op->plan.slices;
    list.push_back(std::move(p));
  }
  return list;
}

}  // namespace gradring::core
