#include "daemon/data/op_stats.h"

#include <algorithm>

namespace gradring::daemon {
namespace {

OpStats::End end_of(const core::Outcome& outcome) {
  if (outcome.verdict == Verdict::kOk) return OpStats::End::kOk;
  if (outcome.verdict == Verdict::kOkShrunk) return OpStats::End::kShrunk;
  const bool refused = outcome.failure.cause == Cause::kRefused;
  return refused ? OpStats::End::kRefused : OpStats::End::kFailed;
}

// The first bound that is not below `value`, or one past the last.
template <typename Bounds, typename Value>
size_t class_of(const Bounds& bounds, Value value) {
  return static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) -
                             bounds.begin());
}

template <typename Array>
void add(Array* to, const Array& from) {
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] += from[i];
}

}  // namespace

size_t OpStats::size_class_of(uint64_t bytes) { return class_of(kSizeBounds, bytes); }

void OpStats::record(Collective collective, uint64_t op_bytes, const core::Outcome& outcome,
                     core::Time took) {
  const auto which = static_cast<size_t>(collective);
  const End end = end_of(outcome);
  ++ended[which][static_cast<size_t>(end)];
  if (end == End::kFailed || end == End::kRefused) {
    ++failed[std::min(static_cast<size_t>(outcome.failure.cause), kCauses - 1)];
    return;
  }
  // Who waits at a barrier wants to wait: that says nothing of the network.
  if (!moves_data(collective)) return;
  bytes[which] += op_bytes;
  Durations& of_size = durations[size_class_of(op_bytes)];
  ++of_size.counts[class_of(kTimeBounds, took)];
  of_size.sum += took;
}

OpStats& OpStats::operator+=(const OpStats& other) {
  for (size_t i = 0; i < kCollectives; ++i) add(&ended[i], other.ended[i]);
  add(&bytes, other.bytes);
  add(&failed, other.failed);
  for (size_t i = 0; i < kSizes; ++i) {
    add(&durations[i].counts, other.durations[i].counts);
    durations[i].sum += other.durations[i].sum;
  }
  return *this;
}

}  // namespace gradring::daemon
