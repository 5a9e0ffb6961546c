#include "client/src/communicator/need_order.h"

#include <gmock/gmock.h>

#include <utility>
#include <vector>

namespace gradring::client {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Names = std::vector<std::string>;

// A trainer that submits its ops in one order and asks for them in another.
class NeedOrderTest : public testing::Test {
 protected:
  using Asked = std::vector<std::pair<std::string, uint64_t>>;

  Asked submit(const Names& names) {
    Asked places;
    for (const std::string& name : names) places.emplace_back(name, order_.submitted(name).step);
    return places;
  }
  void step(const Names& submitted, const Names& needed) {
    const Asked places = submit(submitted);
    for (const std::string& name : needed) {
      for (const auto& [other, number] : places) {
        if (other == name) order_.needed(name, number);
      }
    }
  }
  void steps(size_t count, const Names& submitted, const Names& needed) {
    for (size_t i = 0; i < count; ++i) step(submitted, needed);
  }
  Names learned() const {
    Names names;
    int32_t priority = 0;
    for (const auto& entry : order_.learned()) {
      EXPECT_EQ(entry.priority, --priority) << entry.name;
      names.push_back(entry.name);
    }
    return names;
  }

  // In which step: each is looked at when the one behind it has ended.
  static constexpr size_t kUntilLearned = NeedOrder::kSteps + 2;
  NeedOrder order_;
};

TEST_F(NeedOrderTest, WhatIsNeededFirstGoesFirst) {
  steps(kUntilLearned - 1, {"c", "b", "a"}, {"a", "b", "c"});
  EXPECT_THAT(learned(), IsEmpty());
  EXPECT_EQ(order_.submitted("c").priority, -3);
  EXPECT_EQ(order_.submitted("b").priority, -2);
  EXPECT_THAT(learned(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(order_.submitted("a").priority, -1);
}

TEST_F(NeedOrderTest, WhoWaitsInTheOrderOfSubmissionChangesNothing) {
  steps(kUntilLearned, {"c", "b", "a"}, {"c", "b", "a"});
  EXPECT_THAT(learned(), ElementsAre("c", "b", "a"));
}

TEST_F(NeedOrderTest, OneStepOutOfTurnCountsForLittle) {
  step({"c", "b", "a"}, {"a", "b", "c"});
  step({"c", "b", "a"}, {"c", "a", "b"});
  steps(kUntilLearned - 2, {"c", "b", "a"}, {"a", "b", "c"});
  EXPECT_THAT(learned(), ElementsAre("a", "b", "c"));
}

TEST_F(NeedOrderTest, WhatIsAskedForInTheNextStepCountsForItsOwn) {
  Asked last;
  for (size_t i = 0; i < kUntilLearned + 1; ++i) {
    const Asked now = submit({"b", "a"});
    for (auto entry = last.rbegin(); entry != last.rend(); ++entry) {
      order_.needed(entry->first, entry->second);
    }
    last = now;
  }
  EXPECT_THAT(learned(), ElementsAre("a", "b"));
}

TEST_F(NeedOrderTest, AStepInWhichNotAllWasAskedForTeachesNothing) {
  steps(20, {"b", "a"}, {"a"});
  EXPECT_THAT(learned(), IsEmpty());
}

// What is used once, before training, is part of the first step, which is like no other.
TEST_F(NeedOrderTest, AStepUnlikeItsNeighboursTeachesNothing) {
  step({"weights", "b", "a"}, {"weights", "b", "a"});
  steps(kUntilLearned, {"b", "a"}, {"a", "b"});
  EXPECT_THAT(learned(), ElementsAre("a", "b"));
  for (int i = 0; i < 5; ++i) {
    step({"b", "a", "loss"}, {"loss", "b", "a"});
    steps(2, {"b", "a"}, {"b", "a"});
  }
  EXPECT_THAT(learned(), ElementsAre("a", "b")) << "and it is kept";
}

TEST_F(NeedOrderTest, OtherNamesAreLearnedAnew) {
  steps(kUntilLearned, {"b", "a"}, {"a", "b"});
  step({"b", "a", "x"}, {"x", "b", "a"});
  EXPECT_EQ(order_.submitted("b").priority, -2) << "until then the old ones hold";
  order_.submitted("a");
  EXPECT_EQ(order_.submitted("x").priority, 0) << "new";
  steps(kUntilLearned, {"b", "a", "x"}, {"x", "b", "a"});
  EXPECT_THAT(learned(), ElementsAre("x", "b", "a"));
  steps(kUntilLearned + 1, {"y"}, {"y"});
  EXPECT_THAT(learned(), ElementsAre("y"));
  EXPECT_EQ(order_.submitted("a").priority, 0) << "forgotten";
}

// Another order of the same names is not looked at any more.
TEST_F(NeedOrderTest, WhatWasLearnedStays) {
  steps(kUntilLearned, {"b", "a"}, {"a", "b"});
  steps(3 * kUntilLearned, {"b", "a"}, {"b", "a"});
  EXPECT_THAT(learned(), ElementsAre("a", "b"));
}

TEST_F(NeedOrderTest, WhoGivesEachOpAName) {
  for (int i = 0; i < 100; ++i) {
    const std::string name = "op " + std::to_string(i);
    order_.needed(name, order_.submitted(name).step);
  }
  EXPECT_THAT(learned(), IsEmpty());
}

}  // namespace
}  // namespace gradring::client
