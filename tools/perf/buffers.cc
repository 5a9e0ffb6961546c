#include "tools/perf/buffers.h"

namespace gradring::tools {

Buffers buffers_of(const Case& of, int rank, int ranks) {
  const auto n = static_cast<uint64_t>(ranks);
  const auto me = static_cast<uint64_t>(rank);
  const uint64_t block = of.count / n;
  const uint64_t mine = me * block;
  const bool root = of.root == static_cast<uint32_t>(rank);
  const Part all{0, 0, of.count};
  const Part own{mine, mine, block};
  Buffers b;
  b.elements = of.count;
  switch (of.collective) {
    case Collective::kBarrier:
    case Collective::kJoinPoint:
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
      b.elements = 2 * of.count;
      b.output = of.count;
      for (uint64_t other = 0; other < n; ++other) {
        b.given.push_back({other * block, (me * n + other) * block, block});
        b.expected.push_back({of.count + other * block, (other * n + me) * block, block});
      }
      break;
  }
  return b;
}

}  // namespace gradring::tools
