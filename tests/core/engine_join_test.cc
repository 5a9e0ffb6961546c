// Ranks that have no more data stand in for themselves in the ops of the others.

#include <gmock/gmock.h>

#include "proto/gone_back.h"
#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(EngineJoin, WhoHasJoinedIsAskedForEachOpOfTheOthers) {
  Ring ring(2, 2);
  const Ticket joined = ring.submit(3, kJoinKey, join(), {1});
  std::vector<Ticket> tickets;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    tickets.push_back(ring.submit(rank, op(0), sum_of(10), values_of(rank, 10)));
  }
  ring.run();
  EXPECT_THAT(ring.asked(1), ElementsAre(Asked{3, op(0), sum_of(10)})) << "once, by rank 2";
  EXPECT_THAT(ring.asked(0), IsEmpty());
  tickets.push_back(ring.submit(3, op(0), sum_of(10), Values(10)));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_FALSE(ring.ended(joined)) << "the others have not joined";
}

TEST(EngineJoin, ANodeWhoseRanksHaveAllJoinedHearsOfOpsFromOthers) {
  Ring ring(2);
  ring.submit(1, kJoinKey, join(), {1});
  ring.submit(0, op(7), sum_of(10), values_of(0, 10));
  ring.run();
  EXPECT_THAT(ring.asked(1), ElementsAre(Asked{1, op(7), sum_of(10)}));
}

TEST(EngineJoin, WhatIsOpenAlreadyIsAskedForToo) {
  Ring ring(2);
  ring.submit(0, op(0), sum_of(10), values_of(0, 10));
  ring.run();
  EXPECT_THAT(ring.asked(1), IsEmpty());
  ring.submit(1, kJoinKey, join(), {1});
  EXPECT_THAT(ring.asked(1), ElementsAre(Asked{1, op(0), sum_of(10)}));
}

TEST(EngineJoin, EndsWhenAllHaveJoinedAndAllElseHasEnded) {
  Ring ring(2);
  std::vector<Ticket> tickets{ring.submit(0, op(0), sum_of(10), values_of(0, 10))};
  const std::vector<Ticket> joins{ring.submit(0, kJoinKey, join(), {1}),
                                  ring.submit(1, kJoinKey, join(), {1})};
  ring.run();
  EXPECT_FALSE(ring.ended(joins[0]) || ring.ended(joins[1])) << "rank 1 lacks an op";
  tickets.push_back(ring.submit(1, op(0), sum_of(10), Values(10)));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_TRUE(ring.all_ok(joins));
  tickets = ring.submit_all(op(1), sum_of(10));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets)) << "and all go on";
  EXPECT_EQ(ring.asked(1).size(), 1u) << "nobody is asked any more";
  const OpKey again{OpKey::kNoMoreSpace, 1};
  tickets = {ring.submit(0, again, join(), {1}), ring.submit(1, again, join(), {1})};
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

// One member knows of the end of a join before another does, and goes on.
TEST(EngineJoin, NobodyIsAskedForWhatComesAfterIt) {
  Ring ring(3);
  std::vector<Ticket> tickets{ring.submit(2, kJoinKey, join(), {1})};
  ring.run();
  ring.hold(2, 0);  // the sum, which is final at c first
  for (const uint32_t rank : {0u, 1u}) tickets.push_back(ring.submit(rank, kJoinKey, join(), {1}));
  ring.run();
  ASSERT_TRUE(ring.ended(tickets[0]));
  ASSERT_FALSE(ring.ended(tickets[1]) || ring.ended(tickets[2]));
  tickets.push_back(ring.submit(2, op(0), sum_of(10), values_of(2, 10)));
  ring.run();
  EXPECT_THAT(ring.asked(1), IsEmpty()) << "b has heard of it";
  ring.release(2, 0);
  ring.run();
  for (const uint32_t rank : {0u, 1u}) {
    tickets.push_back(ring.submit(rank, op(0), sum_of(10), values_of(rank, 10)));
  }
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

// A view says that the join has ended somewhere, before its end is here.
TEST(EngineJoin, NobodyIsAskedForWhatComesAfterOneThatAViewHandsOn) {
  Ring ring(3);
  std::vector<Ticket> tickets{ring.submit(2, kJoinKey, join(), {1})};
  ring.run();
  ring.hold(2, 0);
  for (const uint32_t rank : {0u, 1u}) tickets.push_back(ring.submit(rank, kJoinKey, join(), {1}));
  ring.run();
  ASSERT_TRUE(ring.ended(tickets[0]));
  ring.change_view();
  ring.release(2, 0);
  tickets.push_back(ring.submit(2, op(0), sum_of(10), values_of(2, 10)));
  for (const uint32_t node : {0u, 1u}) {
    ASSERT_TRUE(ring.deliver_first(2, node, FrameType::kReady));
    EXPECT_THAT(ring.asked(node), IsEmpty());
  }
  ring.run();
  for (const uint32_t rank : {0u, 1u}) {
    tickets.push_back(ring.submit(rank, op(0), sum_of(10), values_of(rank, 10)));
  }
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

TEST(EngineJoin, WaitsUntilWhatHasFailedIsKnownToAllWhoJoined) {
  Ring ring(2, 2);
  const std::vector<Ticket> failed{ring.submit(0, op(0), sum_of(1)),
                                   ring.submit(1, op(0), sum_of(2))};
  ring.run();
  std::vector<Ticket> joins;
  for (const uint32_t rank : {0u, 1u, 2u, 3u}) {
    joins.push_back(ring.submit(rank, kJoinKey, join(), {1}));
  }
  ring.run();
  EXPECT_THAT(ring.asked(1),
              ElementsAre(Asked{2, op(0), std::nullopt}, Asked{3, op(0), std::nullopt}));
  EXPECT_FALSE(ring.ended(joins[0]));
  for (const uint32_t rank : {2u, 3u}) {
    const Ticket told = ring.submit(rank, op(0), join(), {1});
    EXPECT_EQ(ring.outcome(told).failure.cause, Cause::kMismatch);
  }
  ring.run();
  EXPECT_TRUE(ring.all_ok(joins));
}

// The node was ready for the join before it heard of the op.
TEST(EngineJoin, WaitsForTheAnswerToWhatFailedByAnothers) {
  Ring ring(2, 2);
  std::vector<Ticket> joins, failed;
  for (const uint32_t rank : {2u, 3u}) joins.push_back(ring.submit(rank, kJoinKey, join(), {1}));
  ring.run();
  for (const uint32_t rank : {0u, 1u}) {
    failed.push_back(ring.submit(rank, op(0), sum_of(10), values_of(rank, 10)));
  }
  ring.run();
  failed.push_back(ring.submit(2, op(0), join(), {1}));
  ring.run();
  for (const uint32_t rank : {0u, 1u}) joins.push_back(ring.submit(rank, kJoinKey, join(), {1}));
  ring.run();
  EXPECT_FALSE(ring.ended(joins[0]) || ring.ended(joins[1])) << "rank 3 has not counted the op";
  failed.push_back(ring.submit(3, op(0), join(), {1}));
  ring.run();
  for (const Ticket ticket : failed) {
    EXPECT_EQ(ring.outcome(ticket).failure.cause, Cause::kMismatch);
  }
  EXPECT_TRUE(ring.all_ok(joins));
  const std::vector<Ticket> next = ring.submit_all(op(1), sum_of(10));
  ring.run();
  EXPECT_TRUE(ring.all_ok(next)) << "all count alike";
}

TEST(EngineJoin, DoesNotWaitForARankThatDiedBeforeItWasToldOfAFailure) {
  Ring ring(2, 2, small_slices(), "elastic");
  std::vector<Ticket> failed{ring.submit(0, op(0), sum_of(1)), ring.submit(1, op(0), sum_of(2))};
  ring.run();
  failed.push_back(ring.submit(2, op(0), sum_of(1)));
  for (const Ticket ticket : failed) EXPECT_EQ(ring.outcome(ticket).verdict, Verdict::kFailed);
  ring.lose_rank(3);
  ring.change_view();
  std::vector<Ticket> joins;
  for (const uint32_t rank : {0u, 1u, 2u})
    joins.push_back(ring.submit(rank, kJoinKey, join(), {1}));
  ring.run();
  EXPECT_TRUE(ring.ended(joins[0]) && ring.ended(joins[1]) && ring.ended(joins[2]));
}

TEST(EngineJoin, WhoCannotStandInFailsTheOpAlone) {
  Ring ring(2);
  ring.submit(1, kJoinKey, join(), {1});
  const Ticket from_one = ring.submit(0, op(0), broadcast_of(10, 1));
  ring.run();
  const Ticket refused = ring.submit(1, op(0), join(), {1});
  ring.run();
  for (const Ticket ticket : {from_one, refused}) {
    const Outcome outcome = ring.outcome(ticket);
    EXPECT_EQ(outcome.failure.cause, Cause::kMismatch);
    EXPECT_THAT(outcome.failure.blame.evidence,
                HasSubstr("submitted broadcast of 10 float32 from rank 1, but rank 1 (node b, pid "
                          "1001) submitted join"));
  }
  EXPECT_EQ(ring.failures(), 0u);
}

TEST(EngineJoin, WhoHasGoneBackIsSaidToHaveDoneThat) {
  Ring ring(2);
  ring.submit(1, kJoinKey, join(), {1});
  const Ticket from_zero = ring.submit(0, op(0), sum_of(10));
  ring.run();
  ring.submit(1, op(0), gone_back(), {1});
  ring.run();
  EXPECT_THAT(ring.outcome(from_zero).failure.blame.evidence,
              HasSubstr("submitted allreduce sum of 10 float32, but rank 1 (node b, pid 1001) has "
                        "gone back to an earlier step"));
}

TEST(EngineJoin, AJoinPointFailsForAllAndIsAskedForSoAsToBeCounted) {
  Ring ring(2, 1, small_slices(), "elastic");
  const Ticket joined = ring.submit(1, kJoinKey, join(), {1});
  const Ticket at_a = ring.submit(0, op(0), join_point());
  ring.run();
  EXPECT_EQ(ring.outcome(at_a).failure.cause, Cause::kMismatch);
  EXPECT_THAT(ring.outcome(at_a).failure.blame.evidence,
              HasSubstr("rank 1 (node b, pid 1001) has gone back to an earlier step, or joined"));
  EXPECT_THAT(ring.asked(1), ElementsAre(Asked{1, {OpKey::kJoinSpace, 0}, std::nullopt}));
  EXPECT_FALSE(ring.ended(joined));
  const Ticket at_b = ring.submit(1, op(0), join_point());
  EXPECT_EQ(ring.outcome(at_b).failure.cause, Cause::kMismatch);
  const Ticket other = ring.submit(0, kJoinKey, join(), {1});
  ring.run();
  EXPECT_TRUE(ring.all_ok({joined, other}));
  const std::vector<Ticket> next = ring.submit_all(op(1), join_point());
  ring.run();
  EXPECT_TRUE(ring.all_ok(next)) << "both count alike";
}

TEST(EngineJoin, AJoinPointFailsWhereItsNodeKnewOfTheJoinBefore) {
  for (const bool tree : {false, true}) {
    EngineOptions options = small_slices();
    if (tree) options.ready_tree_above = 1;
    Ring ring(3, 1, options, "elastic");
    const Ticket joined = ring.submit(2, kJoinKey, join(), {1});
    ring.run();
    std::vector<Ticket> at{ring.submit(0, op(0), join_point())};
    ring.run();
    EXPECT_EQ(ring.outcome(at[0]).failure.cause, Cause::kMismatch);
    EXPECT_THAT(ring.asked(2), ElementsAre(Asked{2, {OpKey::kJoinSpace, 0}, std::nullopt}));
    at.push_back(ring.submit(2, op(0), join_point()));
    at.push_back(ring.submit(1, op(0), join_point()));
    ring.run();
    for (const Ticket ticket : at) {
      EXPECT_EQ(ring.outcome(ticket).failure.cause, Cause::kMismatch);
    }
    std::vector<Ticket> joins{joined, ring.submit(0, kJoinKey, join(), {1})};
    joins.push_back(ring.submit(1, kJoinKey, join(), {1}));
    ring.run();
    EXPECT_TRUE(ring.all_ok(joins));
    const std::vector<Ticket> next = ring.submit_all(op(1), join_point());
    ring.run();
    EXPECT_TRUE(ring.all_ok(next));
  }
}

TEST(EngineJoin, KeysAndJoinsBelongTogether) {
  Ring ring(2);
  EXPECT_THAT(ring.refused(0, kJoinKey, sum_of(1)).message(), HasSubstr("that of joins"));
  EXPECT_THAT(ring.refused(0, op(0), join()).message(), HasSubstr("rank 0 has not joined"));
  ring.submit(0, kJoinKey, join(), {1});
  EXPECT_THAT(ring.refused(0, {OpKey::kNoMoreSpace, 1}, join()).message(),
              HasSubstr("joined already"));
}

TEST(EngineJoin, ARestartOfTheDaemonAsksAgain) {
  Ring ring(2);
  const Ticket joined = ring.submit(1, kJoinKey, join(), {1});
  std::vector<Ticket> tickets{ring.submit(0, op(0), sum_of(10), values_of(0, 10))};
  ring.run();
  ring.restart(1);
  ring.change_view();
  ring.run();
  EXPECT_THAT(ring.asked(1), ElementsAre(Asked{1, op(0), sum_of(10)}));
  tickets.push_back(ring.submit(1, op(0), sum_of(10), Values(10)));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  const Ticket last = ring.submit(0, kJoinKey, join(), {1});
  ring.run();
  EXPECT_TRUE(ring.all_ok({joined, last}));
}

// It is kept in the record for those who lack its end.
TEST(EngineJoin, OneThatEndedBeforeARestartIsOverAfterIt) {
  Ring ring(3);
  std::vector<Ticket> joins{ring.submit(2, kJoinKey, join(), {1})};
  ring.run();
  ring.hold(2, 0);
  for (const uint32_t rank : {0u, 1u}) joins.push_back(ring.submit(rank, kJoinKey, join(), {1}));
  ring.run();
  ASSERT_TRUE(ring.ended(joins[0]) && !ring.ended(joins[1]));
  ring.restart(2);
  ring.change_view();
  ring.release(2, 0);
  ring.run();
  ASSERT_TRUE(ring.all_ok(joins));
  std::vector<Ticket> tickets;
  for (const uint32_t rank : {0u, 1u}) tickets.push_back(ring.submit(rank, op(0), join_point()));
  ring.run();
  EXPECT_THAT(ring.asked(2), IsEmpty()) << "it has more data, and comes there";
  tickets.push_back(ring.submit(2, op(0), join_point()));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  joins = ring.submit_all({OpKey::kNoMoreSpace, 1}, join());
  ring.run();
  EXPECT_TRUE(ring.all_ok(joins));
}

TEST(EngineJoin, ItsDeadlineBeginsAnewWithEachOpOfTheOthers) {
  EngineOptions options = small_slices();
  options.op_deadline = 100 * kSecond;
  Ring ring(1, 2, options);
  ring.now = 100 * kSecond;
  ring.submit(1, kJoinKey, join(), {1});
  ring.now = 160 * kSecond;
  const std::vector<Ticket> tickets{ring.submit(0, op(0), sum_of(10), values_of(0, 10)),
                                    ring.submit(1, op(0), sum_of(10), Values(10))};
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  ring.engine(0).tick(210 * kSecond);
  EXPECT_EQ(ring.failures(), 0u);
  ring.engine(0).tick(262 * kSecond);
  EXPECT_EQ(ring.failures(), 1u) << "nobody has done anything since";
}

// It would be open for ever, and READY for a join point is said where nothing else is.
TEST(EngineJoin, OfARankThatDiedIsWaitedForByNobody) {
  Ring ring(2, 2, small_slices(), "elastic");
  const Ticket joined = ring.submit(1, kJoinKey, join(), {1});
  ring.run();
  ring.lose_rank(1);
  ring.change_view();
  EXPECT_TRUE(ring.ended(joined));
  std::vector<Ticket> tickets;
  for (const uint32_t rank : {0u, 2u, 3u}) {
    tickets.push_back(ring.submit(rank, op(1), join_point()));
  }
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

// What all had joined is over for all, and nothing else is left to wait for.
TEST(EngineJoin, OfARankThatDiedEndsWhereAllHadJoinedAndTheJobEnds) {
  Ring ring(2, 1, small_slices());
  const Ticket dead = ring.submit(1, kJoinKey, join());
  const Ticket joined = ring.submit(0, kJoinKey, join());
  ring.lose_rank(1);
  ring.change_view();
  ASSERT_TRUE(ring.view_of(0).closed.has_value());
  ring.run();
  EXPECT_TRUE(ring.ended(joined));
  EXPECT_TRUE(ring.ended(dead));
}

}  // namespace
}  // namespace gradring::core
