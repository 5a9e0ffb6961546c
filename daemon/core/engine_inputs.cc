// Inputs that come while their op is under way: from the beginning on, and each rank's for itself.
// A slice is folded when what it takes of them is there. Nobody else knows of it: to other members
// such a node is one that is a little slower.

#include <algorithm>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"
#include "proto/check.h"

namespace gradring::core {

void JobEngine::input_came(uint32_t rank, const OpKey& key, uint64_t bytes) {
  const auto it = ops_.find(key);
  const uint32_t index = local_index(rank);
  if (it == ops_.end() || index >= it->second->locals.size()) return;
  std::optional<Submission>& of = it->second->locals[index];
  if (!of || bytes < of->input_here) return;
  const bool all = bytes == Submission::kAllHere ||
                   bytes >= extent_of(of->signature, of->rank, of->position).input;
  of->input_here = all ? Submission::kAllHere : bytes;
}

void JobEngine::input_lost(uint32_t rank, const OpKey& key) {
  const auto it = ops_.find(key);
  const uint32_t index = local_index(rank);
  if (it == ops_.end() || !it->second->open() || index >= it->second->locals.size()) return;
  std::optional<Submission>& of = it->second->locals[index];
  if (!of || !of->counts) return;
  of->input_here = 0;
  of->comes_again = false;
}

void JobEngine::keep_to_ring(const OpKey& key) {
  const auto it = ops_.find(key);
  if (it != ops_.end()) it->second->keeps_to_ring = true;
}

void JobEngine::inputs_come_again(const OpKey& key) {
  GRADRING_CHECK(frozen_, "nothing is folded while inputs are replaced");
  const auto it = ops_.find(key);
  if (it == ops_.end()) return;
  for (std::optional<Submission>& of : it->second->locals) {
    if (!of || !of->counts) continue;
    of->comes_again = of->comes_again || of->input_here == Submission::kAllHere;
    of->input_here = 0;
  }
}

bool JobEngine::input_is_here(const Op& op) const {
  return std::all_of(op.locals.begin(), op.locals.end(), [](const auto& local) {
    return !local || local->input_here == Submission::kAllHere;
  });
}

bool JobEngine::can_fold(const Op& op, uint32_t slice, const Step& step) const {
  if (step.fold == Fold::kNone || input_is_here(op) || planted(Bug::kFoldedInHaste)) return true;
  const uint32_t source = op.plan.block_of(slice).source;
  const uint64_t end = op.plan.input_at(slice) + op.plan.length_of(slice);
  return std::all_of(op.locals.begin(), op.locals.end(), [&](const auto& local) {
    return !local || local->input_here >= end ||
           (step.fold == Fold::kSource && local->rank != source);
  });
}

// Null: there is none, or what it takes is not there yet.
Op* JobEngine::next_to_start() {
  for (auto it = starting_.begin(); it != starting_.end();) {
    Op& op = **it;
    while (op.next_start < op.plan.slices && op.slices[op.next_start].route != Route::kCompute) {
      op.next_start = op.plan.next_start(op.next_start + 1);
    }
    if (op.next_start >= op.plan.slices) {
      it = starting_.erase(it);
    } else if (can_fold(op, op.next_start, steps_of(op, op.next_start)[0])) {
      return &op;
    } else {
      ++it;
    }
  }
  return nullptr;
}

// What will never be there counts no more from the next view on.
void JobEngine::give_up_unfinished() {
  if (planted(Bug::kUnfinishedIsWaitedFor)) return;
  for (const auto& [key, op] : ops_) {
    for (size_t i = 0; i < op->locals.size() && op->open(); ++i) {
      std::optional<Submission>& of = op->locals[i];
      if (!of || !locals_[i].left || of->input_stays(*locals_[i].left)) continue;
      of->input_here = Submission::kAllHere;
      of->counts = false;
    }
  }
}

}  // namespace gradring::core
