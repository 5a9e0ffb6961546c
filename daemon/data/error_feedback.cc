#include "daemon/data/error_feedback.h"

#include <algorithm>
#include <utility>

namespace gradring::daemon {

float* ErrorFeedback::of(const core::Op& op) {
  const Signature& s = *op.signature;
  const bool adds = s.op == ReduceOp::kSum || s.op == ReduceOp::kAverage;
  if (op.key.space == 0 || !adds) return nullptr;
  const uint64_t count = elements_of(s);
  const auto known = by_name_.find(op.key.space);
  if (known != by_name_.end()) {
    if (known->second.count == count) return known->second.elements.get();
    bytes_ -= known->second.count * sizeof(float);
    by_name_.erase(known);
  }
  if (count > (limit_ - std::min(limit_, bytes_)) / sizeof(float)) return nullptr;
  Lost lost{{static_cast<float*>(std::calloc(count, sizeof(float))), {}}, count};
  if (lost.elements == nullptr) return nullptr;
  bytes_ += count * sizeof(float);
  return by_name_.emplace(op.key.space, std::move(lost)).first->second.elements.get();
}

void ErrorFeedback::clear() {
  by_name_.clear();
  bytes_ = 0;
}

}  // namespace gradring::daemon
