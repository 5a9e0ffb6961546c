// Whose slices start first.
#include "daemon/core/start_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace gradring::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class StartLineTest : public testing::Test {
 protected:
  Op& add(int32_t priority, uint64_t number) {
    Op& op = ops_.emplace_back();
    op.priority = priority;
    op.key = {0, number};
    line_.add(op);
    return op;
  }
  std::vector<uint64_t> numbers() {
    std::vector<uint64_t> all;
    for (const Op* op : line_) all.push_back(op->key.sequence);
    return all;
  }

  std::deque<Op> ops_;
  StartLine line_;
};

TEST_F(StartLineTest, TheMostUrgentAreFirstAndThenTheOldest) {
  add(0, 1);
  add(5, 2);
  add(0, 3);
  add(-1, 4);
  add(5, 5);
  EXPECT_THAT(numbers(), ElementsAre(2, 5, 1, 3, 4));
}

TEST_F(StartLineTest, WhoeverLeavesLeavesTheOthersInOrder) {
  Op& first = add(1, 1);
  Op& second = add(1, 2);
  add(1, 3);
  line_.remove(second);
  EXPECT_THAT(numbers(), ElementsAre(1, 3));
  line_.remove(second);  // who is gone
  EXPECT_THAT(numbers(), ElementsAre(1, 3));
  line_.add(second);  // comes as the last one again
  EXPECT_THAT(numbers(), ElementsAre(1, 3, 2));
  line_.remove(first);
  EXPECT_THAT(numbers(), ElementsAre(3, 2));
  line_.clear();
  line_.remove(second);
  EXPECT_THAT(numbers(), IsEmpty());
}

TEST_F(StartLineTest, WhoNeverCameIsNotMissed) {
  Op stranger;
  add(0, 1);
  line_.remove(stranger);
  EXPECT_THAT(numbers(), ElementsAre(1));
}

}  // namespace
}  // namespace gradring::core
