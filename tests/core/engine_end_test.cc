// Trainers leave, nodes go, time runs out.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;

// ---- leaving ----

TEST(EngineLeave, BeforeAnOpThatOthersWaitForIsToldOnceAndNamesTheRank) {
  Ring ring(2);
  ring.submit(1, op(3), sum_of(10));
  ring.submit(1, op(4), sum_of(10));
  ring.run();
  ring.leave(0);
  ASSERT_EQ(ring.absences(0).size(), 1u) << "one absence, however many ops wait for it";
  EXPECT_EQ(ring.absences(0)[0].rank, std::optional<uint32_t>(0));
  EXPECT_EQ(ring.absences(0)[0].node, "a");
  const Failure& failure = ring.absences(0)[0].failure;
  EXPECT_EQ(failure.cause, Cause::kTrainerLeft);
  EXPECT_EQ(failure.blame.rank, 0u);
  EXPECT_EQ(failure.blame.node, "a");
  EXPECT_EQ(failure.blame.pid, 1000);
  EXPECT_THAT(failure.blame.evidence, HasSubstr("op 3 (allreduce sum of 10 float32)"));
}

// Only READY tells this node of the op, and READY has no names.
TEST(EngineLeave, TheOpIsNamedAsItWasWhenTheRankSubmittedIt) {
  const auto submit = [](Ring& ring, uint32_t rank, uint64_t use) {
    return ring.submit(rank, {7, use}, sum_of(10), {}, Place::kApart, use == 0 ? "layer1" : "");
  };
  Ring ring(2);
  const std::vector<Ticket> first{submit(ring, 0, 0), submit(ring, 1, 0)};
  ring.run();
  ASSERT_TRUE(ring.all_ok(first));
  submit(ring, 1, 1);
  ring.run();
  EXPECT_EQ(ring.engine(0).progress(1).at(0).name, "layer1");
  ring.leave(0);
  ASSERT_EQ(ring.absences(0).size(), 1u);
  EXPECT_THAT(ring.absences(0)[0].failure.blame.evidence, HasSubstr("op 'layer1' use 1"));
}

TEST(EngineLeave, TheSameWhenTheOthersSubmitAfterwards) {
  Ring ring(2, 2);
  ring.leave(1);
  EXPECT_EQ(ring.absences(), 0u) << "nobody waits yet";
  ring.submit(2, op(0), sum_of(10));
  ring.submit(3, op(0), sum_of(10));
  ring.run();
  ASSERT_EQ(ring.absences(0).size(), 1u);
  EXPECT_EQ(ring.absences(0)[0].rank, std::optional<uint32_t>(1));
  EXPECT_EQ(ring.absences(), 1u) << "b cannot know which rank of a is missing";

  // A rank of the same node waits just as much.
  Ring neighbour(2, 2);
  neighbour.leave(1);
  neighbour.submit(0, op(0), sum_of(10));
  ASSERT_EQ(neighbour.absences(0).size(), 1u);
  EXPECT_EQ(neighbour.absences(0)[0].failure.cause, Cause::kTrainerLeft);
}

TEST(EngineLeave, AfterSubmittingTheOpStillCompletes) {
  Ring ring(2);
  const Ticket gone = ring.submit(0, op(0), sum_of(500), values_of(0, 500));
  ring.leave(0);
  ring.run();
  EXPECT_FALSE(ring.engine(0).drained()) << "b still needs what a has submitted";
  const Ticket stays = ring.submit(1, op(0), sum_of(500), values_of(1, 500));
  ring.run();
  EXPECT_TRUE(ring.all_ok({gone, stays}));
  EXPECT_EQ(ring.failures() + ring.absences(), 0u);
  EXPECT_TRUE(ring.engine(0).drained());
  EXPECT_FALSE(ring.engine(1).drained()) << "rank 1 has not left";
}

TEST(EngineLeave, AfterEverythingItIsDrained) {
  Ring ring(2, 2);
  ring.submit_all(op(0), sum_of(500));
  ring.run();
  ring.leave(0);
  EXPECT_FALSE(ring.engine(0).drained()) << "rank 1 is still here";
  ring.leave(1);
  EXPECT_TRUE(ring.engine(0).drained());
  EXPECT_EQ(ring.refused(0, op(1), sum_of(1)).code(), Code::kAborted);
}

TEST(EngineLeave, NotDrainedWhileASliceIsUnderWay) {
  Ring ring(3);
  ring.hold(1, 2);
  ring.submit_all(op(0), broadcast_of(16, 0));
  ring.run();
  ring.leave(1);
  EXPECT_FALSE(ring.engine(1).drained()) << "a value still goes out of our memory";
  ring.release(1, 2);
  ring.run();
  EXPECT_TRUE(ring.engine(1).drained());
}

TEST(EngineLeave, AnOpThatFailedIsNotWaitedFor) {
  Ring ring(2, 2);
  ring.submit(0, op(0), sum_of(1));
  ring.submit(1, op(0), sum_of(2));
  ring.run();
  for (const uint32_t rank : {2u, 3u}) ring.leave(rank);
  EXPECT_EQ(ring.failures() + ring.absences(), 0u);
  EXPECT_TRUE(ring.engine(1).drained());
}

// A node that has said it is done may go. Only an op that it never was ready for still needs it.
TEST(EngineLeave, AMemberThatIsDoneMayGo) {
  Ring ring(2);
  ring.submit_all(op(0), sum_of(100));
  ring.run();
  const Ticket ready_before = ring.submit(1, op(1), barrier());
  ring.run();
  ring.engine(0).member_gone(1, lost("b"));
  EXPECT_EQ(ring.absences(), 0u);

  const Ticket completes = ring.submit(0, op(1), barrier());
  EXPECT_TRUE(ring.all_ok({completes})) << "b's part in it is here";
  EXPECT_FALSE(ring.ended(ready_before)) << "that is b's own business";
  ring.submit(0, op(2), sum_of(5));
  ring.submit(0, op(3), sum_of(5));
  ASSERT_EQ(ring.absences(0).size(), 1u);
  EXPECT_EQ(ring.absences(0)[0].rank, std::nullopt);
  EXPECT_EQ(ring.absences(0)[0].node, "b");
  EXPECT_EQ(ring.absences(0)[0].failure, lost("b"));
}

// b's rank has died, but what it submitted before goes on in the view that ends the job, and b is
// the first to know that all have it.
TEST(EngineLeave, AMemberWithoutRanksThatIsDoneMayGoAsWell) {
  Ring ring(3);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(100));
  ring.lose_rank(1);
  ring.change_view();
  ASSERT_TRUE(ring.view_of(0).closed.has_value());
  ASSERT_TRUE(ring.view_of(0).members[2].ranks.empty());
  ring.hold(1, 0);
  do {
    ring.run();
  } while (ring.deliver_first(1, 0, FrameType::kReady) ||
           ring.deliver_first(1, 0, FrameType::kSlice) ||
           ring.deliver_first(1, 0, FrameType::kCredit));
  ASSERT_TRUE(ring.all_ok(tickets));
  ASSERT_TRUE(ring.engine(1).drained());
  ring.crash(1);  // with its last words of that
  for (const uint32_t node : {0u, 2u}) {
    ring.leave(node);
    EXPECT_FALSE(ring.engine(node).drained());
    ring.engine(node).member_gone(2, lost("b"));
    EXPECT_EQ(ring.copies(node), 0u);
    EXPECT_TRUE(ring.engine(node).drained());
  }
}

TEST(EngineLeave, AMemberThatIsGoneAndThatAnOpWaitsForIsTold) {
  Ring ring(3);
  ring.submit(0, op(0), sum_of(5));
  ring.submit(1, op(0), sum_of(5));
  ring.run();
  ring.engine(0).member_gone(2, lost("c"));
  ASSERT_EQ(ring.absences(0).size(), 1u);
  EXPECT_EQ(ring.absences(0)[0].failure, lost("c"));
  EXPECT_EQ(ring.failures(), 0u) << "the view changes, the job need not fail";
}

// It has reported, so it came back. Told again and again of one that is there, the members would
// agree on the same view without end.
TEST(EngineLeave, AMemberThatWasGoneAndIsInTheNextViewIsNotTold) {
  Ring ring(3);
  ring.submit(0, op(0), sum_of(5));
  ring.submit(1, op(0), sum_of(5));
  ring.run();
  ring.engine(0).member_gone(2, lost("c"));
  ASSERT_EQ(ring.absences(0).size(), 1u);
  ring.change_view();
  ring.run();
  EXPECT_EQ(ring.absences(0).size(), 1u);
  ring.engine(0).member_gone(2, lost("c"));
  EXPECT_EQ(ring.absences(0).size(), 2u) << "it has gone again";
}

// d has nothing to do for that op, which says nothing of the others: b was done before it began.
TEST(EngineLeave, AMemberThatIsGoneHasEndedNothingThatItNeverSubmitted) {
  for (const bool large : {false, true}) {
    EngineOptions options = small_slices();
    if (large) options.ready_tree_above = 2;
    Ring ring(4, 1, options, "elastic");
    ring.leave(1);
    Signature scatter{Collective::kScatter, Dtype::kFloat32, ReduceOp::kNone, 0, 40, 4};
    scatter.blocks = *Blocks::of_ranks({40, 40, 40, 0});
    const std::vector<Ticket> tickets = {ring.submit(0, op(0), scatter, values_of(0, 120)),
                                         ring.submit(2, op(0), scatter),
                                         ring.submit(3, op(0), scatter)};
    ring.run();
    ring.crash(1);
    for (const uint32_t node : {0u, 2u, 3u}) ring.engine(node).member_gone(1, lost("b"));
    for (const Ticket& ticket : tickets) EXPECT_FALSE(ring.ended(ticket)) << large;
    EXPECT_EQ(ring.absences(3).size(), 1u) << large;
    ring.change_view();
    ring.run();
    for (const Ticket& ticket : tickets) {
      EXPECT_EQ(ring.outcome(ticket).verdict, Verdict::kFailed) << large << " " << ticket.rank;
    }
  }
}

// ---- the deadline of an op ----

TEST(EngineDeadline, NamesTheLocalRankThatNeverSubmitted) {
  Ring ring(2, 2);
  ring.submit(2, op(0), sum_of(10));
  ring.now += 1799 * kSecond;
  ring.engine(1).tick(ring.now);
  EXPECT_EQ(ring.failures(), 0u) << "waiting is not a fault";
  ring.now += 1 * kSecond;
  ring.engine(1).tick(ring.now);
  ring.engine(1).tick(ring.now + 1 * kSecond);
  ASSERT_EQ(ring.failures(1).size(), 1u) << "asked for once";
  const Failure& failure = ring.failures(1)[0];
  EXPECT_EQ(failure.cause, Cause::kDeadline);
  EXPECT_EQ(failure.blame.rank, 3u);
  EXPECT_EQ(failure.blame.pid, 1003);
  EXPECT_THAT(failure.blame.evidence, HasSubstr("op 0 (allreduce sum of 10 float32)"));
  EXPECT_THAT(failure.blame.evidence, HasSubstr("1800 s"));
}

TEST(EngineDeadline, NamesTheRankThoughNoneOfItsNodeSubmitted) {
  Ring ring(2);
  ring.submit(0, op(0), sum_of(10));
  ring.run();
  ring.engine(1).tick(ring.now);
  ring.now += 1800 * kSecond;
  ring.engine(0).tick(ring.now);
  ring.engine(1).tick(ring.now);
  EXPECT_EQ(ring.failures(0).size(), 0u) << "the other node knows better";
  ASSERT_EQ(ring.failures(1).size(), 1u);
  EXPECT_EQ(ring.failures(1)[0].blame.rank, 1u);
}

// Its node had heard of the op in an epoch, or a life, before.
TEST(EngineDeadline, NamesTheRankThoughTheViewHasChangedOrADaemonRestarted) {
  constexpr uint32_t kNone = 3;
  for (const uint32_t restarts : {kNone, 0u, 2u}) {
    Ring ring(3);
    const auto tick_after = [&ring](Time time) {
      ring.now += time;
      for (uint32_t node = 0; node < 3; ++node) ring.engine(node).tick(ring.now);
    };
    for (const uint32_t rank : {0u, 1u}) ring.submit(rank, op(0), sum_of(10));
    ring.run();
    tick_after(0);
    if (restarts != kNone) ring.restart(restarts);
    tick_after(1000 * kSecond);
    ring.change_view();
    ring.run();
    tick_after(799 * kSecond);
    EXPECT_EQ(ring.failures(), 0u);
    tick_after(1 * kSecond);
    EXPECT_EQ(ring.failures(), 1u);
    ASSERT_EQ(ring.failures(2).size(), 1u) << restarts;
    EXPECT_EQ(ring.failures(2)[0].blame.rank, 2u);
  }
}

TEST(EngineDeadline, NamesTheNodeThatIsNotReadyAndDoesNotSpeak) {
  Ring ring(3);
  ring.submit(0, op(0), sum_of(10));
  ring.submit(1, op(0), sum_of(10));
  ring.run();
  ring.engine(0).tick(ring.now + 1801 * kSecond);
  ASSERT_EQ(ring.failures(0).size(), 1u);
  EXPECT_EQ(ring.failures(0)[0].cause, Cause::kDeadline);
  EXPECT_EQ(ring.failures(0)[0].blame.node, "c");
  EXPECT_EQ(ring.failures(0)[0].blame.rank, kNoRank);
}

TEST(EngineDeadline, NamesThePredecessorWhenSlicesDoNotCome) {
  Ring ring(3);
  ring.submit_all(op(0), sum_of(100));
  for (uint32_t from = 0; from < 3; ++from) {
    for (uint32_t to = 0; to < 3; ++to) {
      if (from != to) ring.deliver_first(from, to, FrameType::kReady);
    }
  }
  ring.engine(1).tick(ring.now + 1801 * kSecond);
  ASSERT_EQ(ring.failures(1).size(), 1u);
  EXPECT_EQ(ring.failures(1)[0].blame.node, "a");
  EXPECT_THAT(ring.failures(1)[0].blame.evidence,
              HasSubstr("0 of its 7 slices are complete here; "));
}

TEST(EngineDeadline, AnOpThatEndedHasNone) {
  Ring ring(2);
  ring.submit_all(op(0), sum_of(10));
  ring.run();
  ring.engine(0).tick(ring.now + 10'000 * kSecond);
  EXPECT_EQ(ring.failures(), 0u);
}

TEST(EngineDeadline, CountsForWhatIsSubmittedWhileAnEpochEnds) {
  Ring ring(2, 2);
  ring.freeze(1);
  ring.submit(2, op(1), sum_of(64), values_of(2, 64, 1));
  ring.engine(1).tick(ring.now);
  ring.engine(1).tick(ring.now + 1801 * kSecond);
  ASSERT_EQ(ring.failures(1).size(), 1u);
  EXPECT_EQ(ring.failures(1)[0].cause, Cause::kDeadline);
  EXPECT_EQ(ring.failures(1)[0].blame.rank, 3u);
}

// What is submitted while a view changes is compared with nothing yet.
TEST(EngineLeave, IsToldInWordsWhileTheViewChanges) {
  Ring ring(2, 2);
  ring.freeze(0);
  ring.submit(0, op(0), sum_of(8), values_of(0, 8));
  ring.leave(1);
  ASSERT_EQ(ring.absences(0).size(), 1u);
  EXPECT_EQ(ring.absences(0)[0].failure.blame.evidence,
            "left the job without submitting " + describe(op(0)) + ", which others wait for");
}

}  // namespace
}  // namespace gradring::core
