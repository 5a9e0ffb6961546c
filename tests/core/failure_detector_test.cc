#include "daemon/core/failure_detector.h"

#include <gtest/gtest.h>

namespace gradring::core {
namespace {

using Health = FailureDetector::Health;

// A watch that looks ten times a second, as the control thread does.
class Watch : public testing::Test {
 protected:
  // Lets time pass, hearing the peers of `talking` all along; returns the changes.
  std::vector<FailureDetector::Change> pass(Time duration,
                                            const std::vector<std::string>& talking) {
    std::vector<FailureDetector::Change> all;
    for (const Time end = now + duration; now < end;) {
      now += 100 * kMillisecond;
      for (const std::string& peer : talking) detector.heard(peer, now);
      for (auto& change : detector.tick(now)) all.push_back(change);
    }
    return all;
  }

  Time now = 50 * kSecond;
  FailureDetector detector{{1 * kSecond, 3 * kSecond}};
};

TEST_F(Watch, WhoTalksIsWell) {
  detector.add("b", now);
  EXPECT_TRUE(pass(10 * kSecond, {"b"}).empty());
  EXPECT_EQ(detector.health_of("b"), Health::kAlive);
}

TEST_F(Watch, SilenceIsSuspectedThenDecided) {
  detector.add("b", now);
  detector.add("c", now);
  EXPECT_TRUE(pass(900 * kMillisecond, {"c"}).empty());

  auto changes = pass(100 * kMillisecond, {"c"});
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].peer, "b");
  EXPECT_EQ(changes[0].health, Health::kSuspect);
  EXPECT_EQ(changes[0].silent, 1 * kSecond);

  EXPECT_TRUE(pass(1900 * kMillisecond, {"c"}).empty()) << "a suspicion is told once";
  changes = pass(100 * kMillisecond, {"c"});
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].peer, "b");
  EXPECT_EQ(changes[0].health, Health::kLost);
  EXPECT_EQ(changes[0].silent, 3 * kSecond);
  EXPECT_TRUE(pass(10 * kSecond, {"c"}).empty()) << "a loss is told once";
  EXPECT_EQ(detector.health_of("c"), Health::kAlive);
}

TEST_F(Watch, ASuspectThatAnswersIsWellAgain) {
  detector.add("b", now);
  ASSERT_EQ(pass(2 * kSecond, {}).size(), 1u);
  EXPECT_EQ(detector.silent_for("b", now), 2 * kSecond);
  const auto changes = pass(100 * kMillisecond, {"b"});
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].health, Health::kAlive);
  EXPECT_TRUE(pass(900 * kMillisecond, {}).empty()) << "it has its full time anew";
}

TEST_F(Watch, WhatIsLostStaysLostUntilAddedAnew) {
  detector.add("b", now);
  pass(3 * kSecond, {});
  EXPECT_EQ(detector.health_of("b"), Health::kLost);
  EXPECT_TRUE(pass(1 * kSecond, {"b"}).empty()) << "a decision is not taken back";
  EXPECT_EQ(detector.health_of("b"), Health::kLost);
  detector.add("b", now);
  EXPECT_EQ(detector.health_of("b"), Health::kAlive);
  EXPECT_TRUE(pass(900 * kMillisecond, {}).empty());
}

TEST_F(Watch, WhoIsRemovedIsNotMissed) {
  detector.add("b", now);
  detector.remove("b");
  EXPECT_TRUE(pass(10 * kSecond, {}).empty());
  EXPECT_EQ(detector.health_of("b"), Health::kLost) << "nobody vouches for a stranger";
  detector.heard("b", now);
  EXPECT_TRUE(pass(10 * kSecond, {}).empty());
}

TEST_F(Watch, AWatchThatSleptBlamesNobody) {
  detector.add("b", now);
  detector.add("c", now);
  pass(5 * kSecond, {"b", "c"});
  now += 60 * kSecond;  // the host was paused
  EXPECT_TRUE(detector.tick(now).empty());
  EXPECT_TRUE(pass(900 * kMillisecond, {"b"}).empty()) << "everybody has the full time anew";
  EXPECT_EQ(pass(100 * kMillisecond, {"b"}).size(), 1u);
  EXPECT_EQ(detector.health_of("c"), Health::kSuspect);
}

TEST_F(Watch, AWatchThatSleptClearsASuspicionButNotADecision) {
  detector.add("b", now);
  pass(2 * kSecond, {});
  detector.add("c", now);
  pass(1 * kSecond, {});
  ASSERT_EQ(detector.health_of("b"), Health::kLost);
  ASSERT_EQ(detector.health_of("c"), Health::kSuspect);
  now += 60 * kSecond;
  const auto changes = detector.tick(now);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].peer, "c");
  EXPECT_EQ(changes[0].health, Health::kAlive);
  EXPECT_EQ(detector.health_of("b"), Health::kLost);
}

TEST_F(Watch, APauseBeforeTheFirstLookBlamesNobodyEither) {
  detector.add("b", now);
  now += 60 * kSecond;
  EXPECT_TRUE(detector.tick(now).empty());
  EXPECT_EQ(detector.health_of("b"), Health::kAlive);
}

}  // namespace
}  // namespace gradring::core
