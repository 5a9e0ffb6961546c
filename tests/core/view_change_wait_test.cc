// For whom a proposer waits, and how long.

#include <gmock/gmock.h>

#include "tests/core/view_change_council.h"

namespace gradring::core {
namespace {

// Nothing was wrong for a and c but what b has told them, and then b says no more.
TEST(ViewChange, WhoTakesAnAttemptOverIsAsImpatientAsWhoBeganIt) {
  Council council(3);
  council.at("b").want(true, council.now);
  council.run();
  ASSERT_EQ(council.epoch("b"), 2u);
  council.reports_at_once = false;
  council.at("b").want(true, council.now);
  for (const char* node : {"a", "c"}) ASSERT_TRUE(council.deliver("b", node));
  council.crash("b");  // nobody notices
  council.reports_at_once = true;
  council.settle(5 * kSecond);
  for (const char* node : {"a", "c"}) EXPECT_EQ(council.members(node), "a c");
}

// a alone is a quorum of two, and has nothing left that could go on; b is slow to answer.
TEST(ViewChange, WhoHasNobodyLeftDoesNotEndTheJobOfWhoIsSlow) {
  Council council(2);
  council.reports_at_once = false;
  council.hold("a", "b");
  council.at("a").want(true, council.now);
  Report report;
  report.node = "a";
  report.lost = {{0, {Cause::kTrainerDied, {}}}};
  report.reachable = {"b"};
  report.wants_out = true;
  council.at("a").on_report(1, report, council.now);
  council.settle(5 * kSecond);
  EXPECT_EQ(council.epoch("a"), 1u) << "a view of nobody";
  council.reports_at_once = true;
  council.release("a", "b");
  council.settle(5 * kSecond);
  EXPECT_TRUE(council.excluded("a"));
  EXPECT_EQ(council.members("b"), "b");
}

// No quorum can come any more of those that have not left for good.
TEST(ViewChange, WhomTooManyHaveLeftForGoodWaitsNoLongerThanForALastVote) {
  Council council(3);
  for (const char* other : {"a", "b"}) council.crash(other);
  council.lose("c", "a", true);
  council.settle(10 * kSecond);
  EXPECT_FALSE(council.gave_up("c")) << "b may answer";
  council.lose("c", "b", true);
  council.settle(5 * kSecond);
  ASSERT_TRUE(council.gave_up("c"));
  EXPECT_EQ(council.gave_up("c")->cause, Cause::kPeerLost) << "that of the loss, and no vote";
}

// b was in reach all the time.
TEST(ViewChange, WhoGaveUpBeforeIsNotCalledOutOfReach) {
  Council council(5);
  for (const char* far : {"c", "d", "e"}) {
    for (const char* near : {"a", "b"}) council.part(near, far);
  }
  council.settle(50 * kSecond);
  council.lose("a", "b", true);
  council.settle(15 * kSecond);
  ASSERT_TRUE(council.gave_up("a"));
  EXPECT_THAT(council.gave_up("a")->blame.evidence,
              testing::EndsWith("; not reached: c, d, e; left the job before: b"));
}

// a has come back without what it held, and votes (rule R2).
TEST(ViewChange, WhoHasLeftAndVotesIsAnswerEnough) {
  Council council(2);
  council.hold("a", "b");
  council.lose("b", "a", true);
  council.tick(3 * kSecond);
  EXPECT_FALSE(council.gave_up("b"));
  council.release("a", "b");
  council.settle(10 * kSecond);
  EXPECT_FALSE(council.gave_up("b"));
  EXPECT_GT(council.epoch("b"), 1u);
}

// Of b, which cannot have a quorum, c has a ballot every few seconds: a, which can since c is back,
// must not take longer than that for its next one, whatever it has asked in vain before.
TEST(ViewChange, WhoHasAskedInVainAsksSoonAgainOnceAVoterThatHasLeftIsBack) {
  Council council(4);
  for (const char* other : {"a", "b", "c"}) council.lose(other, "d", true);
  council.crash("d");
  council.part("a", "b");
  council.part("a", "c");
  council.settle(30 * kSecond);
  ASSERT_EQ(council.epoch("a"), 1u);
  for (const char* other : {"a", "b"}) council.lose(other, "c", true);
  council.meet("a", "c");
  council.meet("b", "c");
  for (int turn = 0; turn < 600; ++turn) {  // c answers, and wants nothing itself any more
    council.now += 10 * kMillisecond;
    for (const char* other : {"a", "b"}) council.at(other).tick(council.now);
    council.run();
  }
  EXPECT_EQ(council.epoch("a"), 2u);
}

// Each asks every five seconds only by then.
TEST(ViewChange, WhoHasAskedInVainAsksSoonAgainOnceTheNetworkIsBack) {
  Council council(3);
  const auto each = [](const auto& what) {
    for (const auto& [one, other] : {std::pair("a", "b"), {"a", "c"}, {"b", "c"}}) what(one, other);
  };
  each([&](const char* one, const char* other) { council.part(one, other); });
  council.settle(32 * kSecond);
  ASSERT_EQ(council.epoch("a"), 1u);
  each([&](const char* one, const char* other) { council.meet(one, other); });
  council.settle(1100 * kMillisecond);
  for (const char* node : {"a", "b", "c"}) EXPECT_EQ(council.epoch(node), 2u) << node;
}

// What b answers takes longer than a waits for it.
TEST(ViewChange, WhatAMajorityHasAcceptedIsDecidedHoweverLateThatIsHeard) {
  Council council(3);
  council.lose("a", "c");
  council.lose("b", "c");
  council.crash("c");
  while (council.sent<change::Accept>("a", "b").empty()) {
    council.tick(10 * kMillisecond);
    for (const char* node : {"a", "b"}) council.report(node);
    council.deliver("a", "b");
    council.deliver("b", "a");
  }
  council.hold("b", "a");
  council.settle(2500 * kMillisecond);
  ASSERT_THAT(council.sent<change::Accepted>("b", "a"), testing::SizeIs(1));
  ASSERT_EQ(council.epoch("a"), 1u);
  council.deliver("b", "a");
  EXPECT_EQ(council.epoch("a"), 2u);
}

}  // namespace
}  // namespace gradring::core
