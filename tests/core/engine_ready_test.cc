// Rule D1: an op moves when every rank of every node has submitted it, and not before.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

TEST(EngineReady, NoSliceMovesBeforeEveryRankOfEveryNodeHasSubmitted) {
  Ring ring(2, 2);
  std::vector<Ticket> tickets;
  // Ranks 0 and 1 live on a, 2 and 3 on b. While one of a is missing, a says nothing.
  tickets.push_back(ring.submit(0, op(0), sum_of(100), values_of(0, 100)));
  ring.run();
  EXPECT_EQ(ring.engine(0).counters().slices_sent, 0u);
  EXPECT_EQ(ring.engine(1).open_ops(), 0u) << "b has heard of the op before a was ready";

  // a is ready; b is told, and waits for its own ranks.
  tickets.push_back(ring.submit(1, op(0), sum_of(100), values_of(1, 100)));
  EXPECT_EQ(ring.under_way(0, 1, FrameType::kReady), 1u);
  ring.run();
  tickets.push_back(ring.submit(3, op(0), sum_of(100), values_of(3, 100)));
  ring.run();
  EXPECT_EQ(ring.under_way(1, 0, FrameType::kReady), 0u);
  EXPECT_EQ(ring.engine(0).counters().slices_sent + ring.engine(1).counters().slices_sent, 0u);

  // The last rank submits: now everything moves.
  tickets.push_back(ring.submit(2, op(0), sum_of(100), values_of(2, 100)));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_GT(ring.engine(0).counters().slices_sent, 0u);
}

TEST(EngineReady, ReadyGoesOnceToEveryOtherMemberInTheNameOfTheLowestRank) {
  Ring ring(3, 2);
  ring.submit(3, op(7), sum_of(5));
  ring.submit(2, op(7), sum_of(5));
  for (const uint32_t to : {0u, 2u}) {
    ASSERT_EQ(ring.under_way(1, to, FrameType::kReady), 1u);
    const Frame ready = ring.peek(1, to, FrameType::kReady);
    EXPECT_EQ(ready.key, op(7));
    EXPECT_EQ(ready.epoch, ring.view().epoch);
    EXPECT_EQ(ready.job, ring.view().incarnation);
    EXPECT_EQ(ready.ready.rank, 2u);
    EXPECT_EQ(ready.ready.signature, sum_of(5));
  }
}

TEST(EngineReady, OpsSubmittedInDifferentOrdersDoNotBlock) {
  Ring ring(3, 1, small_slices(2));
  constexpr uint64_t kOps = 6;
  std::vector<Ticket> tickets;
  // a counts up, b counts down, c begins in the middle; each waits for nothing in between.
  for (uint64_t i = 0; i < kOps; ++i) {
    const uint64_t order[] = {i, kOps - 1 - i, (i + 3) % kOps};
    for (uint32_t rank = 0; rank < 3; ++rank) {
      tickets.push_back(
          ring.submit(rank, op(order[rank]), sum_of(300), values_of(rank, 300, order[rank])));
    }
    ring.run();
  }
  EXPECT_TRUE(ring.all_ok(tickets));
  for (uint32_t node = 0; node < 3; ++node) EXPECT_EQ(ring.engine(node).open_ops(), 0u);
}

TEST(EngineReady, AnOpThatOneNodeNeverSubmitsDoesNotHoldUpTheNext) {
  Ring ring(2);
  const Ticket waits = ring.submit(0, op(0), sum_of(1000));
  ring.run();
  const std::vector<Ticket> next = ring.submit_all(op(1), sum_of(1000));
  ring.run();
  EXPECT_TRUE(ring.all_ok(next));
  EXPECT_FALSE(ring.ended(waits));
}

TEST(EngineReady, ANodeMayTakePartBeforeItHasHeardThatAllAreReady) {
  // A broadcast from a: b can pass slices on to c although c's READY is still on its way to b.
  Ring ring(3);
  ring.hold(2, 1);
  const Values values = values_of(0, 40);
  std::vector<Ticket> tickets;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    tickets.push_back(
        ring.submit(rank, op(0), broadcast_of(40, 0), rank == 0 ? values : Values(40, 0.0f)));
  }
  ring.run();
  EXPECT_EQ(ring.engine(1).counters().ops_completed, 1u) << "b has all slices";
  EXPECT_EQ(ring.under_way(2, 1, FrameType::kReady), 1u);
  EXPECT_EQ(ring.result(tickets[1]), values);

  // The READY comes after the op has ended at b: harmless, and no new op begins.
  ring.release(2, 1);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_EQ(ring.engine(1).open_ops(), 0u);
  EXPECT_EQ(ring.engine(1).counters().frames_repeated, 1u);
  EXPECT_EQ(ring.failures(), 0u);
}

TEST(EngineReady, SlicesThatStartHereWaitForEveryReady) {
  // In an allreduce b takes what comes from a, but starts its own slices only when c is ready too.
  Ring ring(3);
  ring.hold(2, 1);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(300));
  ring.run();
  EXPECT_GT(ring.engine(1).counters().slices_received, 0u);
  EXPECT_EQ(ring.engine(1).open_ops(), 1u);
  EXPECT_FALSE(ring.ended(tickets[1]));
  ring.release(2, 1);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

TEST(EngineReady, ABarrierEndsWhenAllAreReadyAndMovesNothing) {
  Ring ring(3);
  std::vector<Ticket> tickets = {ring.submit(0, op(0), barrier()),
                                 ring.submit(1, op(0), barrier())};
  ring.run();
  EXPECT_FALSE(ring.ended(tickets[0]));
  tickets.push_back(ring.submit(2, op(0), barrier()));
  EXPECT_TRUE(ring.ended(tickets[2])) << "c has heard of the others already";
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  for (uint32_t node = 0; node < 3; ++node) {
    EXPECT_EQ(ring.engine(node).counters().slices_sent, 0u);
    EXPECT_EQ(ring.engine(node).open_ops(), 0u);
  }
}

TEST(EngineReady, AnOpOfNothingIsABarrierWithATypeToAgreeOn) {
  Ring ring(2);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(0));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_EQ(ring.engine(0).counters().slices_sent, 0u);
}

TEST(EngineReady, ASingleNodeNeedsNobody) {
  Ring ring(1, 3);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(1000));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_EQ(ring.engine(0).counters().slices_sent, 0u);
  EXPECT_EQ(ring.outcome(tickets[0]).ranks_min, 3u);
}

TEST(EngineReady, ProgressSaysWhoIsMissing) {
  Ring ring(2, 2);
  ring.submit(1, op(4), sum_of(100), {}, Place::kApart, "layer1.weight");
  ring.run();
  const std::vector<OpProgress> at_a = ring.engine(0).progress(10);
  ASSERT_EQ(at_a.size(), 1u);
  EXPECT_EQ(at_a[0].key, op(4));
  EXPECT_EQ(at_a[0].name, "layer1.weight");
  EXPECT_EQ(at_a[0].signature, sum_of(100));
  EXPECT_EQ(at_a[0].since, ring.now);
  EXPECT_EQ(at_a[0].missing_ranks, std::vector<uint32_t>{0});
  EXPECT_EQ(at_a[0].missing_nodes, std::vector<std::string>{"b"});
  EXPECT_TRUE(ring.engine(1).progress(10).empty()) << "b cannot know yet";

  // a is ready: b knows of the op although none of its ranks does.
  ring.submit(0, op(4), sum_of(100));
  ring.run();
  const std::vector<OpProgress> at_b = ring.engine(1).progress(10);
  ASSERT_EQ(at_b.size(), 1u);
  EXPECT_EQ(at_b[0].missing_ranks, (std::vector<uint32_t>{2, 3}));
  EXPECT_TRUE(at_b[0].missing_nodes.empty());
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ring.engine_of_rank(rank).submitted(rank), rank < 2 ? 1u : 0u);
  }

  for (uint64_t i = 5; i < 20; ++i) ring.submit(0, op(i), sum_of(1));
  EXPECT_EQ(ring.engine(0).progress(3).size(), 3u) << "no more than asked for";
}

// Of many it is the oldest that something is wrong with, whatever their keys are.
TEST(EngineReady, ProgressBeginsWithTheOldest) {
  Ring ring(2, 1);
  for (uint64_t i = 10; i > 0; --i) {
    ring.submit(0, op(i), sum_of(1));
    ++ring.now;
  }
  const std::vector<OpProgress> open = ring.engine(0).progress(3);
  ASSERT_EQ(open.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(open[i].key, op(10 - i));
}

}  // namespace
}  // namespace gradring::core
