// All ranks got the same bits, and where they did not somebody says so.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;

EngineOptions with_verification() {
  EngineOptions options = small_slices();
  options.verify = true;
  return options;
}

void leave_all(Ring& ring) {
  for (uint32_t rank = 0; rank < ring.ranks(); ++rank) ring.leave(rank);
  ring.run();
}

TEST(EngineVerify, EqualResultsAreNoNews) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Ring ring(3, 2, with_verification());
    std::vector<Ticket> all;
    for (uint64_t number = 0; number < 4; ++number) {
      const auto tickets = ring.submit_all(op(number), sum_of(300));
      all.insert(all.end(), tickets.begin(), tickets.end());
    }
    ring.run_shuffled(seed);
    EXPECT_TRUE(ring.all_ok(all));
    for (uint32_t node = 0; node < 3; ++node) EXPECT_TRUE(ring.failures(node).empty());
    EXPECT_EQ(ring.under_way(FrameType::kDigest), 0u);
    leave_all(ring);
  }
}

TEST(EngineVerify, TwoNodesThatDifferAreNamed) {
  Ring ring(3, 1, with_verification());
  ring.garbled = {{1, 1}};  // rank 1, of b
  ring.submit_all(op(0), sum_of(300));
  ring.run();
  ASSERT_EQ(ring.failures(1).size(), 1u);
  EXPECT_EQ(ring.failures(1)[0].cause, Cause::kCorrupted);
  EXPECT_THAT(describe(ring.failures(1)[0]),
              HasSubstr("nodes a and b hold different results of op 0"));
  ASSERT_EQ(ring.failures(2).size(), 1u);
  EXPECT_THAT(describe(ring.failures(2)[0]), HasSubstr("nodes b and c"));
  EXPECT_TRUE(ring.failures(0).empty()) << "c and a hold the same";
}

TEST(EngineVerify, TwoRanksOfANodeThatDifferAreNamed) {
  Ring ring(2, 2, with_verification());
  ring.garbled = {{1, 3}};
  ring.submit_all(op(0), sum_of(300));
  ring.run();
  ASSERT_EQ(ring.failures(1).size(), 1u);
  EXPECT_THAT(describe(ring.failures(1)[0]),
              HasSubstr("node b: its ranks 2 and 3 hold different results of op 0"));
}

TEST(EngineVerify, WhoDoesNotVerifySaysAndHearsNothing) {
  Ring ring(3, 1);
  ring.garbled = {{1, 1}};
  const auto tickets = ring.submit_all(op(0), sum_of(300));
  Frame digest = ring.frame(FrameType::kDigest, op(0));
  ring.engine(1).on_frame(0, digest, 0);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  for (uint32_t node = 0; node < 3; ++node) EXPECT_TRUE(ring.failures(node).empty());
  leave_all(ring);
}

TEST(EngineVerify, WhatNoNeighbourAnswersIsLetGoOf) {
  Ring ring(2, 1, with_verification());
  for (uint64_t number = 0; number < 10'000; ++number) {
    ring.engine(1).on_frame(0, ring.frame(FrameType::kDigest, op(100 + number)), 0);
  }
  const auto tickets = ring.submit_all(op(0), sum_of(300));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  leave_all(ring);
}

}  // namespace
}  // namespace gradring::core
