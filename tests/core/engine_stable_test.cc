// What is kept after completion, and for how long: rules T1 to T4, D7.

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

void expect_nothing_kept(Ring& ring) {
  for (uint32_t node = 0; node < ring.nodes(); ++node) {
    EXPECT_EQ(ring.engine(node).kept_ops(), 0u) << node;
    EXPECT_EQ(ring.copies(node), 0u) << node;
  }
}

TEST(EngineStable, AfterQuietNothingIsKept) {
  for (uint32_t nodes = 1; nodes <= 5; ++nodes) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(testing::Message() << nodes << " nodes, seed " << seed);
      Ring ring(nodes, 2);
      std::vector<Ticket> tickets;
      for (const Signature& signature :
           {sum_of(300), barrier(), broadcast_of(100, 1), sum_of(0), sum_of(5)}) {
        for (const Ticket ticket : ring.submit_all(op(tickets.size()), signature)) {
          tickets.push_back(ticket);
        }
      }
      ring.run_shuffled(seed);
      ASSERT_TRUE(ring.all_ok(tickets));
      ASSERT_EQ(ring.failures(), 0u);
      expect_nothing_kept(ring);
    }
  }
}

// a has completed a barrier; c cannot know, and only its word lets a forget.
TEST(EngineStable, ABarrierIsKeptUntilAllHaveCompletedIt) {
  Ring ring(3);
  ring.hold(0, 1);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), barrier());
  ring.run();
  EXPECT_TRUE(ring.ended(tickets[0]) && ring.ended(tickets[2]) && !ring.ended(tickets[1]));
  EXPECT_EQ(ring.engine(0).kept_ops(), 1u);
  EXPECT_EQ(ring.engine(2).kept_ops(), 1u);
  ring.release(0, 1);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  expect_nothing_kept(ring);
}

TEST(EngineStable, CopiesAreMadeOfWhatSomeMemberMayStillLack) {
  Ring ring(3);
  ring.hold(0, 1);
  ring.submit_all(op(0), sum_of(16));
  ring.run();
  ring.deliver_first(0, 1, FrameType::kReady);
  ring.pump(1);
  ring.deliver_first(0, 1, FrameType::kSlice);
  ring.run();
  EXPECT_EQ(ring.copies(0), 1u);
  EXPECT_EQ(ring.engine(0).counters().slices_kept, 1u);
  EXPECT_EQ(ring.copies(2), 1u);
  ring.release(0, 1);
  ring.run();
  EXPECT_EQ(ring.engine(1).counters().slices_kept, 0u) << "the last receiver needs none";
  expect_nothing_kept(ring);
}

TEST(EngineStable, WithoutRoomCompletionWaitsAndNothingElseDoes) {
  for (const bool no_room : {true, false}) {
    EngineOptions options = small_slices();
    options.stable_completion = !no_room;
    Ring ring(3, 1, options);
    if (no_room) ring.room = 0;
    std::vector<Ticket> tickets;
    for (uint64_t k = 0; k < 4; ++k) {
      for (const Ticket ticket : ring.submit_all(op(k), sum_of(200))) tickets.push_back(ticket);
    }
    ring.run();
    EXPECT_TRUE(ring.all_ok(tickets));
    for (uint32_t node = 0; node < 3; ++node) {
      EXPECT_EQ(ring.engine(node).counters().slices_kept, 0u);
    }
    expect_nothing_kept(ring);
  }
}

TEST(EngineStable, WithoutRoomNobodyIsToldBeforeAllHaveEverything) {
  Ring ring(3);
  ring.room = 0;
  ring.hold(0, 1);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(16));
  ring.run();
  ring.deliver_first(0, 1, FrameType::kReady);
  ring.pump(1);
  ring.deliver_first(0, 1, FrameType::kSlice);
  ring.run();
  for (const Ticket ticket : tickets) EXPECT_FALSE(ring.ended(ticket));
  ring.release(0, 1);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

// Whenever some slices become stable an op that waits for room looks again. It does not fill the
// room each time to find that it is still too small.
TEST(EngineStable, WithoutRoomNothingIsCopiedAgainAndAgain) {
  Ring ring(4);
  ring.room = 2;
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(2000));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  for (uint32_t node = 0; node < 4; ++node) EXPECT_LE(ring.copies_ever(node), 4u) << node;
  expect_nothing_kept(ring);
}

// D7: c knows that all were ready, and b may not; so no one is told, but c's report has it.
TEST(EngineStable, ABarrierIsToldWhenAllHaveDecidedIt) {
  EngineOptions options = small_slices();
  options.stable_completion = true;
  Ring ring(3, 1, options);
  ring.hold(0, 1);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), barrier());
  ring.run();
  for (const Ticket ticket : tickets) EXPECT_FALSE(ring.ended(ticket));
  ring.release(0, 1);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  expect_nothing_kept(ring);
}

TEST(EngineStable, AReportSaysThatABarrierIsDecided) {
  EngineOptions options = small_slices();
  options.stable_completion = true;
  Ring ring(3, 1, options);
  ring.hold(0, 1);
  ring.submit_all(op(0), barrier());
  ring.run();
  const auto outcome_at = [&ring](uint32_t node) {
    const Report report = ring.engine(node).freeze();
    return report.ops.empty() ? ValueId{} : report.ops.front().outcome;
  };
  EXPECT_EQ(outcome_at(2), (ValueId{1, 3}));
  EXPECT_EQ(outcome_at(1), ValueId{}) << "it lacks a READY";
}

// T4: each op by itself. The first op is never submitted by b until the second has ended.
TEST(EngineStable, AnOpThatIsOpenHoldsUpNobodyElsesCompletion) {
  Ring ring(2);
  ring.room = 0;
  const Ticket first = ring.submit(0, op(0), sum_of(50), values_of(0, 50));
  const std::vector<Ticket> second = ring.submit_all(op(1), sum_of(50));
  ring.run();
  EXPECT_TRUE(ring.all_ok(second));
  const Ticket last = ring.submit(1, op(0), sum_of(50), values_of(1, 50));
  ring.run();
  EXPECT_TRUE(ring.all_ok({first, last}));
}

}  // namespace
}  // namespace gradring::core
