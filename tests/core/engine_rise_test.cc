// Small sums in large jobs: up a tree of the members, and down again. Rule D10.

#include "tests/core/engine_ring.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

// Up to 64 floats go along a tree, of which each member has up to two below it.
EngineOptions rising() {
  EngineOptions options = small_slices();
  options.ready_tree_above = 1;
  options.ready_tree_arity = 2;
  options.plan.tree_max = 256;
  return options;
}

// What the member's ranks and all below it give: its own first, then those below in order.
Values tree_sum(const View& view, uint32_t member, uint64_t count, uint64_t k, uint32_t arity) {
  Values sum;
  const auto add = [&sum](const Values& values) {
    if (sum.empty()) sum.assign(values.size(), 0);
    for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
  };
  for (const RankInfo& info : view.members[member].ranks) add(values_of(info.rank, count, k));
  const ReadyTree tree(static_cast<uint32_t>(view.members.size()), member, arity);
  for (uint32_t i = 0; i < tree.children(); ++i) {
    add(tree_sum(view, tree.first_child() + i, count, k, arity));
  }
  return sum;
}

uint64_t slices_sent(Ring& ring) {
  uint64_t sum = 0;
  for (uint32_t node = 0; node < ring.nodes(); ++node) {
    sum += ring.engine(node).counters().slices_sent;
  }
  return sum;
}

void expect_nothing_left(Ring& ring) {
  for (uint32_t node = 0; node < ring.nodes(); ++node) {
    if (!ring.alive(node)) continue;
    EXPECT_EQ(ring.engine(node).kept_ops(), 0u) << node;
    EXPECT_EQ(ring.copies(node), 0u) << node;
  }
  EXPECT_EQ(ring.failures(), 0u);
}

// A rank's values, as tree_sum adds them, begin with 0 + x, which is x.
TEST(EngineRise, TheBitsAreThoseOfTheTree) {
  for (const uint32_t nodes : {2u, 3u, 7u, 12u}) {
    for (const uint32_t ranks : {1u, 3u}) {
      for (const uint32_t arity : {1u, 2u, 8u}) {
        for (const uint64_t count : {1u, 17u, 64u}) {
          SCOPED_TRACE(testing::Message() << nodes << " x " << ranks << ", arity " << arity);
          EngineOptions options = rising();
          options.ready_tree_arity = arity;
          Ring ring(nodes, ranks, options);
          const auto tickets = ring.submit_all(op(0), sum_of(count));
          ring.run_shuffled(count);
          ASSERT_TRUE(ring.all_ok(tickets));
          const Values expected = tree_sum(ring.view(), 0, count, 0, arity);
          for (const Ticket ticket : tickets) ASSERT_EQ(ring.result(ticket), expected);
          EXPECT_EQ(slices_sent(ring), 2 * (nodes - 1)) << "up and down, and not along the ring";
          expect_nothing_left(ring);
        }
      }
    }
  }
}

TEST(EngineRise, AnAverageIsDividedOnce) {
  Ring ring(5, 2, rising());
  const auto tickets = ring.submit_all(op(0), average_of(40));
  ring.run();
  ASSERT_TRUE(ring.all_ok(tickets));
  Values expected = tree_sum(ring.view(), 0, 40, 0, 2);
  for (float& value : expected) value /= 10.0f;
  for (const Ticket ticket : tickets) EXPECT_EQ(ring.result(ticket), expected);
}

TEST(EngineRise, WhatIsLargerGoesAlongTheRing) {
  Ring ring(5, 1, rising());
  const auto tickets = ring.submit_all(op(0), sum_of(65));
  ring.run();
  ASSERT_TRUE(ring.all_ok(tickets));
  EXPECT_GT(slices_sent(ring), 8u);
  EngineOptions options = rising();
  options.plan.tree_max_per_member = 16;  // 80 bytes in all
  Ring few(5, 1, options);
  few.submit_all(op(0), sum_of(32));
  few.run();
  EXPECT_GT(slices_sent(few), 8u);
}

TEST(EngineRise, WhoMustConfirmEachSliceGoesAlongTheRing) {
  for (const int why : {0, 1, 2}) {
    EngineOptions options = rising();
    options.checksum = why == 0;
    options.stable_completion = why == 1;
    options.eager = why != 2;
    Ring ring(5, 1, options);
    const auto tickets = ring.submit_all(op(0), sum_of(16));
    ring.run();
    ASSERT_TRUE(ring.all_ok(tickets));
    const Values expected = ring_sum(ring.view(), 16, 0, 16);
    for (const Ticket ticket : tickets) EXPECT_EQ(ring.result(ticket), expected);
    expect_nothing_left(ring);
  }
}

// The first member says ALL READY for no more of them, so memory is bounded everywhere.
TEST(EngineRise, FewAreUnderWayAtATime) {
  for (uint64_t seed = 0; seed < fewer_if_sanitized(20); ++seed) {
    EngineOptions options = rising();
    options.rising_most = 3;
    Ring ring(7, 1, options);
    std::vector<Ticket> tickets;
    for (uint64_t i = 0; i < 100; ++i) {
      for (const Ticket ticket : ring.submit_all(op(i), sum_of(8))) tickets.push_back(ticket);
    }
    ring.run_shuffled(seed);
    ASSERT_TRUE(ring.all_ok(tickets));
    for (uint32_t node = 0; node < 7; ++node) {
      EXPECT_LE(ring.engine(node).units(), 2 * 3 * (2u + 2)) << node;
    }
    expect_nothing_left(ring);
  }
}

// T3: whoever has no room for copies lets go of what others have as well.
TEST(EngineRise, WithoutRoomForCopiesTheyWaitForTheOthers) {
  for (uint64_t seed = 0; seed < fewer_if_sanitized(20); ++seed) {
    Ring ring(5, 1, rising());
    ring.room = 1;
    std::vector<Ticket> tickets;
    for (uint64_t i = 0; i < 20; ++i) {
      for (const Ticket ticket : ring.submit_all(op(i), sum_of(8))) tickets.push_back(ticket);
    }
    ring.run_shuffled(seed);
    ASSERT_TRUE(ring.all_ok(tickets));
    expect_nothing_left(ring);
  }
}

// One op is on its way up and another waits for its turn when the epoch ends. In the next one both
// begin anew, and op 1 not before all are ready for it once more.
TEST(EngineRise, TurnsEndWithTheirEpoch) {
  EngineOptions options = rising();
  options.rising_most = 1;
  Ring ring(3, 1, options, "elastic");
  std::vector<Ticket> tickets;
  for (uint64_t k = 0; k < 2; ++k) {
    for (const Ticket ticket : ring.submit_all(op(k), sum_of(16))) tickets.push_back(ticket);
  }
  for (const uint32_t node : {1u, 2u}) {
    ring.hold(node, 0);
    while (ring.deliver_first(node, 0, FrameType::kReady)) {
    }
  }
  ring.run();
  ASSERT_EQ(ring.under_way(1, 0, FrameType::kSlice), 1u) << "op 1 has to wait";
  ring.change_view();
  for (const uint32_t node : {1u, 2u}) {
    while (ring.deliver_first(node, 0, FrameType::kSlice)) {
    }
  }
  ring.release(1, 0);
  ASSERT_TRUE(ring.deliver_first(2, 0, FrameType::kReady));
  while (!ring.ended(tickets[0]) && (ring.run(), ring.deliver_first(2, 0, FrameType::kSlice))) {
  }
  ring.run();
  EXPECT_TRUE(ring.ended(tickets[0]));
  EXPECT_FALSE(ring.ended(tickets[3])) << "c is not ready for op 1";
  ring.release(2, 0);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  expect_nothing_left(ring);
}

TEST(EngineRise, WhereTheFirstMemberDiesTheOthersAgree) {
  for (uint64_t steps = 0; steps < 120; steps += 3) {
    for (const Wake wake : {Wake::kArrives, Wake::kLost, Wake::kTorn}) {
      SCOPED_TRACE(testing::Message() << "after " << steps << " steps");
      Ring ring(5, 1, rising(), "elastic");
      const auto tickets = ring.submit_all(op(0), sum_of(16));
      Random random(steps);
      for (uint64_t i = 0; i < steps; ++i) ring.step(&random);
      ring.crash(0, wake);
      ring.change_view();
      ring.run();
      std::optional<Values> first;
      for (uint32_t rank = 1; rank < 5; ++rank) {
        ASSERT_TRUE(ring.ended(tickets[rank])) << rank;
        EXPECT_NE(ring.outcome(tickets[rank]).verdict, Verdict::kFailed);
        if (!first) first = ring.result(tickets[rank]);
        EXPECT_EQ(ring.result(tickets[rank]), *first) << rank;
      }
      expect_nothing_left(ring);
    }
  }
}

// ---- what others must not do ----

Frame part_of(const Ring& ring, OpKey key, Phase phase, uint32_t floats) {
  Frame frame = ring.frame(FrameType::kSlice, key);
  frame.slice.phase = phase;
  frame.slice.length = floats * sizeof(float);
  frame.slice.ranks = 1;
  frame.slice.value_epoch = 1;
  return frame;
}

// Node a with b and c below it, d and e below b; all have said READY, and nobody has sent a sum.
struct Ready {
  Ready() : ring(5, 1, rising()) {
    ring.submit_all(op(0), sum_of(16));
    for (const auto& [from, to] : {std::pair{3, 1}, {4, 1}, {1, 0}, {2, 0}, {0, 1}, {0, 2}}) {
      const FrameType type = from > to ? FrameType::kReady : FrameType::kAllReady;
      EXPECT_TRUE(ring.deliver_first(static_cast<uint32_t>(from), static_cast<uint32_t>(to), type));
    }
  }
  void expect_blamed(uint32_t at, const std::string& node) {
    ASSERT_EQ(ring.failures(at).size(), 1u);
    EXPECT_EQ(ring.failures(at)[0].cause, Cause::kProtocol);
    EXPECT_EQ(ring.failures(at)[0].blame.node, node);
  }
  Ring ring;
};

TEST(EngineRise, ASumFromWhoIsNotBelowBreaksTheRules) {
  Ready story;
  story.ring.inject(3, 0, part_of(story.ring, op(0), Phase::kRising, 16));
  story.expect_blamed(0, "d");
}

TEST(EngineRise, ASumOfAnotherLengthBreaksTheRules) {
  Ready story;
  story.ring.inject(1, 0, part_of(story.ring, op(0), Phase::kRising, 12));
  story.expect_blamed(0, "b");
}

TEST(EngineRise, ASumOfWhatNobodyIsReadyForBreaksTheRules) {
  Ready story;
  story.ring.inject(1, 0, part_of(story.ring, op(1), Phase::kRising, 16));
  story.expect_blamed(0, "b");
}

TEST(EngineRise, AFinalValueBeforeOurPartIsInItBreaksTheRules) {
  Ready story;
  story.ring.inject(0, 1, part_of(story.ring, op(0), Phase::kDirect, 16));
  story.expect_blamed(1, "a");
}

TEST(EngineRise, AFinalValueFromBelowBreaksTheRules) {
  Ready story;
  story.ring.inject(1, 0, part_of(story.ring, op(0), Phase::kDirect, 16));
  story.expect_blamed(0, "b");
}

TEST(EngineRise, WhatComesTwiceCountsOnce) {
  Ready story;
  for (uint32_t node = 0; node < 5; ++node) story.ring.pump(node);
  const Frame sum = story.ring.peek(2, 0, FrameType::kSlice);
  story.ring.inject(2, 0, sum);
  story.ring.run();
  EXPECT_EQ(story.ring.engine(0).counters().frames_repeated, 1u);
  EXPECT_EQ(story.ring.engine(0).counters().ops_completed, 1u);
  story.ring.inject(2, 0, sum);
  story.ring.run();
  EXPECT_EQ(story.ring.engine(0).counters().frames_repeated, 2u);
  expect_nothing_left(story.ring);
}

}  // namespace
}  // namespace gradring::core
