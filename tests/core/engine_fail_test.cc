// The job fails: everything open ends with the cause, and all memory comes home.

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

TEST(EngineFail, EachOpenSubmissionEndsOnceWithTheCauseAndSoDoLaterOnes) {
  Ring ring(3, 2);
  const std::vector<Ticket> done = ring.submit_all(op(0), sum_of(100));
  ring.run();
  ring.hold(0, 1);
  std::vector<Ticket> open = ring.submit_all(op(1), sum_of(1000));  // stands still in the middle
  open.push_back(ring.submit(4, op(2), sum_of(5)));                 // waits for others
  ring.run();
  ASSERT_FALSE(ring.ended(open[0]));

  ring.fail_everywhere(lost("b"));
  ring.fail_everywhere(lost("c"));  // the first cause wins
  EXPECT_TRUE(ring.all_ok(done)) << "what has ended has ended";
  for (const Ticket ticket : open) {
    EXPECT_EQ(ring.outcome(ticket).verdict, Verdict::kFailed);
    EXPECT_EQ(ring.outcome(ticket).failure, lost("b"));
  }
  const Ticket later = ring.submit(0, op(7), sum_of(5));
  EXPECT_EQ(ring.outcome(later).failure, lost("b"));
  EXPECT_EQ(ring.engine(0).open_ops(), 0u);
  EXPECT_TRUE(ring.engine(0).failed());
}

TEST(EngineFail, ASubmissionThatWasToldAMismatchIsNotToldAgain) {
  Ring ring(2, 2);
  const Ticket told = ring.submit(0, op(0), sum_of(1));
  const Ticket also_told = ring.submit(2, op(0), sum_of(2));
  ring.submit(3, op(0), sum_of(2));
  ring.run();
  ASSERT_EQ(ring.outcome(told).failure.cause, Cause::kMismatch);
  ring.fail_everywhere(lost("b"));
  EXPECT_EQ(ring.outcome(told).failure.cause, Cause::kMismatch);
  EXPECT_EQ(ring.outcome(also_told).failure.cause, Cause::kMismatch);
}

TEST(EngineFail, MemoryComesHomeFromEveryPlaceItMayBe) {
  // Slices under way, in slots waiting for a credit, landed but not worked on, and half arrived.
  Ring ring(3, 1, small_slices(2));
  ring.hold(1, 2);
  ring.submit_all(op(0), broadcast_of(500, 0));
  ring.run();
  const Frame half = ring.peek(1, 2, FrameType::kSlice);
  const auto slot = ring.engine(2).on_slice(1, half);
  ASSERT_TRUE(slot.has_value());

  for (uint32_t rank = 0; rank < 3; ++rank) ring.leave(rank);
  ring.fail_everywhere(lost("a"));
  EXPECT_FALSE(ring.engine(1).drained()) << "the transport still reads our slots";
  EXPECT_FALSE(ring.engine(2).drained()) << "a payload is still arriving";
  ring.engine(2).on_slice_aborted(*slot);
  EXPECT_TRUE(ring.engine(2).drained());
  ring.release(1, 2);
  ring.run();
  for (uint32_t node = 0; node < 3; ++node) {
    EXPECT_TRUE(ring.engine(node).drained()) << node;
    EXPECT_EQ(ring.engine(node).slots_in_use(), 0u);
  }
}

TEST(EngineFail, APayloadThatArrivesAfterTheEndIsNobodys) {
  Ring ring(2);
  ring.hold(0, 1);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), broadcast_of(16, 0));
  ring.run();
  ring.deliver_first(0, 1, FrameType::kReady);
  const auto slot = ring.engine(1).on_slice(0, ring.peek(0, 1, FrameType::kSlice));
  ASSERT_TRUE(slot.has_value());
  ring.leave(1);
  ring.engine(1).fail(lost("a"));
  ring.engine(1).on_slice_landed(*slot);
  ring.pump(1);
  EXPECT_EQ(ring.outcome(tickets[1]).failure, lost("a"));
  EXPECT_TRUE(ring.engine(1).drained());
}

TEST(EngineFail, AtAnyMomentOfALivelyJob) {
  for (uint64_t moment = 0; moment < 60; ++moment) {
    Ring ring(3, 2, small_slices(2));
    std::vector<Ticket> tickets;
    for (uint64_t k = 0; k < 2; ++k) {
      for (Ticket ticket : ring.submit_all(op(k), sum_of(200))) tickets.push_back(ticket);
    }
    Random random(moment);
    for (uint64_t step = 0; step < 5 * moment; ++step) {
      const auto from = static_cast<uint32_t>(random.below(3));
      ring.deliver(from, static_cast<uint32_t>((from + 1 + random.below(2)) % 3));
      ring.pump(static_cast<uint32_t>(random.below(3)), 1);
    }
    ring.fail_everywhere(lost("b"));
    for (const Ticket ticket : tickets) ASSERT_TRUE(ring.ended(ticket));
    for (uint32_t rank = 0; rank < 6; ++rank) ring.leave(rank);
    ring.run();  // what was under way still arrives, and is nobody's
    for (uint32_t node = 0; node < 3; ++node) ASSERT_TRUE(ring.engine(node).drained());
    ASSERT_EQ(ring.failures(), 0u);
  }
}

}  // namespace
}  // namespace gradring::core
