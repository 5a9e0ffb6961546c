#include "daemon/core/engine_record.h"

#include <algorithm>

namespace gradring::core {

EngineJournal* EngineJournal::none() {
  static EngineJournal nothing;
  return &nothing;
}

OpRecord head_of(const Op& op) {
  OpRecord record;
  record.key = op.key;
  record.name = op.name;
  record.state = op.open() ? OpState::kGathering : op.state;
  if (!op.open()) record.signature = op.signature;
  record.since = op.since;
  record.expected = op.expected;
  record.slice_bytes = op.slice_bytes;
  record.root_node = op.root_node;
  record.seats = op.seats;
  record.spared = op.spared;
  record.outcome = op.outcome;
  record.failure = op.failure;
  return record;
}

void EngineRecord::submitted(const Op& op, const Submission& submission, const LocalRecord& by) {
  submitted(head_of(op), submission, by);
}

void OpRecord::add(const Submission& submission) {
  const auto after = std::find_if(locals.begin(), locals.end(), [&](const Submission& other) {
    return other.rank > submission.rank;
  });
  locals.insert(after, submission);
}

void EngineRecord::submitted(OpRecord head, const Submission& submission, const LocalRecord& by) {
  local(by);
  carried.erase(head.key);
  OpRecord& op = ops.try_emplace(head.key, head).first->second;
  op.name = head.name;  // of one that failed elsewhere these were not known
  op.since = head.since;
  op.seats = head.seats;
  op.add(submission);
}

void EngineRecord::held(const Op& op, uint32_t slice, const ValueId& value, Staging) {
  held(op.key, slice, op.plan.slices, op.plan.slice_bytes, value);
}

void EngineRecord::held(const OpKey& key, uint32_t slice, uint32_t slices, uint32_t slice_bytes,
                        const ValueId& value) {
  const auto it = ops.find(key);
  if (it == ops.end() || slice >= slices) return;
  OpRecord& op = it->second;
  op.slice_bytes = slice_bytes;
  op.slices.resize(slices);
  op.slices[slice].state = SliceState::kHeld;
  op.slices[slice].value = value;
}

void EngineRecord::kept(const Op& op, uint32_t slice) {
  if (op.slices[slice].kept) kept(op.key, slice, *op.slices[slice].kept);
}

void EngineRecord::kept(const OpKey& key, uint32_t slice, uint32_t number) {
  const auto it = ops.find(key);
  if (it == ops.end() || slice >= it->second.slices.size()) return;
  it->second.slices[slice].kept = number;
}

void EngineRecord::dropped(const Op& op, uint32_t slice) { dropped(op.key, slice); }

void EngineRecord::dropped(const OpKey& key, uint32_t slice) {
  const auto it = ops.find(key);
  if (it == ops.end() || slice >= it->second.slices.size()) return;
  it->second.slices[slice].state = SliceState::kDropped;
  it->second.slices[slice].kept.reset();
}

void EngineRecord::elsewhere(const Op& op, uint32_t slice, const ValueId& value) {
  held(op, slice, value, {});
  dropped(op.key, slice);
}

void EngineRecord::decided(const Op& op) { decided(op.key, op.outcome); }

void EngineRecord::decided(const OpKey& key, const ValueId& outcome) {
  const auto it = ops.find(key);
  if (it != ops.end()) it->second.outcome = outcome;
}

void EngineRecord::ended(const Op& op) { ended(head_of(op)); }

void EngineRecord::ended(const OpRecord& head) {
  constexpr size_t kFailedMax = 4096;  // as the engine
  const bool failed_now = head.state == OpState::kFailed;
  if (!failed_now) ended_keys.insert(head.key);
  auto it = ops.find(head.key);
  // One that failed elsewhere waits for our ranks to be told.
  if (it == ops.end() && failed_now) it = ops.emplace(head.key, head).first;
  if (it != ops.end()) {
    it->second.state = head.state;
    it->second.signature = head.signature;
    it->second.outcome = head.outcome;
    it->second.failure = head.failure;
  }
  if (!failed_now) return;
  const bool known = std::any_of(failed.begin(), failed.end(),
                                 [&head](const auto& entry) { return entry.first == head.key; });
  if (!known) failed.emplace_back(head.key, head.failure);
  if (failed.size() > kFailedMax) failed.pop_front();
}

void EngineRecord::forgotten(const OpKey& key) {
  ended_keys.insert(key);
  ops.erase(key);
}

void EngineRecord::local(const LocalRecord& record) {
  for (LocalRecord& known : locals) {
    if (known.rank == record.rank) known = record;
  }
}

}  // namespace gradring::core
