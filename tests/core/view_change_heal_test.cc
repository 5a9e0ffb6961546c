// A network that was away for all, as when a switch starts anew (rule V2b), or between two of them.

#include <gmock/gmock.h>

#include "tests/core/view_change_council.h"

namespace gradring::core {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs pairs_of(const Council& council) {
  Pairs pairs;
  for (const std::string& one : council.nodes()) {
    for (const std::string& other : council.nodes()) {
      if (one < other) pairs.emplace_back(one, other);
    }
  }
  return pairs;
}

void part_all(Council& council) {
  for (const auto& [one, other] : pairs_of(council)) council.part(one, other);
}

void meet_all(Council& council, Time pause) {
  for (const auto& [one, other] : pairs_of(council)) {
    council.meet(one, other);
    council.settle(pause);
  }
}

TEST(ViewChange, ANetworkThatWasAwayForAllLeavesNobodyOut) {
  for (const Time pause : {Time{0}, 10 * kMillisecond, 400 * kMillisecond}) {
    Council council(4);
    part_all(council);
    council.settle(20 * kSecond);
    for (const std::string& node : council.nodes()) EXPECT_EQ(council.epoch(node), 1u);
    meet_all(council, pause);
    council.settle(5 * kSecond);
    for (const std::string& node : council.nodes()) {
      EXPECT_EQ(council.members(node), "a b c d") << node << ", " << pause / kMillisecond << " ms";
      EXPECT_EQ(council.epoch(node), 2u);
    }
  }
}

// 1, 2 and 2 of five: two of them have each other in their reports all the time.
TEST(ViewChange, ThreePartsOfWhichNoneIsAMajorityAreWholeAgain) {
  Council council(5);
  Pairs cut;
  for (const auto& [one, other] : pairs_of(council)) {
    const bool stays = (one == "b" && other == "c") || (one == "d" && other == "e");
    if (!stays) cut.emplace_back(one, other);
  }
  for (const auto& [one, other] : cut) council.part(one, other);
  council.settle(4 * kSecond);
  for (const auto& [one, other] : cut) council.meet(one, other);
  council.settle(5 * kSecond);
  for (const std::string& node : council.nodes()) EXPECT_EQ(council.members(node), "a b c d e");
}

// Its patience is over in the midst of that.
TEST(ViewChange, WhoseNetworkComesBackJustInTimeDoesNotGiveUp) {
  Council council(4);
  part_all(council);
  council.settle(59 * kSecond);
  meet_all(council, 350 * kMillisecond);
  council.settle(3 * kSecond);
  for (const std::string& node : council.nodes()) EXPECT_EQ(council.members(node), "a b c d");
  EXPECT_EQ(council.epoch("a"), 2u);
}

TEST(ViewChange, WhoDoesNotComeBackWithTheNetworkIsWaitedForSomeSecondsOnly) {
  Council council(4);
  part_all(council);
  council.crash("d");
  council.settle(10 * kSecond);
  for (const auto& [one, other] : pairs_of(council)) {
    if (other != "d") council.meet(one, other);
  }
  council.settle(2 * kSecond);
  EXPECT_EQ(council.epoch("a"), 1u);
  council.settle(2 * kSecond);
  for (const char* node : {"a", "b", "c"}) EXPECT_EQ(council.members(node), "a b c") << node;
}

// Else a job would change its view for ever, and get on never.
TEST(ViewChange, ANetworkThatBringsNothingButOurWordsHasNoOtherChanceSoSoon) {
  Council council(4);
  part_all(council);
  council.settle(5 * kSecond);
  meet_all(council, 0);
  council.settle(3 * kSecond);
  ASSERT_EQ(council.members("a"), "a b c d");
  part_all(council);
  council.settle(3 * kSecond);
  meet_all(council, 0);
  council.settle(3 * kSecond);
  EXPECT_EQ(council.members("a"), "a");
  EXPECT_TRUE(council.excluded("b") && council.excluded("c") && council.excluded("d"));
}

TEST(ViewChange, ANetworkThatWasGoodForLongMayGoAwayOnceMore) {
  Council council(4);
  for (uint64_t epoch : {2, 3}) {
    part_all(council);
    council.settle(5 * kSecond);
    meet_all(council, 0);
    council.settle(5 * kSecond);
    EXPECT_EQ(council.members("d"), "a b c d");
    EXPECT_EQ(council.epoch("d"), epoch);
    council.tick(120 * kSecond);
  }
}

// The others hear d as ever, and are told that it was silent: for whom, they cannot know.
TEST(ViewChange, WhoCallsANodeSilentGivesItsName) {
  Council council(4, "fail");
  council.hold("b", "d");
  council.hold("d", "b");
  Failure silent{Cause::kPeerSilent, {}};
  silent.blame.node = "d";
  silent.blame.evidence = "silent for 3.0 s";
  council.at("b").lost("d", silent, false, council.now);
  council.settle(1 * kSecond);
  EXPECT_THAT(council.at("a").view().explanation,
              testing::HasSubstr("node d: silent for 3.0 s, seen from node b"));
}

}  // namespace
}  // namespace gradring::core
