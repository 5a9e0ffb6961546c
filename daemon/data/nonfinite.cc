#include "daemon/data/nonfinite.h"

#include <algorithm>

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
  if (guilty < inputs.size()) {
    const auto* const element =
        static_cast<const std::byte*>(inputs[guilty]) + least * size_of(dtype);
    const Kind kind = transport::is_nan(dtype, element) ? Kind::kNan : Kind::kInfinity;
    return remember(op, kind, ranks[guilty], before + least, now);
  }
  if (findings.overflows == 0) return false;
  return remember(op, Kind::kOverflow, kNoRank, before + findings.first_overflow, now);
}

bool NonfiniteWatch::look(const core::Op& op, uint64_t offset, std::span<const uint32_t> ranks,
                          const transport::Gpus::Nonfinite& found, core::Time now) {
  const uint64_t before = offset / size_of(op.signature->dtype);
  using Input = transport::Gpus::Nonfinite::Input;
  const std::span<const Input> theirs(found.inputs.data(), ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) inputs_[ranks[i]] += theirs[i].many;
  const auto least = std::min_element(theirs.begin(), theirs.end(), [](auto& a, auto& b) {
    return a.many != 0 && (b.many == 0 || a.first < b.first);
  });
  const bool comes_so = found.inputs.size() > ranks.size() && found.inputs.back().many != 0 &&
                        found.inputs.back().first == found.first;
  const bool is_theirs = least != theirs.end() && least->many != 0;
  if (is_theirs && (comes_so || least->first == found.first)) {
    return remember(op, least->nan ? Kind::kNan : Kind::kInfinity,
                    ranks[static_cast<size_t>(least - theirs.begin())], before + least->first, now);
  }
  if (comes_so) return false;
  return remember(op, Kind::kOverflow, kNoRank, before + found.first, now);
}

bool NonfiniteWatch::remember(const core::Op& op, Kind kind, uint32_t rank, uint64_t element,
                              core::Time now) {
  if (first_) return false;
  first_.emplace();
  first_->kind = kind;
  first_->rank = rank;
  first_->key = op.key;
  first_->name = op.name;
  first_->element = element;
  first_->at = now;
  return true;
}

}  // namespace gradring::daemon
