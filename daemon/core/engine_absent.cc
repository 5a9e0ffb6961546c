// Who will never submit an op that others wait for: a rank that has left, a member that was done
// and is not there any more.

#include <utility>
#include <vector>

#include "daemon/core/job_engine.h"

namespace gradring::core {

void JobEngine::member_gone(uint32_t member, const Failure& failure) {
  gone_[member] = Gone{failure};
  // It had everything, or it would not have been done; only its word for that may be lost.
  if (member == successor()) sent_.confirm_all([this](Staging at) { release(at); });
  for (const auto& [key, op] : ops_) check_absent(*op);
  // It was done, so it had let go of everything that it took part in, which it does only when all
  // members have that. Whoever waits for it to pass that on would wait for ever.
  if (frozen_) return;
  std::vector<OpKey> everywhere;
  for (const auto& [key, op] : ops_) {
    if (op->state == OpState::kCompleted || (op->open() && is_final_here(*op))) {
      everywhere.push_back(key);
    }
  }
  for (const OpKey& key : everywhere) {
    Op& op = *ops_.at(key);
    for (uint32_t slice = 0; slice < op.plan.slices; ++slice) {
      set_elsewhere(op, slice, {view_.epoch, op.plan.contributions_of(op.signature->ranks)});
      set_dropped(op, slice);
    }
    op.everywhere = true;
    if (op.plan.to_one()) complete_if_final(op);
    forget_if_dropped(key);
  }
  retry_waiting();
}

// Of one that goes to one rank a node may have nothing to do: then it is done before all are ready.
bool JobEngine::is_final_here(const Op& op) const {
  if (op.plan.slices == 0) return op.outcome.ranks != 0;
  if (!op.plan.to_one()) return op.slices_held == op.plan.slices;
  return op.ready_here() && moved(op) && done_here(op);
}

// Of a node with many ranks all may leave at once, with many ops open: of each only itself is
// looked at, until it has been told of.
void JobEngine::leave(uint32_t rank, const Failure& why) {
  const uint32_t index = local_index(rank);
  Local& local = locals_[index];
  local.left = why;
  journal_->local(record_of(local));
  for (auto it = ops_.begin(); it != ops_.end() && !local.told; ++it) {
    check_absent(*it->second, index);
  }
}

// An op that somebody waits for and that a rank which left never submitted will never be complete
// in this view.
void JobEngine::check_absent(const Op& op) {
  if (!op.open() || failure_) return;
  // In a large view nobody knows who is ready. But a member that is done took part in nothing that
  // is not final everywhere.
  const bool over = tree_ && (op.all_ready() || is_final_here(op));
  for (uint32_t i = 0; i < members(); ++i) {
    const bool ready = tree_ ? over : op.contributions[i] > 0;
    if (!gone_[i] || ready || std::exchange(gone_[i]->told, true)) continue;
    actions_->absent({std::nullopt, view_.members[i].node, gone_[i]->failure});
  }
  for (size_t i = 0; i < locals_.size(); ++i) check_absent(op, i);
}

void JobEngine::check_absent(const Op& op, size_t index) {
  Local& local = locals_[index];
  if (!op.open() || failure_ || !local.member || !local.left || local.told) return;
  const bool submitted = index < op.locals.size() && op.locals[index];
  const Submission* const of = submitted ? &*op.locals[index] : nullptr;
  if (of && of->counts && of->input_stays(*local.left)) return;
  local.told = true;
  Failure failure = *local.left;
  if (failure.cause == Cause::kTrainerLeft) {
    const std::string what = title(op) + (op.signature ? " (" + describe(*op.signature) + ")" : "");
    failure.blame = blame_of(
        local.rank, of ? "left the job before the whole input of " + what + " had come"
                       : "left the job without submitting " + what + ", which others wait for");
  }
  actions_->absent({local.rank, view_.members[me_].node, failure, of != nullptr});
}

// Those of whom this node must hear that they are ready, itself included.
std::vector<uint32_t> JobEngine::missing_members(const Op& op) const {
  std::vector<uint32_t> missing;
  if (op.computed()) return missing;
  if (!tree_) {
    for (uint32_t i = 0; i < members(); ++i) {
      if (op.contributions[i] == 0) missing.push_back(i);
    }
    return missing;
  }
  if (!op.ready_here()) missing.push_back(me_);
  for (uint32_t i = 0; i < tree_.children(); ++i) {
    const uint32_t child = tree_.first_child() + i;
    if ((op.tree.below & tree_.bit_of(child)) == 0) missing.push_back(child);
  }
  if (missing.empty() && !op.all_ready()) missing.push_back(tree_.parent());
  return missing;
}

}  // namespace gradring::core
