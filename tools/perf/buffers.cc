#include "tools/perf/buffers.h"

namespace gradring::tools {
namespace {

// Behind each other: what is given to each, and what is taken from each.
void fill_pairs(const Case& of, const Blocks& blocks, uint32_t me, uint32_t ranks, Buffers* b) {
  const uint64_t each = of.count / ranks;
  // Values that no other pair has, with room for the longest block.
  const auto values_of = [&](uint64_t giver, uint64_t taker) {
    return (giver * ranks + taker) * (blocks.uneven() ? of.count : each);
  };
  b->output = blocks.uneven() ? blocks.before(me, ranks) : of.count;
  b->elements = b->output + (blocks.uneven() ? blocks.taken_before(ranks, me) : of.count);
  for (uint32_t other = 0; other < ranks; ++other) {
    const uint64_t to = blocks.uneven() ? blocks.before(me, other) : other * each;
    const uint64_t from = blocks.uneven() ? blocks.taken_before(other, me) : other * each;
    const uint64_t given = blocks.uneven() ? blocks.count(me, other) : each;
    const uint64_t taken = blocks.uneven() ? blocks.count(other, me) : each;
    b->given.push_back({to, values_of(me, other), given});
    b->expected.push_back({b->output + from, values_of(other, me), taken});
  }
}

}  // namespace

Buffers buffers_of(const Case& of, int rank, int ranks) {
  const auto n = static_cast<uint64_t>(ranks);
  const auto me = static_cast<uint64_t>(rank);
  const Blocks blocks = blocks_of(of, ranks);
  const bool uneven = blocks.uneven() && !blocks.pairs();
  const auto place = static_cast<uint32_t>(rank);
  const uint64_t block = uneven ? blocks.count(place) : of.count / n;
  const uint64_t mine = uneven ? blocks.before(place) : me * block;
  const bool root = of.root == static_cast<uint32_t>(rank);
  const Part all{0, 0, of.count};
  const Part own{mine, mine, block};
  Buffers b;
  b.elements = of.count;
  switch (of.collective) {
    case Collective::kBarrier:
    case Collective::kJoinPoint:
    case Collective::kJoin:
      return {};
    case Collective::kAllreduce:
    case Collective::kBroadcast:
      b.given = b.expected = {all};
      break;
    case Collective::kReduce:
      b.given = {all};
      if (root) b.expected = {all};
      break;
    case Collective::kAllgather:
      b.input = mine;
      b.given = {own};
      b.expected = {all};
      break;
    case Collective::kGather:
      b.input = mine;
      b.given = {own};
      if (root) b.expected = {all};
      break;
    case Collective::kReduceScatter:
      b.output = mine;
      b.given = {all};
      b.expected = {own};
      break;
    case Collective::kScatter:
      b.output = mine;
      if (root) b.given = {all};
      b.expected = {own};
      break;
    case Collective::kAlltoall:
      fill_pairs(of, blocks, place, static_cast<uint32_t>(ranks), &b);
      break;
  }
  return b;
}

}  // namespace gradring::tools
