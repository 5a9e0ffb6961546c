#include "daemon/core/job_engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/core/seats.h"
#include "daemon/core/titles.h"
#include "proto/check.h"

namespace gradring::core {

JobEngine::JobEngine(View view, uint32_t me, const EngineOptions& options, EngineActions* actions)
    : view_(std::move(view)),
      me_(me),
      options_(options),
      actions_(actions),
      credits_(options.slots, options.slots),
      window_(options.slots),
      receive_slots_(options.slots),
      slots_(options.slots),
      sent_(options.slots, options.start_buffers),
      frozen_(view_.epoch == 0) {
  GRADRING_CHECK(
      options.slots >= 2 && options.start_buffers >= 1 && options.plan.slice_bytes_max >= 64,
      "a lane needs two slots, a start buffer and slices of a cache line");
  for (const RankInfo& info : view_.members[me_].ranks) {
    locals_.emplace_back();
    locals_.back().rank = info.rank;
  }
  plant_tree();
  places_ = places_of(view_);
  gone_.resize(members());
  eager_sent_.begin_epoch(members(), me_);
  eager_received_.resize(members());
  heard_.resize(members());
  for (uint32_t i = options.start_buffers; i > 0; --i) free_starts_.push_back(i - 1);
}

uint32_t JobEngine::local_index(uint32_t rank) const {
  const auto it = std::find_if(locals_.begin(), locals_.end(),
                               [rank](const Local& local) { return local.rank == rank; });
  GRADRING_CHECK(it != locals_.end(), "a rank of another node");
  return static_cast<uint32_t>(it - locals_.begin());
}

uint64_t JobEngine::submitted(uint32_t rank) const { return locals_[local_index(rank)].submitted; }

const Op* JobEngine::find(const OpKey& key) const {
  const auto it = ops_.find(key);
  return it == ops_.end() ? nullptr : it->second.get();
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
  if (view_.has(rank)) {
    blame.node = view_.members[view_.host_of(rank)].node;
    blame.pid = view_.info_of(rank).pid;
  }
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

void JobEngine::set_state(Op& op, OpState state) {
  if (op.open()) --open_;
  if (op.state == OpState::kFailed) --failed_open_;
  op.state = state;
  if (op.open()) ++open_;
  if (op.state == OpState::kFailed) ++failed_open_;
}

// Every local submission of the op ends with `outcome`.
void JobEngine::tell_locals(Op& op, const Outcome& outcome) {
  const Outcome told = outcome.verdict == Verdict::kFailed ? named(op, outcome) : outcome;
  for (size_t i = 0; i < op.locals.size(); ++i) {
    if (!op.locals[i]) continue;
    --locals_[i].open;
    if (op.key.space == OpKey::kNoMoreSpace) locals_[i].joined = false;
    actions_->complete(op.locals[i]->rank, op.locals[i]->ticket, told);
  }
}

// The op ends FAILED, and always will have: late local ranks are told the same, and so is the next
// view (rule V9b).
void JobEngine::fail_op(Op& op, const Failure& failure) {
  constexpr size_t kFailedMax = 4096;
  op.failure = failure;
  if (failed_.emplace(op.key, failure).second) {
    failed_order_.push_back(op.key);
    if (failed_order_.size() > kFailedMax) {
      failed_.erase(failed_order_.front());
      failed_order_.pop_front();
    }
  }
  set_state(op, OpState::kFailed);
  journal_->ended(op);
  waiting_.erase(op.key);
  starting_.remove(op);
  std::erase(handing_, &op);
  let_go(op, true);
  tell_locals(op, failed_outcome(failure));
  if (all_local(op)) forget(op);
}

void JobEngine::forget(Op& op) {
  const OpKey key = op.key;  // outlives it
  set_state(op, OpState::kCompleted);
  ended_keys_.insert(key);
  journal_->forgotten(key);
  waiting_.erase(key);
  starting_.remove(op);
  std::erase(handing_, &op);
  let_go(op, true);
  for (Slot& slot : slots_) {
    if (slot.op == &op) slot.op = nullptr;
  }
  ops_.erase(key);  // destroys op
}

void JobEngine::fail(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  const Outcome outcome = failed_outcome(failure);
  for (auto& [key, op] : ops_) {
    if (op->open()) tell_locals(*op, outcome);
    for (const SliceProgress& slice : op->slices) {
      if (slice.kept) actions_->drop(*slice.kept);
    }
  }
  starting_.clear();
  handing_.clear();
  waiting_.clear();
  stable_.clear();
  for (Slot& slot : slots_) slot.op = nullptr;
  for (const uint32_t slot : landed_) receive_slots_.give_back(slot);
  for (const uint32_t slot : forward_) receive_slots_.give_back(slot);
  landed_.clear();
  forward_.clear();
  end_sending();
  end_eager();
  ops_.clear();
  open_ = failed_open_ = 0;
}

std::string JobEngine::title(const Op& op) const { return title_of(op); }

bool JobEngine::moved(const Op& op) const {
  return op.state == OpState::kMoving || op.slices_held > 0 ||
         std::any_of(op.slices.begin(), op.slices.end(), [](const SliceProgress& progress) {
           return progress.arriving || progress.next_step > 0;
         });
}

// All members find the same: from the view, the op's key and what it is alone.
PlanOptions JobEngine::plan_options(const OpKey& key, const Signature& signature) const {
  PlanOptions options = tuned(options_.plan, view_.tuning, key, signature, members());
  // A node's own sum would be rounded once more than on the way along the ring.
  const bool rounds = is_half(signature.dtype) && view_.size != members();
  if (rounds || members() > kEagerMembersMax || tree_) options.direct_members_max = 0;
  if (!tree_) options.tree_max = 0;
  return options;
}

void JobEngine::plan(Op& op) {
  const PlanOptions options = plan_options(op.key, *op.signature);
  op.plan = make_plan(*op.signature, members(), me_, seats_of(op, view_), options, op.slice_bytes,
                      &step_lists_);
  if (op.slices.size() != op.plan.slices) {
    GRADRING_CHECK(op.slices_held == 0, "an op with finals stays cut as it is");
    op.slices.assign(op.plan.slices, {});
  }
  op.next_start = op.plan.next_start(0);
  op.next_hand = 0;
}

namespace {

// Of one that was submitted while an epoch ends nobody has compared it yet.
const Signature* signature_as_known(const Op& op) {
  if (op.signature) return &*op.signature;
  for (const auto& local : op.locals) {
    if (local) return &local->signature;
  }
  return nullptr;
}

}  // namespace

void JobEngine::tick(Time now) {
  // An op that waits as long is in no hurry: that all hear of it costs less than that.
  constexpr Time kWantedAfter = 1 * kSecond;
  now_ = now;
  if (failure_ || failure_requested_) return;
  tell_done(true);
  for (const auto& [key, op] : ops_) {
    if (!op->open() || signature_as_known(*op) == nullptr) continue;
    if (!op->since) op->since = now;
    const bool late = now - *op->since >= kWantedAfter;
    if (tree_ && late && op->ready_here() && !frozen_) want(*op, speaker_of(*op));
    const Time waited = now - std::max(*op->since, op->stood_in);
    if (waited < options_.op_deadline || waited < options_.op_deadline + patience(*op)) continue;
    return request_failure(deadline_failure(*op));
  }
}

Failure JobEngine::deadline_failure(const Op& op) const {
  const std::string what = title(op) + " (" + describe(*signature_as_known(op)) +
                           ") was not complete " + std::to_string(options_.op_deadline / kSecond) +
                           " s after its first submission; ";
  Failure failure{Cause::kDeadline, {}};
  for (size_t i = 0; i < locals_.size(); ++i) {
    if (!locals_[i].member || (i < op.locals.size() && op.locals[i])) continue;
    failure.blame = blame_of(locals_[i].rank, what + "this rank never submitted it");
    return failure;
  }
  for (const auto& local : op.locals) {
    if (!local || local->input_here == Submission::kAllHere) continue;
    const uint64_t all = extent_of(local->signature, local->rank, local->position).input;
    failure.blame =
        blame_of(local->rank, what + "of its input only " + std::to_string(local->input_here) +
                                  " of " + std::to_string(all) + " bytes have come");
    return failure;
  }
  for (const uint32_t i : missing_members(op)) {
    failure.blame.node = view_.members[i].node;
    failure.blame.evidence = what + "this node has not said that its ranks submitted it";
    return failure;
  }
  failure.blame.node = view_.members[predecessor()].node;
  failure.blame.evidence = what + "all ranks submitted it, and " + std::to_string(op.slices_held) +
                           " of its " + std::to_string(op.plan.slices) +
                           " slices are complete here; what is missing comes from this node";
  return failure;
}

bool JobEngine::drained() const {
  const bool needed = std::any_of(ops_.begin(), ops_.end(), [this](const auto& entry) {
    const Op& op = *entry.second;
    return op.state == OpState::kCompleted || (op.open() && locals_here(op) > 0);
  });
  return !needed && !frozen_ && all_left() && receive_slots_.free() == options_.slots &&
         free_starts_.size() == options_.start_buffers && units_.all_free() &&
         std::all_of(eager_received_.begin(), eager_received_.end(),
                     [](const EagerReceived& received) { return received.untold() == 0; });
}

std::vector<OpProgress> JobEngine::progress(size_t most) const {
  // Oldest first; since when what came last is open, the next tick writes down.
  const auto age = [](const Op* op) {
    return std::pair(op->since.value_or(std::numeric_limits<Time>::max()), op->key);
  };
  // Everybody's ops wait meanwhile. Of numbered ones the first by their keys are the oldest.
  constexpr size_t kLookedAt = 4096;
  std::vector<const Op*> open;
  for (auto it = ops_.begin(); it != ops_.end() && open.size() < kLookedAt; ++it) {
    const Op& op = *it->second;
    if (op.signature && op.open()) open.push_back(&op);
  }
  const auto shown = std::min(most, open.size());
  std::partial_sort(open.begin(), open.begin() + static_cast<ptrdiff_t>(shown), open.end(),
                    [&](const Op* a, const Op* b) { return age(a) < age(b); });
  open.resize(shown);
  std::vector<OpProgress> list;
  for (const Op* op : open) {
    OpProgress p;
    p.key = op->key;
    p.name = op->name;
    p.signature = *op->signature;
    p.since = op->since.value_or(0);
    for (size_t i = 0; i < locals_.size(); ++i) {
      if (locals_[i].member && !(i < op->locals.size() && op->locals[i])) {
        p.missing_ranks.push_back(locals_[i].rank);
      }
    }
    for (const uint32_t member : missing_members(*op)) {
      if (member != me_) p.missing_nodes.push_back(view_.members[member].node);
    }
    p.subtrees = static_cast<bool>(tree_);
    p.slices_final = op->slices_held;
    p.slices = op->plan.slices;
    list.push_back(std::move(p));
  }
  return list;
}

}  // namespace gradring::core
