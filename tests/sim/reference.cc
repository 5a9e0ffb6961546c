#include "tests/sim/reference.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/arithmetic.h"

namespace gradring::sim {
namespace {

// Part of a buffer, in bytes.
struct Part {
  uint64_t at = 0;
  uint64_t bytes = 0;
};

// A block among as many as there are ranks, and of an alltoall among those that one rank gives
// (`taken`: that one takes).
Part block_of(const Signature& s, uint64_t of_rank, uint64_t block, bool taken = false) {
  Part part;
  for (uint64_t i = 0; i <= block; ++i) {
    part.at += part.bytes;
    part.bytes = s.bytes();
    if (!s.blocks.uneven()) continue;
    const uint64_t row = s.blocks.pairs() ? (taken ? i : of_rank) : 0;
    const uint64_t column = s.blocks.pairs() && taken ? of_rank : i;
    part.bytes = s.blocks.counts()[row * s.blocks.ranks() + column] * size_of(s.dtype);
  }
  return part;
}

// That part of each rank's input, folded.
std::vector<std::byte> sum_of(const Signature& s, const std::vector<uint32_t>& ranks,
                              const InputOf& input, const Part& part) {
  std::vector<std::byte> sum(part.bytes);
  std::vector<Input> from;
  for (const uint32_t rank : ranks) from.push_back({input(rank).data() + part.at});
  fold(s.dtype, s.op, true, from, part.bytes / size_of(s.dtype), {}, sum.data());
  return sum;
}

}  // namespace

std::string fault_of_blocks(const Signature& s, uint32_t rank, const std::vector<uint32_t>& ranks,
                            const InputOf& input, const std::byte* output) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  const auto me = static_cast<uint64_t>(found - ranks.begin());
  const auto differs = [&](const Part& part, const std::byte* expected) -> std::string {
    if (part.bytes == 0 || std::memcmp(output + part.at, expected, part.bytes) == 0) return "";
    return "what is at " + std::to_string(part.at) + " of " + describe(s) + " is wrong";
  };
  if (s.count == 0) return "";
  if (has_root(s.collective) && s.collective != Collective::kScatter && s.root != rank) return "";
  if (reduces(s.collective)) {
    if (!is_integer(s.dtype)) return "";
    const bool scatters = s.collective == Collective::kReduceScatter;
    const Part part = scatters ? block_of(s, 0, me) : Part{0, s.bytes()};
    return differs({0, part.bytes}, sum_of(s, ranks, input, part).data());
  }
  if (s.collective == Collective::kScatter) {
    const Part part = block_of(s, 0, me);
    return differs({0, part.bytes}, input(s.root).data() + part.at);
  }
  const bool pairs = s.collective == Collective::kAlltoall;
  for (uint64_t giver = 0; giver < ranks.size(); ++giver) {
    const uint64_t theirs = pairs ? block_of(s, giver, me).at : 0;
    const std::string fault =
        differs(block_of(s, me, giver, true), input(ranks[giver]).data() + theirs);
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace gradring::sim
