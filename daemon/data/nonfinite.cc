#include "daemon/data/nonfinite.h"

namespace gradring::daemon {

bool NonfiniteWatch::look(const core::Op& op, uint64_t offset, uint64_t bytes,
                          std::span<const void* const> inputs, std::span<const uint32_t> ranks,
                          const transport::FoldFindings& findings, core::Time now) {
  const Dtype dtype = op.signature->dtype;
  const size_t count = bytes / size_of(dtype);
  const uint64_t before = offset / size_of(dtype);
  size_t least = count;
  size_t guilty = inputs.size();
  for (size_t i = 0; i < inputs.size(); ++i) {
    size_t first = 0;
    inputs_[ranks[i]] += transport::count_nonfinite(dtype, inputs[i], count, &first);
    if (first >= least) continue;
    least = first;
    guilty = i;
  }
  const bool from_here = guilty < inputs.size() || findings.overflows != 0;
  if (first_ || !from_here) return false;

  first_.emplace();
  first_->key = op.key;
  first_->name = op.name;
  first_->at = now;
  if (guilty < inputs.size()) {
    const auto* const element =
        static_cast<const std::byte*>(inputs[guilty]) + least * size_of(dtype);
    first_->kind = transport::is_nan(dtype, element) ? NonfiniteOrigin::Kind::kNan
                                                     : NonfiniteOrigin::Kind::kInfinity;
    first_->rank = ranks[guilty];
    first_->element = before + least;
  } else {
    first_->kind = NonfiniteOrigin::Kind::kOverflow;
    first_->element = before + findings.first_overflow;
  }
  return true;
}

}  // namespace gradring::daemon
