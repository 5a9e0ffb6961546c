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
    for (const Time end = now_ + duration; now_ < end;) {
      now_ += 100 * kMillisecond;
      for (const std::string& peer : talking) detector_.heard(peer, now_);
      for (auto& change : detector_.tick(now_)) all.push_back(change);
    }
    return all;
  }

  Time now_ = 50 * kSecond;
  FailureDetector detector_{{1 * kSecond, 3 * kSecond}};
};

TEST_F(Watch, WhoTalksIsWell) {
  detector_.add("b", now_);
  EXPECT_TRUE(pass(10 * kSecond, {"b"}).empty());
  EXPECT_EQ(detector_.health_of("b"), Health::kAlive);
}

TEST_F(Watch, SilenceIsSuspectedThenDecided) {
  detector_.add("b", now_);
  detector_.add("c", now_);
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
  EXPECT_EQ(detector_.health_of("c"), Health::kAlive);
}

TEST_F(Watch, ASuspectThatAnswersIsWellAgain) {
  detector_.add("b", now_);
  ASSERT_EQ(pass(2 * kSecond, {}).size(), 1u);
  EXPECT_EQ(detector_.silent_for("b", now_), 2 * kSecond);
  const auto changes = pass(100 * kMillisecond, {"b"});
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].health, Health::kAlive);
  EXPECT_TRUE(pass(900 * kMillisecond, {}).empty()) << "it has its full time anew";
}

TEST_F(Watch, WhatIsLostStaysLostUntilAddedAnew) {
  detector_.add("b", now_);
  pass(3 * kSecond, {});
  EXPECT_EQ(detector_.health_of("b"), Health::kLost);
  EXPECT_TRUE(pass(1 * kSecond, {"b"}).empty()) << "a decision is not taken back";
  EXPECT_EQ(detector_.health_of("b"), Health::kLost);
  detector_.add("b", now_);
  EXPECT_EQ(detector_.health_of("b"), Health::kAlive);
  EXPECT_TRUE(pass(900 * kMillisecond, {}).empty());
}

TEST_F(Watch, WhoIsRemovedIsNotMissed) {
  detector_.add("b", now_);
  detector_.remove("b");
  EXPECT_TRUE(pass(10 * kSecond, {}).empty());
  EXPECT_EQ(detector_.health_of("b"), Health::kLost) << "nobody vouches for a stranger";
  detector_.heard("b", now_);
  EXPECT_TRUE(pass(10 * kSecond, {}).empty());
}

TEST_F(Watch, ItKnowsForAWhileThatItSlept) {
  const Time since = now_;
  pass(2 * kSecond, {});
  EXPECT_EQ(detector_.slept(now_, since), 0);
  now_ += 5 * kSecond;
  EXPECT_EQ(detector_.slept(now_, since), 5 * kSecond) << "before it looks around";
  pass(1 * kSecond, {});
  EXPECT_EQ(detector_.slept(now_, since), 5 * kSecond + 100 * kMillisecond);
  EXPECT_EQ(detector_.slept(now_, now_ - 500 * kMillisecond), 0) << "who came later saw nothing";
  pass(3 * kSecond, {});
  EXPECT_EQ(detector_.slept(now_, since), 0);
}

TEST_F(Watch, AWatchThatSleptBlamesNobody) {
  detector_.add("b", now_);
  detector_.add("c", now_);
  pass(5 * kSecond, {"b", "c"});
  now_ += 60 * kSecond;  // the host was paused
  EXPECT_TRUE(detector_.tick(now_).empty());
  EXPECT_TRUE(pass(900 * kMillisecond, {"b"}).empty()) << "everybody has the full time anew";
  EXPECT_EQ(pass(100 * kMillisecond, {"b"}).size(), 1u);
  EXPECT_EQ(detector_.health_of("c"), Health::kSuspect);
}

TEST_F(Watch, AWatchThatSleptClearsASuspicionButNotADecision) {
  detector_.add("b", now_);
  pass(2 * kSecond, {});
  detector_.add("c", now_);
  pass(1 * kSecond, {});
  ASSERT_EQ(detector_.health_of("b"), Health::kLost);
  ASSERT_EQ(detector_.health_of("c"), Health::kSuspect);
  now_ += 60 * kSecond;
  const auto changes = detector_.tick(now_);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].peer, "c");
  EXPECT_EQ(changes[0].health, Health::kAlive);
  EXPECT_EQ(detector_.health_of("b"), Health::kLost);
}

TEST_F(Watch, APauseBeforeTheFirstLookBlamesNobodyEither) {
  detector_.add("b", now_);
  now_ += 60 * kSecond;
  EXPECT_TRUE(detector_.tick(now_).empty());
  EXPECT_EQ(detector_.health_of("b"), Health::kAlive);
}

}  // namespace
}  // namespace gradring::core
