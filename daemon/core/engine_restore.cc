// From one life of a daemon to the next: rule R1.

#include <algorithm>
#include <utility>

#include "daemon/core/job_engine.h"
#include "proto/check.h"

namespace gradring::core {

EngineRecord JobEngine::record() const {
  EngineRecord record;
  record.view = view_;
  for (const Local& local : locals_) record.locals.push_back(record_of(local));
  for (const auto& [key, op] : ops_) {
    if (locals_here(*op) == 0 && op->state != OpState::kFailed) continue;
    OpRecord& entry = record.ops[key] = head_of(*op);
    for (const auto& local : op->locals) {
      if (local) entry.add(*local);
    }
    if (op->slices_held == 0) continue;
    entry.slice_bytes = op->plan.slice_bytes;
    for (const SliceProgress& slice : op->slices) {
      const bool untouched = slice.state == SliceState::kUntouched;
      entry.slices.push_back({slice.state, untouched ? ValueId{} : slice.value, slice.kept});
    }
  }
  record.ended_keys = ended_keys_;
  for (const OpKey& key : failed_order_) record.failed.emplace_back(key, failed_.at(key));
  record.carried = carried_;
  return record;
}

LocalRecord JobEngine::record_of(const Local& local) const {
  return {local.rank, local.left, local.submitted, local.join_points};
}

void JobEngine::restore(const EngineRecord& record) {
  GRADRING_CHECK(ops_.empty() && locals_.size() <= record.locals.size(),
                 "an engine is restored before anything else happens to it");
  frozen_ = true;  // whatever was under way is lost, so this epoch must end
  const std::vector<RankInfo>& ranks = view_.members[me_].ranks;
  locals_.clear();
  for (const LocalRecord& known : record.locals) {
    Local& local = locals_.emplace_back();
    local.rank = known.rank;
    local.left = known.left;
    local.submitted = known.submitted;
    local.join_points = known.join_points;
    local.member = std::any_of(ranks.begin(), ranks.end(),
                               [&](const RankInfo& info) { return info.rank == known.rank; });
  }
  for (const auto& [key, entry] : record.ops) restore(entry);
  ended_keys_ = record.ended_keys;
  for (const auto& [key, failure] : record.failed) {
    if (failed_.emplace(key, failure).second) failed_order_.push_back(key);
  }
  carried_ = record.carried;
}

void JobEngine::restore(const OpRecord& entry) {
  Op& op = *(ops_[entry.key] = std::make_unique<Op>());
  ++open_;
  op.key = entry.key;
  op.name = entry.name;
  op.signature = entry.signature;
  op.since = entry.since;
  op.expected = entry.expected;
  op.root_node = entry.root_node;
  op.seats = entry.seats;
  op.spared = entry.spared;
  op.outcome = entry.outcome;
  op.failure = entry.failure;
  begin_ready(op);
  op.locals.resize(locals_.size());
  for (const Submission& submission : entry.locals) {
    const uint32_t index = local_index(submission.rank);
    op.locals[index] = submission;
    if (entry.state == OpState::kGathering) {
      ++locals_[index].open;
      locals_[index].joined |= op.key.space == OpKey::kNoMoreSpace;
    }
    if (!op.signature) op.signature = submission.signature;
    // Of unequal blocks only a submission tells the lengths.
    if (submission.signature == *op.signature) op.signature->blocks = submission.signature.blocks;
  }
  set_state(op, entry.state);
  if (!op.signature || entry.state == OpState::kFailed) return;
  op.slice_bytes = entry.slice_bytes;
  if (!entry.slices.empty() || entry.state == OpState::kCompleted) plan(op);
  GRADRING_CHECK(entry.slices.empty() || entry.slices.size() == op.slices.size(),
                 "an op is cut as its record says");
  for (size_t i = 0; i < entry.slices.size(); ++i) {
    SliceProgress& slice = op.slices[i];
    slice.state = entry.slices[i].state;
    slice.value = entry.slices[i].value;
    slice.kept = entry.slices[i].kept;
    if (slice.state != SliceState::kUntouched) ++op.slices_held;
    if (slice.state == SliceState::kDropped) ++op.slices_dropped;
  }
}

}  // namespace gradring::core
