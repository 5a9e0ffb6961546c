#include "tools/perf/plan.h"

#include <algorithm>

#include "proto/reduction.h"

namespace gradring::tools {

bool any_float32(const std::vector<Case>& cases) {
  return std::any_of(cases.begin(), cases.end(),
                     [](const Case& one) { return one.dtype == Dtype::kFloat32; });
}

std::vector<uint64_t> sizes_in(const SizeRange& range) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = range.min;; size *= range.factor) {
    sizes.push_back(size);
    if (size > range.max / range.factor) return sizes;
  }
}

std::vector<Case> cases_of(Collective collective, const SizeRange& range, Dtype dtype, ReduceOp op,
                           uint32_t root) {
  if (collective == Collective::kBarrier)
    return {{collective, Dtype::kUint8, ReduceOp::kNone, 0, 0}};
  if (!reduces(collective)) op = ReduceOp::kNone;
  if (!has_root(collective)) root = 0;
  std::vector<Case> cases;
  for (const uint64_t size : sizes_in(range)) {
    cases.push_back({collective, dtype, op, root, std::max<uint64_t>(size / size_of(dtype), 1)});
  }
  return cases;
}

std::vector<Case> all_cases(Collective collective, const SizeRange& range, uint32_t root) {
  std::vector<Case> cases;
  const auto add = [&](Dtype dtype, ReduceOp op) {
    const auto more = cases_of(collective, range, dtype, op, root);
    cases.insert(cases.end(), more.begin(), more.end());
  };
  for (uint8_t d = 1; d <= kDtypeLast; ++d) {
    const auto dtype = static_cast<Dtype>(d);
    if (!reduces(collective)) {
      add(dtype, ReduceOp::kNone);
      if (collective == Collective::kBarrier) break;
      continue;
    }
    for (uint8_t o = 1; o <= kReduceOpLast; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      if (can_reduce(dtype, op).ok()) add(dtype, op);
    }
  }
  return cases;
}

Case rounded(const Case& of, int ranks) {
  Case result = of;
  if (in_blocks(of.collective)) {
    const auto n = static_cast<uint64_t>(ranks);
    result.count = std::max<uint64_t>(of.count / n, 1) * n;
  }
  return result;
}

std::vector<Case> rounded(const std::vector<Case>& all, int ranks) {
  std::vector<Case> cases;
  for (const Case& one : all) cases.push_back(rounded(one, ranks));
  cases.erase(std::unique(cases.begin(), cases.end()), cases.end());
  return cases;
}

uint64_t count_of(const Case& of, int ranks) {
  return in_blocks(of.collective) ? of.count / static_cast<uint64_t>(ranks) : of.count;
}

Blocks blocks_of(const Case& of, int ranks) {
  if (!of.uneven || !in_blocks(of.collective)) return {};
  const auto n = static_cast<uint32_t>(ranks);
  const bool pairs = of.collective == Collective::kAlltoall;
  const uint32_t rows = pairs ? n : 1;
  std::vector<uint64_t> counts;
  for (uint64_t row = 0; row < rows; ++row) {
    // Of every five one is empty, and the largest is twice the middle one; the last has the rest.
    uint64_t left = of.count;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t weight = (3 * i + row + 1) % 5;
      const uint64_t count = i + 1 == n ? left : std::min(left, of.count * weight / (2 * n));
      counts.push_back(count);
      left -= count;
    }
  }
  return *(pairs ? Blocks::of_pairs(std::move(counts), n) : Blocks::of_ranks(std::move(counts)));
}

}  // namespace gradring::tools
