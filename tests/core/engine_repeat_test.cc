// Rule D8: what a peer sends twice, or of another epoch, changes nothing.

#include "tests/core/engine_waiting.h"

namespace gradring::core {
namespace {

TEST(EngineProtocol, ARepeatedReadyChangesNothing) {
  Ring ring(3);
  ring.submit(0, op(0), sum_of(100));
  const Frame ready = ring.peek(0, 1, FrameType::kReady);
  ring.run();
  for (uint64_t times = 1; times <= 3; ++times) {
    ring.inject(0, 1, ready);
    EXPECT_EQ(ring.engine(1).counters().frames_repeated, times);
  }
  ring.submit(1, op(0), sum_of(100));
  ring.run();
  EXPECT_EQ(ring.engine(1).counters().slices_sent, 0u) << "c is not ready, whoever repeats himself";
}

TEST(EngineProtocol, ARepeatedSliceChangesNothingAtAnyMoment) {
  // Each slice of a whole allreduce comes twice: while the first waits in its slot, and after it
  // was folded.
  Ring ring(3);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(300));
  for (uint32_t from = 0; from < 3; ++from) {
    for (uint32_t to = 0; to < 3; ++to) {
      while (from != to && ring.deliver_first(from, to, FrameType::kReady)) {
      }
    }
  }
  uint64_t repeats = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t from = 0; from < 3; ++from) {
      const uint32_t to = (from + 1) % 3;
      ring.pump(from);
      if (ring.under_way(from, to, FrameType::kSlice) > 0) {
        const Frame slice = ring.peek(from, to, FrameType::kSlice);
        ring.deliver_first(from, to, FrameType::kSlice);
        ring.inject(from, to, slice);
        ring.pump(to);
        ring.inject(from, to, slice);
        repeats += 2;
        moved = true;
      }
      moved = ring.deliver_first(to, from, FrameType::kCredit) || moved;
    }
  }
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_EQ(ring.failures(), 0u);
  uint64_t counted = 0;
  for (uint32_t node = 0; node < 3; ++node) {
    counted += ring.engine(node).counters().frames_repeated;
  }
  EXPECT_GT(repeats, 0u);
  EXPECT_EQ(counted, repeats);
}

TEST(EngineProtocol, AnotherEpochIsDroppedAndCounted) {
  for (const uint64_t epoch : {0u, 2u}) {
    Waiting story;
    Frame slice = story.slice;
    slice.epoch = epoch;
    story.ring.inject(0, 1, slice);
    Frame ready = story.ring.frame(FrameType::kReady, op(1));
    ready.ready.rank = 0;
    ready.ready.contributions = 1;
    ready.ready.signature = sum_of(1);
    ready.epoch = epoch;
    story.ring.inject(0, 1, ready);
    Frame credit = story.ring.frame(FrameType::kCredit, {});
    credit.credit.freed_total = 1'000'000;
    credit.epoch = epoch;
    story.ring.inject(0, 1, credit);
    EXPECT_EQ(story.ring.engine(1).counters().frames_stale, 3u);
    EXPECT_EQ(story.ring.engine(1).slots_in_use(), 0u);
    EXPECT_EQ(story.ring.engine(1).open_ops(), 1u);
    EXPECT_EQ(story.ring.failures(), 0u);
    story.ring.release(0, 1);
    story.ring.run();
    EXPECT_TRUE(story.ring.all_ok(story.tickets)) << "the true slice is still welcome";
  }
}

TEST(EngineProtocol, AfterTheEndOfTheJobEverythingIsStale) {
  Waiting story;
  story.ring.engine(1).fail({Cause::kPeerLost, {}});
  story.ring.inject(0, 1, story.slice);
  story.ring.inject(0, 1, story.ring.frame(FrameType::kReady, op(5)));
  EXPECT_EQ(story.ring.engine(1).counters().frames_stale, 2u);
  EXPECT_EQ(story.ring.engine(1).open_ops(), 0u);
}

}  // namespace
}  // namespace gradring::core
