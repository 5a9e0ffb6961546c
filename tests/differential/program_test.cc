// That random programs are what they are meant to be.

#include "tests/differential/program.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "tests/transport/fold_kinds.h"

namespace gradring::differential {
namespace {

constexpr uint32_t kWorld = 8;

TEST(RandomProgram, FollowsFromItsSeed) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Program once = make_program(seed, kWorld), again = make_program(seed, kWorld);
    ASSERT_EQ(once.ops.size(), again.ops.size());
    for (size_t i = 0; i < once.ops.size(); ++i) {
      ASSERT_EQ(describe(once, once.ops[i]), describe(again, again.ops[i])) << "seed " << seed;
    }
  }
}

TEST(RandomProgram, EveryKindComesUp) {
  std::set<std::tuple<gradring_collective, Dtype>> moved;
  std::set<std::tuple<Dtype, ReduceOp>> reduced;
  std::set<std::tuple<gradring_collective, Oddity>> odd;
  std::set<WireType> wires;
  std::set<uint64_t> counts;
  size_t scaled = 0, uneven = 0, named = 0, large = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    for (const Op& op : make_program(seed, kWorld).ops) {
      moved.insert({op.collective, op.dtype});
      if (is_reduction(op.collective)) reduced.insert({op.dtype, op.op});
      odd.insert({op.collective, op.oddity});
      wires.insert(op.wire);
      counts.insert(op.count);
      scaled += op.scaled;
      uneven += !op.counts.empty();
      named += !op.name.empty();
      large += op.count * size_of(op.dtype) > 1 << 20;
    }
  }
  const size_t collectives = 10;  // all but the barrier have types
  EXPECT_EQ(moved.size(), (collectives - 1 - 3) * kDtypeLast + 3 * (kDtypeLast - 2) + 1);
  EXPECT_EQ(reduced.size(), fold_kinds::all_kinds().size());
  EXPECT_EQ(wires.size(), kWireTypeLast + 1u);
  for (uint8_t oddity = 0; oddity <= kOddityLast; ++oddity) {
    const bool reduces = oddity == static_cast<uint8_t>(Oddity::kReduceOp);
    EXPECT_TRUE(odd.contains({reduces ? GRADRING_REDUCE : GRADRING_REDUCE_SCATTER,
                              static_cast<Oddity>(oddity)}) ||
                static_cast<Oddity>(oddity) == Oddity::kRoot)
        << int{oddity};
  }
  EXPECT_TRUE(odd.contains({GRADRING_SEND, Oddity::kCount}));
  EXPECT_TRUE(odd.contains({GRADRING_BARRIER, Oddity::kCollective}));
  EXPECT_TRUE(odd.contains({GRADRING_BROADCAST, Oddity::kRoot}));
  for (const uint64_t count : {0, 1, 63, 65, 4095, 4097, 65537}) {
    EXPECT_TRUE(counts.contains(count)) << count;
  }
  EXPECT_GT(scaled, 100u);
  EXPECT_GT(uneven, 100u);
  EXPECT_GT(named, 1000u);
  EXPECT_GT(large, 20u);
}

TEST(RandomProgram, AnOddRankSaysSomethingElseThanTheOthers) {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const Program program = make_program(seed, kWorld);
    for (const Op& op : program.ops) {
      if (op.oddity == Oddity::kNone) continue;
      const Op said = said_by(op, op.odd_rank);
      const bool differs = said.collective != op.collective || said.dtype != op.dtype ||
                           said.op != op.op || said.root != op.root || said.count != op.count ||
                           said.counts != op.counts || said.postscale != op.postscale ||
                           said.wire != op.wire || said.ranks != op.ranks;
      EXPECT_TRUE(differs) << describe(program, op);
      EXPECT_TRUE(takes_part(op, op.odd_rank)) << describe(program, op);
    }
  }
}

TEST(RandomProgram, AWorldOfOneRankHasProgramsToo) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Program program = make_program(seed, 1);
    EXPECT_EQ(program.groups[0].ranks, std::vector<uint32_t>{0});
    EXPECT_FALSE(program.ops.empty());
  }
}

}  // namespace
}  // namespace gradring::differential
