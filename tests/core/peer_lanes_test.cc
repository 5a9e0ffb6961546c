#include "daemon/core/peer_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradring::core {
namespace {

using State = PeerLanes::State;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Two lanes to a peer whose heartbeats come ten times a second.
class TwoLanes : public testing::Test {
 protected:
  // Lets time pass, hearing the lanes of `talking`; the peer says that it hears those of `heard`.
  std::vector<PeerLanes::Change> pass(Time duration, uint64_t talking, uint64_t heard) {
    std::vector<PeerLanes::Change> all;
    for (const Time end = now_ + duration; now_ < end;) {
      now_ += 100 * kMillisecond;
      for (uint8_t lane = 0; lane < 2; ++lane) {
        if ((talking >> lane & 1) != 0) lanes_.heard(lane, now_);
      }
      lanes_.peer_hears(heard, now_);
      lanes_.tick(now_);
      for (auto& change : lanes_.take_changes()) all.push_back(change);
    }
    return all;
  }
  std::vector<PeerLanes::Change> lose_lane_1() { return pass(1500 * kMillisecond, 0b01, 0b11); }

  Time now_ = 50 * kSecond;
  PeerLanes lanes_{2, {1 * kSecond, 3 * kSecond}, now_};
};

TEST_F(TwoLanes, BothCarryWhileBothEndsHearBoth) {
  EXPECT_THAT(pass(100 * kSecond, 0b11, 0b11), IsEmpty());
  EXPECT_EQ(lanes_.state(0), State::kUp);
  EXPECT_EQ(lanes_.state(1), State::kUp);
  EXPECT_EQ(lanes_.heard_lanes(), 0b11u);
}

TEST_F(TwoLanes, ASilentOneIsLostOnce) {
  const auto changes = lose_lane_1();
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].lane, 1);
  EXPECT_EQ(changes[0].to, State::kDown);
  EXPECT_TRUE(changes[0].was_used);
  EXPECT_THAT(changes[0].why, HasSubstr("silent for 1.0"));
  EXPECT_EQ(lanes_.heard_lanes(), 0b01u) << "the other end is told";
  EXPECT_TRUE(lanes_.any_up());
}

TEST_F(TwoLanes, WhatTheOtherEndLostIsLostHereToo) {
  const auto changes = pass(100 * kMillisecond, 0b11, 0b10);
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].lane, 0);
  EXPECT_TRUE(changes[0].was_used);
}

TEST_F(TwoLanes, ABrokenOneIsLostAtOnceAndOnlyOnce) {
  lanes_.broke(1, "connection reset", now_);
  lanes_.broke(1, "connection reset", now_);
  EXPECT_TRUE(lanes_.changed());
  const auto changes = lanes_.take_changes();
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].why, "connection reset");
  EXPECT_FALSE(lanes_.changed());
}

TEST_F(TwoLanes, AMendedOneIsTriedAndThenUsed) {
  lose_lane_1();
  const auto changes = pass(3 * kSecond, 0b11, 0b11);
  ASSERT_THAT(changes, SizeIs(2));
  EXPECT_EQ(changes[0].to, State::kTrying);
  EXPECT_EQ(changes[1].to, State::kUp);
  EXPECT_EQ(lanes_.heard_lanes(), 0b11u);
}

// What was heard of it before it was lost says nothing, however long a silence may be.
TEST(PatientLanes, OneThatIsNotHeardAnewIsNotUsed) {
  Time now = 50 * kSecond;
  PeerLanes lanes(2, {5 * kSecond, 15 * kSecond}, now);
  lanes.heard(1, now);
  lanes.peer_hears(0b11, now);
  lanes.broke(1, "connection reset", now);
  for (int i = 0; i < 40; ++i) {
    now += 100 * kMillisecond;
    lanes.heard(0, now);
    lanes.peer_hears(0b11, now);
    lanes.tick(now);
    ASSERT_NE(lanes.state(1), State::kUp) << i;
  }
  EXPECT_EQ(lanes.state(1), State::kTrying);
}

// Then it is more likely the peer that is slow.
TEST_F(TwoLanes, OneIsNotLostAloneWhereTheOtherIsSilentToo) {
  EXPECT_THAT(pass(500 * kMillisecond, 0b01, 0b11), IsEmpty());
  EXPECT_THAT(pass(700 * kMillisecond, 0b00, 0b11), IsEmpty()) << "for 1.2 and for 0.7 seconds";
  EXPECT_THAT(pass(kSecond, 0b11, 0b11), IsEmpty());
}

TEST_F(TwoLanes, OneThatTheOtherEndDoesNotHearIsNotUsed) {
  lose_lane_1();
  pass(2 * kSecond, 0b11, 0b01);
  EXPECT_EQ(lanes_.state(1), State::kTrying);
  EXPECT_EQ(lanes_.heard_lanes(), 0b11u) << "but the other end is told that it is heard here";
}

TEST_F(TwoLanes, ATriedOneThatBreaksWasNotUsed) {
  lose_lane_1();
  pass(1 * kSecond, 0b01, 0b01);
  ASSERT_EQ(lanes_.state(1), State::kTrying);
  lanes_.broke(1, "no route to host", now_);
  const auto changes = lanes_.take_changes();
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_FALSE(changes[0].was_used) << "so nothing was lost on it";
}

TEST_F(TwoLanes, OneThatComesAndGoesIsLeftAloneLongerEachTime) {
  Time last = 0;
  for (int time = 0; time < 4; ++time) {
    lanes_.broke(1, "connection reset", now_);
    const Time broke = now_;
    while (lanes_.state(1) != State::kUp) pass(100 * kMillisecond, 0b11, 0b11);
    EXPECT_GT(now_ - broke, last);
    last = now_ - broke;
  }
  pass(100 * kSecond, 0b11, 0b11);  // then it proves itself
  lanes_.broke(1, "connection reset", now_);
  const Time broke = now_;
  while (lanes_.state(1) != State::kUp) pass(100 * kMillisecond, 0b11, 0b11);
  EXPECT_LT(now_ - broke, last);
}

TEST_F(TwoLanes, OneWhosePortIsDownIsLostAtOnceAndTriedWhenThePortIsBack) {
  lanes_.port_down(1, "its port is down", now_);
  const auto lost = lanes_.take_changes();
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(lost[0].lane, 1);
  EXPECT_EQ(lost[0].to, State::kDown);
  EXPECT_TRUE(lost[0].was_used);
  EXPECT_EQ(lost[0].why, "its port is down");
  EXPECT_EQ(lanes_.heard_lanes(), 0b01u) << "the other end is told";
  EXPECT_THAT(pass(60 * kSecond, 0b01, 0b01), IsEmpty()) << "nobody tries a port that is down";
  lanes_.port_active(1);
  const auto back = pass(3 * kSecond, 0b11, 0b11);
  ASSERT_THAT(back, SizeIs(2));
  EXPECT_EQ(back[1].to, State::kUp);
}

TEST_F(TwoLanes, ThePortOfTheLastLaneIsLeftAlone) {
  lanes_.port_down(1, "its port is down", now_);
  lanes_.port_down(0, "its port is down", now_);
  ASSERT_THAT(lanes_.take_changes(), SizeIs(1)) << "it may be short";
  EXPECT_EQ(lanes_.state(0), State::kUp);
  // The other one is back first, so it is the one to use.
  lanes_.port_active(1);
  const auto changes = pass(5 * kSecond, 0b11, 0b11);
  EXPECT_EQ(lanes_.state(1), State::kUp);
  EXPECT_EQ(lanes_.state(0), State::kDown);
  EXPECT_EQ(changes.back().lane, 0);
  lanes_.port_active(0);
  pass(5 * kSecond, 0b11, 0b11);
  EXPECT_EQ(lanes_.state(0), State::kUp);
}

TEST(OneLane, OutlivesItsPort) {
  PeerLanes lanes(1, {1 * kSecond, 3 * kSecond}, 50 * kSecond);
  lanes.port_down(0, "its port is down", 50 * kSecond);
  lanes.port_down(9, "there is no such lane", 50 * kSecond);
  EXPECT_FALSE(lanes.changed());
  lanes.tick(50 * kSecond + 900 * kMillisecond);
  EXPECT_TRUE(lanes.any_up());
}

TEST_F(TwoLanes, WhenBothAreSilentNoneIsLeft) {
  pass(3500 * kMillisecond, 0, 0b11);
  EXPECT_FALSE(lanes_.any_up());
}

}  // namespace
}  // namespace gradring::core
