// A table in the next view: rule V11.

#include <gmock/gmock.h>

#include "tests/core/view_change_council.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;

Tuning some_table() {
  Tuning tuning;
  tuning.set({10, {Choice::Way::kRing, 64 << 10}, {}});
  return tuning;
}

TEST(ViewChange, ATableComesWithTheNextView) {
  Council council(3, "fail");
  council.at("b").want_tuning(some_table(), council.now);
  council.run();
  for (const char* node : {"a", "b", "c"}) {
    EXPECT_EQ(council.epoch(node), 2u);
    EXPECT_EQ(council.at(node).view().tuning, some_table());
    EXPECT_THAT(council.at(node).view().explanation, HasSubstr("another table"));
  }
  council.at("c").want(true, council.now);
  council.run();
  EXPECT_EQ(council.at("a").view().tuning, some_table()) << "the nodes are the same";
  council.crash_and_notice("c");
  council.run();
  EXPECT_EQ(council.at("a").view().tuning, Tuning{}) << "it was made for others";
}

TEST(ViewChange, ATableThatWasWantedOnceIsNotProposedAgain) {
  Council council(3);
  council.at("b").want_tuning(some_table(), council.now);
  council.run();
  Tuning other;
  other.set({12, {Choice::Way::kWhole, 0}, {}});
  council.at("c").want_tuning(other, council.now);
  council.run();
  council.at("b").want(true, council.now);
  council.run();
  EXPECT_EQ(council.epoch("a"), 4u);
  EXPECT_EQ(council.at("a").view().tuning, other);
}

TEST(ViewChange, NobodyIsLeftOutForATable) {
  Council council(3);
  council.at("b").want(true, council.now);  // another reason, which that view has done with
  council.run();
  ASSERT_EQ(council.epoch("a"), 2u);
  for (const char* node : {"a", "b"}) council.hold("c", node);
  council.at("a").want_tuning(some_table(), council.now);
  council.settle(20 * kSecond);  // and others take it over meanwhile
  EXPECT_EQ(council.epoch("a"), 2u);
  for (const char* node : {"a", "b"}) council.release("c", node);
  council.settle(10 * kSecond);
  for (const char* node : {"a", "b", "c"}) EXPECT_EQ(council.members(node), "a b c");
}

TEST(ViewChange, WhoIsLostIsNotWaitedForEither) {
  Council council(3);
  for (const char* node : {"a", "b"}) council.hold("c", node);
  council.at("a").want_tuning(some_table(), council.now);
  council.settle(3 * kSecond);
  EXPECT_EQ(council.epoch("a"), 1u);
  council.crash_and_notice("c");
  council.settle(5 * kSecond);
  EXPECT_EQ(council.members("a"), "a b");
  EXPECT_EQ(council.at("b").view().tuning, Tuning{});
}

// It was done with the job, which was not known yet when the table was asked for, and its daemon
// ended before it could answer.
TEST(ViewChange, WhoIsDoneAndGoneIsNotWaitedForEither) {
  Council council(3);
  for (const char* node : {"a", "b"}) council.hold("c", node);
  council.at("a").want_tuning(some_table(), council.now);
  council.settle(100 * kMillisecond);
  council.crash("c");
  for (const char* node : {"a", "b"}) council.at(node).gone("c");
  council.settle(60 * kSecond);
  EXPECT_EQ(council.members("a"), "a b");
  EXPECT_EQ(council.members("b"), "a b");
}

TEST(ViewChange, ATableWaitsForWhateverElseIsUnderWay) {
  Council council(3);
  council.reports_at_once = false;
  council.at("b").want(true, council.now);
  council.run();
  council.at("b").want_tuning(some_table(), council.now);
  council.reports_at_once = true;
  council.settle(kSecond);
  EXPECT_EQ(council.epoch("a"), 2u);
  EXPECT_EQ(council.at("a").view().tuning, Tuning{});
}

}  // namespace
}  // namespace gradring::core
