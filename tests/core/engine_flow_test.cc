// Rules D2, D5 and D6: slots, credits and the order of work.

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

// All nodes start at once with as few slots as there may be. Ring itself checks after every step
// that a slot stays free somewhere; without the rule of two it would fill and stand still.
TEST(EngineFlow, TheRingNeverFills) {
  for (const uint32_t slots : {2u, 3u, 5u}) {
    for (uint32_t nodes = 2; nodes <= 6; ++nodes) {
      SCOPED_TRACE(testing::Message() << nodes << " nodes, " << slots << " slots");
      Ring ring(nodes, 1, small_slices(slots));
      std::vector<Ticket> tickets;
      for (uint64_t k = 0; k < 3; ++k) {
        for (Ticket ticket : ring.submit_all(op(k), sum_of(2000))) tickets.push_back(ticket);
      }
      ring.run();
      ASSERT_TRUE(ring.all_ok(tickets));
      for (uint32_t node = 0; node < nodes; ++node) {
        EXPECT_LE(ring.peak_slots(node), slots);
        EXPECT_EQ(ring.engine(node).slots_in_use(), 0u) << "all slots came home";
      }
    }
  }
}

TEST(EngineFlow, TheRingNeverFillsInAnyOrderOfArrivals) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const auto nodes = static_cast<uint32_t>(2 + seed % 4);
    const auto slots = static_cast<uint32_t>(2 + seed % 2);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Ring ring(nodes, 1, small_slices(slots));
    std::vector<Ticket> tickets;
    for (uint64_t k = 0; k < 3; ++k) {
      const Signature signature =
          k == 1 ? broadcast_of(500, static_cast<uint32_t>(seed % nodes)) : sum_of(500);
      for (Ticket ticket : ring.submit_all(op(k), signature)) tickets.push_back(ticket);
    }
    ring.run_shuffled(seed);
    ASSERT_TRUE(ring.all_ok(tickets));
    ASSERT_EQ(ring.failures(), 0u);
  }
}

// Also one that shrinks in the middle, when more is under way than it allows.
TEST(EngineFlow, AWindowHoldsUpNothingForGood) {
  for (uint32_t nodes = 2; nodes <= 5; ++nodes) {
    for (const uint32_t window : {2u, 3u}) {
      SCOPED_TRACE(testing::Message() << nodes << " nodes, a window of " << window);
      Ring ring(nodes, 1, small_slices(8));
      std::vector<Ticket> tickets;
      for (uint64_t k = 0; k < 4; ++k) {
        for (Ticket ticket : ring.submit_all(op(k), sum_of(4000))) tickets.push_back(ticket);
      }
      for (int i = 0; i < 40; ++i) {
        for (uint32_t node = 0; node < nodes; ++node) ring.pump(node);
      }
      for (uint32_t node = 0; node < nodes; ++node) ring.engine(node).set_window(window);
      ring.run();
      ASSERT_TRUE(ring.all_ok(tickets));
    }
  }
}

TEST(EngineFlow, ANewSliceNeedsTwoCredits) {
  Ring ring(2, 1, small_slices(3));
  ring.hold(1, 0);
  ring.submit_all(op(0), sum_of(1000));
  ASSERT_TRUE(ring.deliver_first(1, 0, FrameType::kReady));
  ring.pump(0);
  // Three slots at b: the first slice leaves two free, the second leaves one, a third may not
  // start.
  EXPECT_EQ(ring.under_way(0, 1, FrameType::kSlice), 2u);
  ring.pump(0);
  EXPECT_EQ(ring.under_way(0, 1, FrameType::kSlice), 2u);

  // b frees one: with two credits exactly one more goes.
  ring.deliver_first(0, 1, FrameType::kReady);
  ring.deliver_first(0, 1, FrameType::kSlice);
  ring.pump(1, 1);  // takes the partial, makes it final, and it waits to go back to a
  ring.pump(1, 1);
  ASSERT_TRUE(ring.deliver_first(1, 0, FrameType::kSlice)) << "its slot at b is free when it left";
  ring.pump(1, 0);  // tells the credit
  const uint64_t before = ring.engine(0).counters().slices_sent;
  ASSERT_TRUE(ring.deliver_first(1, 0, FrameType::kCredit));
  ring.pump(0);
  EXPECT_EQ(ring.engine(0).counters().slices_sent, before + 1);
}

TEST(EngineFlow, AWindowOutlivesTheView) {
  Ring ring(2, 1, small_slices(8));
  ring.engine(0).set_window(2);
  ring.change_view();
  ring.run();
  ring.hold(1, 0);
  ring.submit_all(op(0), sum_of(1000));
  ASSERT_TRUE(ring.deliver_first(1, 0, FrameType::kReady));
  ring.pump(0);
  EXPECT_EQ(ring.engine(0).counters().slices_sent, 1u);
}

// Of each epoch a holds two finals more that b lacks, and in the last one it has none but those to
// give: with three slots at b two of them may go, as if they began there.
TEST(EngineFlow, WhatIsHandedOutNeedsTwoCreditsAsWell) {
  Ring ring(2, 1, small_slices(3), "elastic");
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(1000));
  ring.hold(0, 1);
  for (int epochs = 0; epochs < 2; ++epochs) {
    ASSERT_TRUE(ring.deliver_first(0, 1, FrameType::kReady));
    ring.deliver_first(0, 1, FrameType::kCredit);
    ring.run();
    ring.change_view();
    while (ring.deliver_first(0, 1, FrameType::kSlice)) {
    }
  }
  const uint64_t before = ring.engine(0).counters().slices_handed;
  ring.run();
  EXPECT_EQ(ring.engine(0).counters().slices_handed, before + 2);
  ring.release(0, 1);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

TEST(EngineFlow, AnUrgentOpOvertakesWhatHasBegun) {
  for (const int32_t priority : {0, 1}) {
    Ring ring(3, 2, small_slices(3));
    Random random(7);
    const std::vector<Ticket> large = ring.submit_all(op(0), sum_of(4000));
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(ring.step(&random));
    ASSERT_GT(ring.engine(0).counters().slices_sent, 0u);
    std::vector<Ticket> late;
    for (uint32_t rank = 0; rank < ring.ranks(); ++rank) {
      ring.priority = rank == 3 ? 0 : priority;  // one of each node's is enough
      late.push_back(ring.submit(rank, op(1), sum_of(100), values_of(rank, 100, 1)));
    }
    while (!ring.ended(late.front())) ASSERT_TRUE(ring.step(&random));
    EXPECT_EQ(ring.ended(large.front()), priority == 0);
    ring.run_shuffled(8);
    EXPECT_TRUE(ring.all_ok(large));
    EXPECT_TRUE(ring.all_ok(late));
  }
}

// c's credits do not reach b. b forwards until the last of its three credits is spent, whereas a,
// which starts the slices, always leaves one at b.
TEST(EngineFlow, AForwardNeedsOneCredit) {
  Ring ring(3, 1, small_slices(3));
  const std::vector<Ticket> tickets = ring.submit_all(op(0), broadcast_of(500, 0));
  ring.hold(2, 1);
  ring.run();
  EXPECT_EQ(ring.engine(1).counters().slices_sent, 3u);
  EXPECT_EQ(ring.engine(2).counters().slices_received, 3u);
  EXPECT_EQ(ring.engine(1).slots_in_use(), 2u) << "what follows waits in its slots";
  EXPECT_FALSE(ring.ended(tickets[1]));
  EXPECT_EQ(ring.failures(), 0u) << "full is a normal answer";
  ring.release(2, 1);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

// D6: an op may be complete while its last values still lie in our slots, waiting for a credit. The
// value on its way is the slot's, not the trainer's.
TEST(EngineFlow, AnOpMayCompleteBeforeItsLastSliceHasGoneOn) {
  Ring ring(3, 1, small_slices(2));
  ring.hold(1, 2);
  const Values values = values_of(0, 16);
  ring.submit(0, op(0), broadcast_of(16, 0), values);
  const Ticket at_b = ring.submit(1, op(0), broadcast_of(16, 0));
  const Ticket at_c = ring.submit(2, op(0), broadcast_of(16, 0));
  ring.run();
  EXPECT_TRUE(ring.ended(at_b));
  EXPECT_FALSE(ring.ended(at_c));
  EXPECT_EQ(ring.engine(1).slots_in_use(), 1u) << "lent until it has arrived";
  ring.release(1, 2);
  ring.run();
  EXPECT_EQ(ring.result(at_c), values);
  EXPECT_EQ(ring.engine(1).slots_in_use(), 0u);
}

TEST(EngineFlow, PumpKeepsItsBudget) {
  EngineOptions options = small_slices(8);
  options.start_buffers = 8;
  Ring ring(2, 1, options);
  ring.hold(0, 1);
  ring.submit_all(op(0), sum_of(1000));
  ASSERT_TRUE(ring.deliver_first(1, 0, FrameType::kReady));
  EXPECT_EQ(ring.engine(0).pump(1), 1u);
  EXPECT_EQ(ring.engine(0).counters().slices_sent, 1u);
  EXPECT_EQ(ring.engine(0).pump(2), 2u);
  EXPECT_EQ(ring.engine(0).counters().slices_sent, 3u);
  EXPECT_EQ(ring.engine(0).pump(1000), 4u) << "seven of eight slots, one stays free";
  EXPECT_EQ(ring.engine(0).pump(1000), 0u) << "only an event can give more to do";
}

TEST(EngineFlow, NoMoreSlicesLeaveThanThereAreStartBuffers) {
  EngineOptions options = small_slices(16);
  options.start_buffers = 3;
  Ring ring(2, 1, options);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(2000));
  ring.hold(0, 1);
  ring.run();
  EXPECT_EQ(ring.under_way(0, 1, FrameType::kSlice), 3u) << "the rest waits for on_sent";
  ring.release(0, 1);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

TEST(EngineFlow, CreditsCountTotals) {
  Ring ring(2);
  ring.submit_all(op(0), sum_of(64));
  ring.run();
  const uint64_t sent = ring.engine(0).counters().slices_sent;
  ASSERT_GT(sent, 0u);
  // The same CREDIT again, and an older one: nothing changes, nothing is wrong.
  Frame credit = ring.frame(FrameType::kCredit, {});
  for (const uint64_t total : {sent, sent - 1, uint64_t{0}}) {
    credit.credit.freed_total = total;
    ring.inject(1, 0, credit);
  }
  EXPECT_EQ(ring.failures(), 0u);
  const std::vector<Ticket> tickets = ring.submit_all(op(1), sum_of(5000));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

TEST(EngineFlow, CountersCountPayload) {
  Ring ring(2);
  ring.submit_all(op(0), sum_of(1000));
  ring.run();
  uint64_t sent = 0;
  uint64_t received = 0;
  for (uint32_t node = 0; node < 2; ++node) {
    sent += ring.engine(node).counters().payload_bytes_sent;
    received += ring.engine(node).counters().payload_bytes_received;
    EXPECT_EQ(ring.engine(node).counters().ops_completed, 1u);
  }
  EXPECT_EQ(sent, 2u * 4000) << "2(n-1) times the vector in all, in an allreduce";
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace gradring::core
