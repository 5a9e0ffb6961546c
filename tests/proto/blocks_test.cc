#include "proto/blocks.h"

#include <gtest/gtest.h>

#include "proto/types.h"

namespace gradring {
namespace {

TEST(Blocks, OfRanksLieOneBehindTheOther) {
  const Blocks blocks = *Blocks::of_ranks({5, 0, 7});
  EXPECT_TRUE(blocks.uneven());
  EXPECT_TRUE(blocks.known());
  EXPECT_EQ(blocks.ranks(), 3u);
  EXPECT_FALSE(blocks.pairs());
  EXPECT_EQ(blocks.count(2), 7u);
  EXPECT_EQ(blocks.before(0), 0u);
  EXPECT_EQ(blocks.before(2), 5u);
  EXPECT_EQ(blocks.longest(), 7u);
  EXPECT_EQ(blocks.total(), 12u);
}

TEST(Blocks, OfPairsLieInRowsForTheGiverAndInColumnsForTheTaker) {
  const Blocks blocks = *Blocks::of_pairs({1, 2, 3,  //
                                           4, 5, 6,  //
                                           7, 8, 9},
                                          3);
  EXPECT_TRUE(blocks.pairs());
  EXPECT_EQ(blocks.count(1, 2), 6u);
  EXPECT_EQ(blocks.before(1, 2), 4u + 5u);
  EXPECT_EQ(blocks.taken_before(1, 2), 3u);
  EXPECT_EQ(blocks.before(2, 3), 7u + 8u + 9u) << "what it gives in all";
  EXPECT_EQ(blocks.taken_before(3, 0), 1u + 4u + 7u) << "what it takes in all";
}

TEST(Blocks, AreEqualWhenTheirCountsAre) {
  const Blocks blocks = *Blocks::of_ranks({5, 0, 7});
  EXPECT_EQ(blocks, *Blocks::of_ranks({5, 0, 7}));
  EXPECT_NE(blocks, *Blocks::of_ranks({5, 7, 0}));
  EXPECT_NE(blocks, *Blocks::of_ranks({5, 0, 7, 0}));
  EXPECT_NE(blocks, Blocks());
  EXPECT_EQ(blocks, Blocks::told(blocks.digest()));
  EXPECT_FALSE(Blocks::told(blocks.digest()).known());
  EXPECT_FALSE(Blocks().uneven());
}

TEST(Blocks, TooManyOrTooLongAreNone) {
  EXPECT_FALSE(Blocks::of_ranks({}));
  EXPECT_FALSE(Blocks::of_ranks({kCountMax, 1}));
  EXPECT_FALSE(Blocks::of_ranks({uint64_t{1} << 63, uint64_t{1} << 63}));
  EXPECT_TRUE(Blocks::of_ranks({kCountMax, 0}));
  EXPECT_FALSE(Blocks::of_ranks(std::vector<uint64_t>(Blocks::kCountsMax + 1, 1)));
  EXPECT_FALSE(Blocks::of_pairs({1, 2, 3}, 2));
  EXPECT_FALSE(Blocks::of_pairs({}, 0));
  EXPECT_FALSE(Blocks::of_pairs({1}, 0xffffffff));
}

Signature signature_of(Collective collective, Blocks blocks) {
  Signature s{collective, Dtype::kInt16, ReduceOp::kNone, 0, 30, 4};
  s.blocks = std::move(blocks);
  return s;
}

TEST(Blocks, SayWhatEachRankGivesAndGets) {
  const Blocks ranks = *Blocks::of_ranks({10, 0, 30, 20});
  const Signature gather = signature_of(Collective::kAllgather, ranks);
  EXPECT_EQ(elements_of(gather), 60u);
  EXPECT_EQ(extent_of(gather, 0, 2), (Extent{60, 120}));
  EXPECT_EQ(extent_of(gather, 0, 1), (Extent{0, 120}));
  EXPECT_EQ(extent_of(gather, 0, 4), (Extent{0, 0})) << "no rank of the op";
  EXPECT_EQ(extent_of(signature_of(Collective::kScatter, ranks), 0, 3), (Extent{120, 40}));
  EXPECT_EQ(extent_of(signature_of(Collective::kScatter, ranks), 1, 3), (Extent{0, 40}));

  std::vector<uint64_t> counts(16);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = i == 11 ? 30 : i;
  const Signature pairs = signature_of(Collective::kAlltoall, *Blocks::of_pairs(counts, 4));
  EXPECT_EQ(extent_of(pairs, 0, 2), (Extent{2 * (8 + 9 + 10 + 30), 2 * (2 + 6 + 10 + 14)}));
}

TEST(Blocks, TheOwnOneIsWhereThoseBeforeItEnd) {
  const std::array<std::byte, 1000> memory{};
  const Signature s = signature_of(Collective::kAllgather, *Blocks::of_ranks({10, 0, 30, 20}));
  EXPECT_TRUE(in_place(s, 3, &memory[80], &memory[0]));
  EXPECT_FALSE(in_place(s, 3, &memory[180], &memory[0]));
}

TEST(Blocks, OfAnotherOpAreNotSane) {
  const Blocks blocks = *Blocks::of_ranks({10, 0, 30, 20});
  EXPECT_TRUE(is_sane(signature_of(Collective::kAllgather, blocks)));
  EXPECT_TRUE(is_sane(signature_of(Collective::kAllgather, Blocks::told(77))));
  EXPECT_FALSE(is_sane(signature_of(Collective::kAllgather, *Blocks::of_ranks({10, 30, 20}))));
  EXPECT_FALSE(is_sane(signature_of(Collective::kAllgather, *Blocks::of_ranks({1, 2, 3, 4}))))
      << "the longest is not the signature's count";
  EXPECT_FALSE(is_sane(signature_of(Collective::kAlltoall, blocks)));
  Signature sum{Collective::kAllreduce, Dtype::kInt16, ReduceOp::kSum, 0, 30};
  EXPECT_TRUE(is_sane(sum));
  sum.blocks = Blocks::told(77);
  EXPECT_FALSE(is_sane(sum)) << "an allreduce has no blocks";
}

TEST(Blocks, AreDescribedByTheLongestAndTheirDigest) {
  const Signature s = signature_of(Collective::kGather, Blocks::told(0x2a));
  EXPECT_EQ(describe(s), "gather of 4 x up to 30 int16 to rank 0, in blocks 2a");
}

// Found by whoever wanted the digests to agree.
TEST(Blocks, DifferByTheirCountsWhateverTheirDigests) {
  const Blocks large = *Blocks::of_ranks({16777215, 15795845, 2875225, 15394326, 16069926});
  const Blocks small = *Blocks::of_ranks({16777215, 989841, 1849143, 804383, 394597});
  ASSERT_EQ(large.digest(), small.digest());
  EXPECT_FALSE(large == small);
  EXPECT_TRUE(large == *Blocks::of_ranks({16777215, 15795845, 2875225, 15394326, 16069926}));
  EXPECT_TRUE(large == Blocks::told(small.digest())) << "of another node nothing else is known";
}

}  // namespace
}  // namespace gradring
