// Small ops that do not go along the ring: their data goes with READY. Rule D10.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

// Up to 16 floats the whole goes to everybody, up to 64 a member the parts to who sums them.
EngineOptions direct() {
  EngineOptions options = small_slices();
  options.plan.direct_members_max = 8;
  options.plan.direct_whole_max = 64;
  options.plan.direct_part_max = 256;
  return options;
}

// Members trust one another with data once they have spoken in the epoch: a first op goes round.
struct DirectStory {
  explicit DirectStory(uint32_t nodes, uint32_t ranks_per_node = 1,
                       EngineOptions options = direct(), const std::string& policy = "fail")
      : ring(nodes, ranks_per_node, options, policy) {
    ring.submit_all(op(1000), barrier());
    ring.run();
  }

  std::vector<Ticket> submit(uint64_t number, uint64_t count, Place place = Place::kApart) {
    return ring.submit_all(op(number), sum_of(count), place);
  }
  // Slices that went out by either way.
  uint64_t slices() {
    uint64_t sum = 0;
    for (uint32_t node = 0; node < ring.nodes(); ++node) {
      if (ring.alive(node)) sum += ring.engine(node).counters().slices_sent;
    }
    return sum;
  }
  void expect_nothing_left() {
    ring.now += kSecond;
    for (uint32_t node = 0; node < ring.nodes(); ++node) {
      if (ring.alive(node)) ring.engine(node).tick(ring.now);
    }
    ring.run();
    for (uint32_t node = 0; node < ring.nodes(); ++node) {
      if (!ring.alive(node)) continue;
      EXPECT_EQ(ring.engine(node).kept_ops(), 0u) << node;
      EXPECT_EQ(ring.copies(node), 0u) << node;
    }
    EXPECT_EQ(ring.failures(), 0u);
  }

  Ring ring;
};

uint32_t floats_of_slice(uint64_t count, uint32_t nodes) {
  return direct_layout(sum_of(count), nodes, direct().plan).slice_bytes / sizeof(float);
}

TEST(EngineDirect, TheBitsAreThoseOfTheRing) {
  for (const uint32_t nodes : {2u, 3u, 5u}) {
    for (const uint32_t ranks : {1u, 3u}) {
      for (const uint64_t count : {1u, 16u, 17u, 40u, 100u, 128u}) {
        for (const Place place : {Place::kApart, Place::kInPlace}) {
          SCOPED_TRACE(testing::Message() << nodes << " x " << ranks << ", " << count << " floats");
          DirectStory story(nodes, ranks);
          const auto tickets = story.submit(0, count, place);
          story.ring.run();
          ASSERT_TRUE(story.ring.all_ok(tickets));
          const Values expected =
              ring_sum(story.ring.view(), count, 0, floats_of_slice(count, nodes));
          for (const Ticket ticket : tickets) ASSERT_EQ(story.ring.result(ticket), expected);
          story.expect_nothing_left();
        }
      }
    }
  }
}

TEST(EngineDirect, AverageIsDividedOnce) {
  for (const uint64_t count : {8u, 100u}) {
    DirectStory story(3, 2);
    const auto tickets = story.ring.submit_all(op(0), average_of(count));
    story.ring.run();
    ASSERT_TRUE(story.ring.all_ok(tickets));
    Values expected = ring_sum(story.ring.view(), count, 0, floats_of_slice(count, 3));
    for (float& value : expected) value /= 6.0f;
    for (const Ticket ticket : tickets) EXPECT_EQ(story.ring.result(ticket), expected);
  }
}

TEST(EngineDirect, AWholeOpTakesOneWay) {
  DirectStory story(4);
  const uint64_t before = story.slices();
  const auto tickets = story.submit(0, 16);
  for (uint32_t node = 0; node < 4; ++node) story.ring.pump(node);
  EXPECT_EQ(story.ring.under_way(FrameType::kReady), 12u);
  for (uint32_t from = 0; from < 4; ++from) {
    for (uint32_t to = 0; to < 4; ++to) {
      EXPECT_EQ(story.ring.deliver_first(from, to, FrameType::kReady), from != to);
    }
  }
  for (uint32_t node = 0; node < 4; ++node) story.ring.pump(node);
  EXPECT_TRUE(story.ring.all_ok(tickets));
  EXPECT_EQ(story.slices(), before);
}

TEST(EngineDirect, PartsGoThereAndBack) {
  DirectStory story(4);
  const uint64_t before = story.slices();
  const auto tickets = story.submit(0, 128);
  story.ring.run();
  EXPECT_TRUE(story.ring.all_ok(tickets));
  EXPECT_EQ(story.slices() - before, 12u);
}

TEST(EngineDirect, EachBeginsWithWhoComesBehindIt) {
  for (const uint64_t count : {16u, 128u}) {
    DirectStory story(4);
    story.submit(0, count);
    for (uint32_t node = 0; node < 4; ++node) {
      story.ring.pump(node);
      EXPECT_THAT(story.ring.units_sent_to(node),
                  testing::ElementsAre((node + 1) % 4, (node + 2) % 4, (node + 3) % 4));
    }
  }
}

TEST(EngineDirect, TheFirstOpOfAnEpochGoesRound) {
  Ring ring(3, 1, direct());
  const auto tickets = ring.submit_all(op(0), sum_of(16));
  ring.run();
  ASSERT_TRUE(ring.all_ok(tickets));
  EXPECT_GT(ring.engine(0).counters().slices_sent, 0u);
  EXPECT_EQ(ring.result(tickets[0]), ring_sum(ring.view(), 16, 0, floats_of_slice(16, 3)));
}

// b has no room for more, and says READY without data. All see that.
TEST(EngineDirect, WhereOneMemberHasNoRoomAllGoRound) {
  DirectStory story(3);
  std::vector<Ticket> lonely;
  for (uint64_t i = 0; i < kEagerWindow; ++i) {
    lonely.push_back(story.ring.submit(1, op(100 + i), sum_of(16), values_of(1, 16, 100 + i)));
  }
  story.ring.run();
  const uint64_t before = story.slices();
  const auto tickets = story.submit(0, 100);
  story.ring.run();
  ASSERT_TRUE(story.ring.all_ok(tickets));
  EXPECT_GT(story.slices(), before);
  const Values expected = ring_sum(story.ring.view(), 100, 0, floats_of_slice(100, 3));
  for (const Ticket ticket : tickets) EXPECT_EQ(story.ring.result(ticket), expected);

  for (uint64_t i = 0; i < kEagerWindow; ++i) {
    for (const uint32_t rank : {0u, 2u}) {
      lonely.push_back(
          story.ring.submit(rank, op(100 + i), sum_of(16), values_of(rank, 16, 100 + i)));
    }
  }
  story.ring.run();
  EXPECT_TRUE(story.ring.all_ok(lonely));
  story.expect_nothing_left();
}

TEST(EngineDirect, AnyOrderOfArrivalsGivesTheSameBits) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(60); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    DirectStory story(4, 2);
    std::vector<Ticket> tickets;
    for (uint64_t number = 0; number < 6; ++number) {
      for (const Ticket ticket : story.submit(number, 10 + 25 * number)) tickets.push_back(ticket);
    }
    story.ring.run_shuffled(seed);
    ASSERT_TRUE(story.ring.all_ok(tickets));
    for (size_t i = 0; i < tickets.size(); ++i) {
      const uint64_t number = i / 8;
      const uint64_t count = 10 + 25 * number;
      ASSERT_EQ(story.ring.result(tickets[i]),
                ring_sum(story.ring.view(), count, number, floats_of_slice(count, 4)));
    }
    story.expect_nothing_left();
  }
}

TEST(EngineDirect, AMismatchMovesNothing) {
  DirectStory story(3);
  const auto a = story.ring.submit(0, op(0), sum_of(16), values_of(0, 16));
  const auto b = story.ring.submit(1, op(0), sum_of(15), values_of(1, 15));
  const auto c = story.ring.submit(2, op(0), sum_of(16), values_of(2, 16));
  story.ring.run();
  for (const Ticket ticket : {a, b, c}) {
    EXPECT_EQ(story.ring.outcome(ticket).failure.cause, Cause::kMismatch);
    EXPECT_EQ(story.ring.outcome(ticket).verdict, Verdict::kFailed);
  }
  const auto after = story.submit(1, 16);
  story.ring.run();
  EXPECT_TRUE(story.ring.all_ok(after));
  story.expect_nothing_left();
}

// a has summed the op and told its trainer; c died before its data reached b. b must get what a
// has.
TEST(EngineDirect, WhatOneSurvivorHasAllGet) {
  for (const uint64_t count : {16u, 100u}) {
    DirectStory story(3, 1, direct(), "elastic min=1");
    story.ring.hold(2, 1);
    const auto tickets = story.submit(0, count);
    story.ring.run();
    story.ring.crash(2);
    story.ring.change_view();
    story.ring.run();
    ASSERT_TRUE(story.ring.ended(tickets[0]) && story.ring.ended(tickets[1]));
    EXPECT_NE(story.ring.outcome(tickets[0]).verdict, Verdict::kFailed);
    EXPECT_EQ(story.ring.result(tickets[0]), story.ring.result(tickets[1]));
    story.expect_nothing_left();
  }
}

// At any moment of any order, with data half there or lost: the survivors agree.
TEST(EngineDirect, ADeathAtAnyMomentLeavesTheSurvivorsEqual) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(300); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    DirectStory story(3 + static_cast<uint32_t>(random.below(2)), 1, direct(), "elastic min=1");
    const uint64_t count = 1 + random.below(150);
    const Place place = random.below(2) == 0 ? Place::kApart : Place::kInPlace;
    const auto first = story.submit(0, count, place);
    const auto second = story.submit(1, 16, place);
    const uint64_t steps = random.below(40);
    for (uint64_t i = 0; i < steps; ++i) story.ring.step(&random);
    const auto dead = static_cast<uint32_t>(random.below(story.ring.nodes()));
    static constexpr Wake kWakes[] = {Wake::kArrives, Wake::kLost, Wake::kTorn};
    story.ring.crash(dead, kWakes[random.below(3)]);
    story.ring.change_view();
    story.ring.run_shuffled(seed);
    for (const auto& tickets : {first, second}) {
      std::optional<Values> result;
      for (uint32_t node = 0; node < story.ring.nodes(); ++node) {
        if (node == dead) continue;
        ASSERT_TRUE(story.ring.ended(tickets[node]));
        ASSERT_NE(story.ring.outcome(tickets[node]).verdict, Verdict::kFailed);
        if (!result) result = story.ring.result(tickets[node]);
        ASSERT_EQ(story.ring.result(tickets[node]), *result);
      }
    }
    story.expect_nothing_left();
  }
}

// It was on its way when its epoch ended: what it says is of a view that is over.
TEST(EngineDirect, DataThatLandsInTheNextEpochSaysNothing) {
  DirectStory story(2, 1, direct(), "elastic min=1");
  Ring& ring = story.ring;
  ring.hold(0, 1);
  const auto tickets = story.submit(0, 16);
  ring.run();
  const std::optional<uint32_t> unit =
      ring.engine(1).on_parcel(0, ring.peek(0, 1, FrameType::kReady));
  ASSERT_TRUE(unit);
  ring.change_view();
  ring.engine(1).on_parcel_landed(*unit, ring.now);
  EXPECT_EQ(ring.engine(1).find(op(0))->contributions[0], 0u);
  ring.release(0, 1);
  ring.run();
  ASSERT_TRUE(ring.all_ok(tickets));
  EXPECT_EQ(ring.result(tickets[0]), ring.result(tickets[1]));
  story.expect_nothing_left();
}

// Ops with their data follow one another without a word about who is done but in the next READY.
TEST(EngineDirect, OneAfterTheOtherNeedsNoOtherFrames) {
  DirectStory story(3);
  for (uint64_t number = 0; number < 100; ++number) {
    const auto tickets = story.submit(number, 16);
    for (uint32_t node = 0; node < 3; ++node) story.ring.pump(node);
    for (const FrameType type :
         {FrameType::kSlice, FrameType::kDone, FrameType::kStable, FrameType::kCredit}) {
      EXPECT_EQ(story.ring.under_way(type), 0u);
    }
    story.ring.run();
    ASSERT_TRUE(story.ring.all_ok(tickets));
    EXPECT_LE(story.ring.engine(0).kept_ops(), 2u);
  }
  EXPECT_LE(story.ring.engine(0).units(), 12u);
  story.expect_nothing_left();
}

Frame ready_with(const Ring& ring, OpKey key, uint64_t serial, uint32_t length) {
  Frame frame = ring.frame(FrameType::kReady, key);
  frame.ready.rank = 1;
  frame.ready.contributions = 1;
  frame.ready.signature = sum_of(16);
  frame.ready.eager = true;
  frame.ready.serial = serial;
  frame.ready.length = length;
  return frame;
}

TEST(EngineDirect, DataThatDoesNotFitItsOpBreaksTheRules) {
  DirectStory story(3);
  story.ring.inject(1, 0, ready_with(story.ring, op(5), 1, 32));
  ASSERT_EQ(story.ring.failures(0).size(), 1u);
  EXPECT_EQ(story.ring.failures(0)[0].cause, Cause::kProtocol);
  EXPECT_EQ(story.ring.failures(0)[0].blame.node, "b");
}

// Nobody would have what is to be summed.
TEST(EngineDirect, DataThatIsAnnouncedAndNotThereBreaksTheRules) {
  DirectStory story(3);
  story.ring.inject(1, 0, ready_with(story.ring, op(5), 1, 0));
  ASSERT_EQ(story.ring.failures(0).size(), 1u);
  EXPECT_EQ(story.ring.failures(0)[0].cause, Cause::kProtocol);
  EXPECT_EQ(story.ring.failures(0)[0].blame.node, "b");
}

TEST(EngineDirect, MoreDataThanMayBeUnderWayBreaksTheRules) {
  DirectStory story(3);
  story.ring.inject(1, 0, ready_with(story.ring, op(5), kEagerWindow + 1, 64));
  ASSERT_EQ(story.ring.failures(0).size(), 1u);
  EXPECT_EQ(story.ring.failures(0)[0].cause, Cause::kProtocol);
}

TEST(EngineDirect, AFinalFromWhoDidNotSumItBreaksTheRules) {
  DirectStory story(3);
  story.submit(0, 100);
  Frame frame = story.ring.frame(FrameType::kSlice, op(0));
  frame.slice.slice = 2;  // c's
  frame.slice.phase = Phase::kDirect;
  frame.slice.length = 36 * sizeof(float);
  story.ring.inject(1, 0, frame);
  ASSERT_EQ(story.ring.failures(0).size(), 1u);
  EXPECT_EQ(story.ring.failures(0)[0].cause, Cause::kProtocol);
}

TEST(EngineDirect, DoneWithWhatWasNeverSentBreaksTheRules) {
  DirectStory story(3);
  Frame frame = story.ring.frame(FrameType::kDone, {});
  frame.done = {0, 1};
  story.ring.inject(1, 0, frame);
  ASSERT_EQ(story.ring.failures(0).size(), 1u);
  EXPECT_EQ(story.ring.failures(0)[0].cause, Cause::kProtocol);
}

TEST(EngineDirect, WhatComesTwiceCountsOnce) {
  DirectStory story(3);
  const auto tickets = story.submit(0, 16);
  for (uint32_t node = 0; node < 3; ++node) story.ring.pump(node);
  const Frame ready = story.ring.peek(1, 0, FrameType::kReady);
  story.ring.run();
  ASSERT_TRUE(story.ring.all_ok(tickets));
  story.ring.inject(1, 0, ready);
  story.ring.run();
  EXPECT_EQ(story.ring.engine(0).counters().frames_repeated, 1u);
  story.expect_nothing_left();
}

}  // namespace
}  // namespace gradring::core
