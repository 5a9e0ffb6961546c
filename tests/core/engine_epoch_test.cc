// One epoch ends with a report and the next begins with a decision: rules V2, V6, V8, V10.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

// ---- what is kept for others ----

// a and c have completed an op of one slice; b lacks it. That is where the epoch ends.
struct LastLacks : Ring {
  explicit LastLacks(const std::string& policy = "elastic") : Ring(3, 1, small_slices(), policy) {
    hold(0, 1);
    tickets = submit_all(op(0), sum_of(16));
    run();
    deliver_first(0, 1, FrameType::kReady);
    pump(1);
    deliver_first(0, 1, FrameType::kSlice);
    run();
    EXPECT_TRUE(ended(tickets[0]) && ended(tickets[2]) && !ended(tickets[1]));
    EXPECT_EQ(under_way(0, 1, FrameType::kSlice), 1u) << "the final value";
  }
  void expect_nothing_left(std::initializer_list<uint32_t> members) {
    for (const uint32_t node : members) {
      EXPECT_EQ(engine(node).open_ops() + engine(node).kept_ops() + copies(node), 0u) << node;
      EXPECT_EQ(engine(node).slots_in_use(), 0u) << node;
    }
  }
  std::vector<Ticket> tickets;
};

TEST(EngineEpoch, WhoCompletedGivesOutWhatItKept) {
  LastLacks ring;
  ring.change_view();
  EXPECT_FALSE(ring.ended(ring.tickets[1])) << "told when it is there, not when it is promised";
  ring.release(0, 1);
  ring.run();
  EXPECT_TRUE(ring.all_ok(ring.tickets));
  EXPECT_EQ(ring.result(ring.tickets[1]), ring.result(ring.tickets[0]));
  EXPECT_EQ(ring.engine(0).counters().slices_handed, 1u);
  EXPECT_EQ(ring.engine(1).counters().frames_stale, 1u) << "what a had sent before";
  // c, which has completed it long ago, was the last to be handed the value.
  ring.expect_nothing_left({0, 1, 2});
}

// Nobody is asked whether it is ready, so nobody has not said so.
TEST(EngineEpoch, WhatIsGivenOutAndDoesNotComeIsMissedOfThePredecessor) {
  LastLacks ring;
  ring.change_view();
  const std::vector<OpProgress> open = ring.engine(1).progress(8);
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].missing_nodes, std::vector<std::string>());
  ring.engine(1).tick(ring.now);
  ring.engine(1).tick(ring.now + 1801 * kSecond);
  ASSERT_EQ(ring.failures(1).size(), 1u);
  EXPECT_EQ(ring.failures(1)[0].blame.node, "a");
  EXPECT_THAT(ring.failures(1)[0].blame.evidence,
              testing::HasSubstr("0 of its 1 slices are complete here; "));
}

TEST(EngineEpoch, ADecisionThatDoesNotFitFailsTheJob) {
  for (const bool too_many : {true, false}) {
    LastLacks ring;
    for (const uint32_t node : {0u, 1u, 2u}) ring.freeze(node);
    Proposal proposal = ring.decide();
    std::vector<OpFate> fates = proposal.ops.all();
    ASSERT_EQ(fates.size(), 1u);
    ASSERT_FALSE(fates[0].slices.empty());
    if (too_many) {
      fates[0].slices[0].count += 1000;
    } else {
      fates[0].slice_bytes = 1;
    }
    proposal.ops = std::move(fates);
    ring.adopt(1, proposal);
    ASSERT_EQ(ring.failures(1).size(), 1u);
    EXPECT_EQ(ring.failures(1)[0].cause, Cause::kProtocol);
    EXPECT_THAT(ring.failures(1)[0].blame.evidence, testing::HasSubstr("the new view wants"));
  }
}

// ---- what is submitted while the view changes ----

TEST(EngineEpoch, WhoSubmitsDuringTheChangeCountsTheSameAsWhoSubmitsAfterIt) {
  Ring ring(3, 1, small_slices(), "elastic");
  ring.crash(2);
  for (const uint32_t node : {0u, 1u}) ring.freeze(node);
  const Ticket during = ring.submit(0, op(0), sum_of(100), values_of(0, 100));
  ring.run();
  EXPECT_EQ(ring.under_way(0, 1, FrameType::kReady), 0u) << "frozen";
  const Proposal proposal = ring.decide();
  for (const uint32_t node : {0u, 1u}) ring.adopt(node, proposal);
  const Ticket after = ring.submit(1, op(0), sum_of(100), values_of(1, 100));
  ring.run();
  EXPECT_TRUE(ring.all_ok({during, after})) << "c was not there any more when it began";
  EXPECT_EQ(ring.outcome(during).ranks_min, 2u);
}

TEST(EngineEpoch, ABroadcastSubmittedDuringTheChangeWhoseRootIsLostFails) {
  Ring ring(3, 1, small_slices(), "elastic");
  ring.crash(2);
  for (const uint32_t node : {0u, 1u}) ring.freeze(node);
  const std::vector<Ticket> during = {ring.submit(0, op(0), broadcast_of(50, 2)),
                                      ring.submit(1, op(0), broadcast_of(50, 2))};
  const Proposal proposal = ring.decide();
  for (const uint32_t node : {0u, 1u}) ring.adopt(node, proposal);
  ring.run();
  for (const Ticket ticket : during) {
    EXPECT_EQ(ring.outcome(ticket).verdict, Verdict::kFailed);
    EXPECT_EQ(ring.outcome(ticket).failure.cause, Cause::kRootLost);
    EXPECT_EQ(ring.outcome(ticket).failure.blame.rank, 2u);
  }
  EXPECT_EQ(ring.failures(), 0u) << "the job goes on";
}

TEST(EngineEpoch, WhereARootWasInAnEarlierViewCountsNoMore) {
  // The view of epoch 2 tells a where the root's input is. Then that node is lost, and a's rank
  // submits too late to be reported.
  Ring ring(3, 1, small_slices(), "elastic");
  ring.submit(1, op(0), broadcast_of(50, 1));
  ring.change_view();
  ring.crash(1);
  for (const uint32_t node : {0u, 2u}) ring.freeze(node);
  const Ticket during = ring.submit(0, op(0), broadcast_of(50, 1));
  const Proposal proposal = ring.decide();
  for (const uint32_t node : {0u, 2u}) ring.adopt(node, proposal);
  ring.run();
  ASSERT_TRUE(ring.ended(during));
  EXPECT_EQ(ring.outcome(during).failure.cause, Cause::kRootLost);
  EXPECT_EQ(ring.failures(), 0u) << "the job goes on";
}

TEST(EngineEpoch, AMismatchSubmittedDuringTheChangeIsToldAfterIt) {
  Ring ring(2, 2, small_slices(), "elastic");
  for (const uint32_t node : {0u, 1u}) ring.freeze(node);
  const Ticket one = ring.submit(0, op(0), sum_of(1));
  const Ticket other = ring.submit(1, op(0), sum_of(2));
  EXPECT_FALSE(ring.ended(one)) << "after the report nothing is told";
  const Proposal proposal = ring.decide();
  for (const uint32_t node : {0u, 1u}) ring.adopt(node, proposal);
  ring.run();
  for (const Ticket ticket : {one, other}) {
    EXPECT_EQ(ring.outcome(ticket).failure.cause, Cause::kMismatch);
  }
}

// ---- what the dead leave behind ----

TEST(EngineEpoch, WhatADeadRankHadSubmittedCounts) {
  Ring ring(2, 2, small_slices(), "elastic");
  std::vector<Ticket> tickets;
  for (const uint32_t rank : {0u, 1u, 3u}) {
    tickets.push_back(ring.submit(rank, op(0), sum_of(100), values_of(rank, 100)));
  }
  ring.lose_rank(1);  // has submitted op 0, and not op 1
  const Ticket next = ring.submit(0, op(1), sum_of(30), values_of(0, 30, 1));
  ASSERT_EQ(ring.absences(0).size(), 1u);
  ring.change_view();
  tickets.push_back(ring.submit(2, op(0), sum_of(100), values_of(2, 100)));
  const Ticket next_of_b = ring.submit(2, op(1), sum_of(30), values_of(2, 30, 1));
  ring.submit(3, op(1), sum_of(30), values_of(3, 30, 1));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets)) << "nothing is missing";
  EXPECT_EQ(ring.outcome(tickets[0]).ranks_min, 4u);
  const uint32_t floats = slice_bytes_for(sum_of(100), 2, small_slices().plan) / sizeof(float);
  EXPECT_EQ(ring.result(tickets[0]), ring_sum(ring.view(), 100, 0, floats));
  for (const Ticket ticket : {next, next_of_b}) {
    EXPECT_EQ(ring.outcome(ticket).verdict, Verdict::kOkShrunk);
    EXPECT_EQ(ring.outcome(ticket).ranks_max, 3u);
  }
}

TEST(EngineEpoch, WithPolicyFailOnlyWhatNeedsNothingLostEndsWell) {
  Ring ring(2, 1);
  const std::vector<Ticket> both = ring.submit_all(op(0), sum_of(100));
  const Ticket alone = ring.submit(0, op(1), sum_of(10));
  ring.lose_rank(1);
  ring.change_view();
  EXPECT_EQ(ring.outcome(alone).failure.cause, Cause::kTrainerDied);
  EXPECT_EQ(ring.outcome(ring.submit(0, op(2), sum_of(10))).failure.blame.rank, 1u);
  ring.run();
  EXPECT_TRUE(ring.all_ok(both)) << "rank 1 died after it had submitted that one";
}

// ---- the fence ----

TEST(EngineEpoch, FramesOfTheOldEpochChangeNothing) {
  Ring ring(3, 1, small_slices(), "elastic");
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(100));
  for (uint32_t node = 0; node < 3; ++node) ring.pump(node);
  const size_t old = ring.under_way(FrameType::kReady);
  ASSERT_EQ(old, 6u);
  ring.change_view();
  for (const FrameType type : {FrameType::kCredit, FrameType::kStable, FrameType::kMismatch}) {
    Frame frame = ring.frame(type, op(0));  // of epoch 1
    frame.mismatch = {0, 1, sum_of(1), sum_of(2)};
    frame.credit.freed_total = 99;
    ring.inject(0, 1, frame);
  }
  EXPECT_EQ(ring.engine(1).counters().frames_stale, 3u);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  uint64_t stale = 0;
  for (uint32_t node = 0; node < 3; ++node) stale += ring.engine(node).counters().frames_stale;
  EXPECT_EQ(stale, 3u + old);
  EXPECT_EQ(ring.outcome(tickets[0]).epoch, 2u);
}

TEST(EngineEpoch, AfterTheReportNothingIsTakenOrSent) {
  Ring ring(2);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(100));
  ring.freeze(1);
  ring.run();  // Ring checks that b says nothing
  EXPECT_FALSE(ring.ended(tickets[0]) || ring.ended(tickets[1]));
  EXPECT_GT(ring.engine(1).counters().frames_stale, 0u);
  EXPECT_FALSE(ring.engine(1).drained());
  EXPECT_EQ(ring.engine(1).slots_in_use(), 0u);
}

}  // namespace
}  // namespace gradring::core
