#include "daemon/core/late_watch.h"

#include <gtest/gtest.h>

#include "daemon/core/step_times.h"

namespace gradring::core {
namespace {

// A rank's steps of 100 ms, and whether it is time to tell that others wait for it.
class LateSteps {
 public:
  LateSteps() { steps(1, 0); }  // what comes before the first exchange is no step

  void steps(int count, Time late) {
    for (int i = 0; i < count; ++i) {
      now_ += 95 * kMillisecond;
      times_.submitted(0, now_);
      Op op;
      op.locals.emplace_back(Submission{});
      op.arrivals = {now_ - late, {now_}, static_cast<uint32_t>(late / (kMillisecond / 1000))};
      times_.moves(op);
      now_ += 5 * kMillisecond;
      times_.ended(0, now_, 0);
    }
  }
  std::optional<LateChange> changed(Time now) {
    const auto changes = times_.take_changes(now);
    if (changes.empty()) return std::nullopt;
    return changes.at(0);
  }

 private:
  StepTimes times_{0};
  Time now_ = 0;
};

TEST(LateWatch, FewStepsSayNothing) {
  LateSteps rank;
  rank.steps(19, 40 * kMillisecond);
  EXPECT_FALSE(rank.changed(kSecond));
  rank.steps(1, 40 * kMillisecond);
  EXPECT_TRUE(rank.changed(kSecond));
}

TEST(LateWatch, TellsHowOftenAndByHowMuchInTheMiddle) {
  LateSteps rank;
  rank.steps(12, 1 * kMillisecond);
  rank.steps(4, 10 * kMillisecond);
  rank.steps(5, 50 * kMillisecond);
  const auto change = rank.changed(kSecond);
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->late);
  EXPECT_EQ(change->times, 9u);
  EXPECT_EQ(change->of, 21u);
  EXPECT_EQ(change->median, 50 * kMillisecond);
}

TEST(LateWatch, ATailOfLateStepsIsNotEnough) {
  LateSteps rank;
  rank.steps(70, 0);
  rank.steps(30, 40 * kMillisecond);
  EXPECT_FALSE(rank.changed(kSecond)) << "30 of 100 are less than a third";
  rank.steps(4, 40 * kMillisecond);
  EXPECT_TRUE(rank.changed(kSecond));
}

TEST(LateWatch, OnlyTheLast100StepsCount) {
  LateSteps rank;
  rank.steps(520, 0);  // more than are kept
  rank.steps(34, 40 * kMillisecond);
  const auto change = rank.changed(kSecond);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->times, 34u);
  EXPECT_EQ(change->of, 100u);
}

TEST(LateWatch, IsToldOnceAndThenWhenItIsOver) {
  LateSteps rank;
  rank.steps(100, 40 * kMillisecond);
  EXPECT_TRUE(rank.changed(kSecond));
  EXPECT_FALSE(rank.changed(kSecond * 60)) << "nothing has changed";
  rank.steps(90, 0);
  EXPECT_FALSE(rank.changed(kSecond * 60)) << "10 of the last 100 were late";
  rank.steps(1, 0);
  const auto change = rank.changed(kSecond * 60);
  ASSERT_TRUE(change);
  EXPECT_FALSE(change->late);
  EXPECT_EQ(change->times, 9u);
}

TEST(LateWatch, WhoWaversIsToldOfOnceInTenSeconds) {
  LateSteps rank;
  rank.steps(100, 40 * kMillisecond);
  EXPECT_TRUE(rank.changed(kSecond));
  rank.steps(100, 0);
  EXPECT_FALSE(rank.changed(kSecond * 2));
  EXPECT_FALSE(rank.changed(kSecond * 11 - 1));
  EXPECT_TRUE(rank.changed(kSecond * 11));
}

TEST(LateWatch, StepsOfARankAreItsOwn) {
  StepTimes times(0);
  Time now = 0;
  for (int step = 0; step < 30; ++step) {
    Op op;
    now += 10 * kMillisecond;
    for (const uint32_t rank : {3u, 4u}) {
      op.locals.emplace_back(Submission{});
      op.locals.back()->rank = rank;
      times.submitted(rank, now + (rank == 4 ? 20 * kMillisecond : 0));
    }
    op.arrivals = {now, {now, now + 20 * kMillisecond}, 20'000};
    now += 20 * kMillisecond;
    times.moves(op);
    now += 5 * kMillisecond;
    for (const uint32_t rank : {3u, 4u}) times.ended(rank, now, 0);
  }
  const auto changes = times.take_changes(now);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].rank, 4u);
  EXPECT_TRUE(changes[0].late);
  EXPECT_EQ(changes[0].median, 20 * kMillisecond);
  EXPECT_TRUE(times.take_changes(now).empty());
}

}  // namespace
}  // namespace gradring::core
