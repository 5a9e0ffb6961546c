#include "daemon/data/error_feedback.h"

#include <algorithm>

namespace gradring::daemon {

float* ErrorFeedback::of(const core::Op& op) {
  const Signature& s = *op.signature;
  const bool adds = s.op == ReduceOp::kSum || s.op == ReduceOp::kAverage;
  if (op.key.space == 0 || !adds) return nullptr;
  const uint64_t blocks = in_blocks(s.collective) ? s.ranks : 1;
  const uint64_t count = s.count * blocks;
  std::vector<float>& lost = by_name_[op.key.space];
  if (lost.size() == count) return lost.data();
  bytes_ -= lost.size() * sizeof(float);
  lost = {};
  if (count > (limit_ - std::min(limit_, bytes_)) / sizeof(float)) return nullptr;
  lost.assign(count, 0);
  bytes_ += count * sizeof(float);
  return lost.data();
}

void ErrorFeedback::clear() {
  by_name_.clear();
  bytes_ = 0;
}

}  // namespace gradring::daemon
