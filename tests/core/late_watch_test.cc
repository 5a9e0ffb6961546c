#include "daemon/core/late_watch.h"

#include <gtest/gtest.h>

#include "daemon/core/step_times.h"

namespace gradring::core {
namespace {

void steps(LateWatch* watch, int count, bool waited_for, Time late = 0) {
  for (int i = 0; i < count; ++i) watch->step(waited_for, late);
}

TEST(LateWatch, FewStepsSayNothing) {
  LateWatch watch;
  steps(&watch, 19, true, 40 * kMillisecond);
  EXPECT_FALSE(watch.changed(kSecond));
  steps(&watch, 1, true, 40 * kMillisecond);
  EXPECT_TRUE(watch.changed(kSecond));
}

TEST(LateWatch, TellsHowOftenAndByHowMuchInTheMiddle) {
  LateWatch watch;
  steps(&watch, 12, false, 1 * kMillisecond);
  steps(&watch, 4, true, 10 * kMillisecond);
  steps(&watch, 5, true, 50 * kMillisecond);
  const auto change = watch.changed(kSecond);
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->late);
  EXPECT_EQ(change->times, 9u);
  EXPECT_EQ(change->of, 21u);
  EXPECT_EQ(change->median, 50 * kMillisecond);
}

TEST(LateWatch, ATailOfLateStepsIsNotEnough) {
  LateWatch watch;
  steps(&watch, 70, false);
  steps(&watch, 30, true, 40 * kMillisecond);
  EXPECT_FALSE(watch.changed(kSecond)) << "30 of 100 are less than a third";
  steps(&watch, 4, true, 40 * kMillisecond);
  EXPECT_TRUE(watch.changed(kSecond));
}

TEST(LateWatch, IsToldOnceAndThenWhenItIsOver) {
  LateWatch watch;
  steps(&watch, 100, true, 40 * kMillisecond);
  EXPECT_TRUE(watch.changed(kSecond));
  EXPECT_FALSE(watch.changed(kSecond * 60)) << "nothing has changed";
  steps(&watch, 90, false);
  EXPECT_FALSE(watch.changed(kSecond * 60)) << "10 of the last 100 were late";
  steps(&watch, 1, false);
  const auto change = watch.changed(kSecond * 60);
  ASSERT_TRUE(change);
  EXPECT_FALSE(change->late);
  EXPECT_EQ(change->times, 9u);
}

TEST(LateWatch, WhoWaversIsToldOfOnceInTenSeconds) {
  LateWatch watch;
  steps(&watch, 100, true, 40 * kMillisecond);
  EXPECT_TRUE(watch.changed(kSecond));
  steps(&watch, 100, false);
  EXPECT_FALSE(watch.changed(kSecond * 2));
  EXPECT_FALSE(watch.changed(kSecond * 11 - 1));
  EXPECT_TRUE(watch.changed(kSecond * 11));
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
