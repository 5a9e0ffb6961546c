#include "tests/sim/reference.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/arithmetic.h"

namespace gradring::sim {
namespace {

// Block `at` of each rank's input, folded.
std::vector<std::byte> sum_of(const Signature& s, const std::vector<uint32_t>& ranks,
                              const InputOf& input, uint64_t at) {
  std::vector<std::byte> sum(s.bytes());
  std::vector<Input> from;
  for (const uint32_t rank : ranks) from.push_back({input(rank).data() + at * s.bytes()});
  fold(s.dtype, s.op, true, from, s.count, {}, sum.data());
  return sum;
}

}  // namespace

std::string fault_of_blocks(const Signature& s, uint32_t rank, const std::vector<uint32_t>& ranks,
                            const InputOf& input, const std::byte* output) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  const auto me = static_cast<uint64_t>(found - ranks.begin());
  const auto differs = [&](uint64_t block, const std::byte* expected) -> std::string {
    if (std::memcmp(output + block * s.bytes(), expected, s.bytes()) == 0) return "";
    return "block " + std::to_string(block) + " of " + describe(s) + " is wrong";
  };
  if (s.count == 0 || extent_of(s, rank).output == 0) return "";
  if (reduces(s.collective)) {
    if (!is_integer(s.dtype)) return "";
    const uint64_t block = s.collective == Collective::kReduceScatter ? me : 0;
    return differs(0, sum_of(s, ranks, input, block).data());
  }
  if (s.collective == Collective::kScatter) {
    return differs(0, input(s.root).data() + me * s.bytes());
  }
  const uint64_t theirs = s.collective == Collective::kAlltoall ? me * s.bytes() : 0;
  for (uint64_t block = 0; block < ranks.size(); ++block) {
    const std::string fault = differs(block, input(ranks[block]).data() + theirs);
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace gradring::sim
