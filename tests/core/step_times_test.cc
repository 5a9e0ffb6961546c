#include "daemon/core/step_times.h"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <vector>

namespace gradring::core {
namespace {

constexpr Time kMs = kMillisecond;

// Of an op with ranks 0, 1, ... of this node that came at these times.
Op op_of(std::vector<Time> arrivals, Time first, uint32_t latest_us) {
  Op op;
  for (uint32_t rank = 0; rank < arrivals.size(); ++rank) {
    op.locals.emplace_back(Submission{});
    op.locals.back()->rank = rank;
  }
  op.arrivals = {first, std::move(arrivals), latest_us};
  return op;
}

// One rank's step: computes, submits, and `wait` later it is done.
void step(StepTimes* times, Time* now, Time compute, Time wait, Time late = 0, Time behind = 0,
          Time input = 0) {
  *now += compute;
  times->submitted(0, *now);
  times->moves(op_of({*now}, *now - late, static_cast<uint32_t>((late + behind) / (kMs / 1000))));
  *now += wait;
  times->ended(0, *now, input);
}

StepReport only(const StepTimes& times) {
  const auto reports = times.report();
  EXPECT_EQ(reports.size(), 1u);
  return reports.at(0);
}

TEST(StepTimes, TheFirstExchangeIsNoStep) {
  StepTimes times(0);
  Time now = 0;
  step(&times, &now, 5000 * kMs, 900 * kMs);
  EXPECT_EQ(only(times).ever.steps, 0u);
  EXPECT_EQ(only(times).recent, 0u);
}

TEST(StepTimes, WhatComesAfterTheLastSubmissionIsExposed) {
  StepTimes times(0);
  Time now = 0;
  step(&times, &now, 1 * kMs, 1 * kMs);
  now += 30 * kMs;
  times.submitted(0, now);
  now += 20 * kMs;  // it computes on, while that goes round
  times.submitted(0, now);
  times.ended(0, now + 2 * kMs, 0);
  now += 10 * kMs;
  times.ended(0, now, 0);
  const StepSplit mean = only(times).mean;
  EXPECT_EQ(mean.compute, 50 * kMs);
  EXPECT_EQ(mean.overlapped, 20 * kMs);
  EXPECT_EQ(mean.exposed, 10 * kMs);
  EXPECT_EQ(mean.straggler, 0);
  EXPECT_EQ(mean.total(), 60 * kMs);
}

TEST(StepTimes, AnotherRanksLatenessIsNotTheNetworks) {
  StepTimes times(0);
  Time now = 0;
  step(&times, &now, 1 * kMs, 1 * kMs);
  step(&times, &now, 30 * kMs, 25 * kMs, 0, 20 * kMs);
  EXPECT_EQ(only(times).mean.straggler, 20 * kMs);
  EXPECT_EQ(only(times).mean.exposed, 5 * kMs);
  EXPECT_EQ(only(times).late, 0u);
}

TEST(StepTimes, LatenessThatIsHiddenBehindComputingCostsNothing) {
  StepTimes times(0);
  Time now = 0;
  step(&times, &now, 1 * kMs, 1 * kMs);
  step(&times, &now, 30 * kMs, 2 * kMs, 0, 20 * kMs);
  EXPECT_EQ(only(times).mean.straggler, 2 * kMs);
  EXPECT_EQ(only(times).mean.exposed, 0);
}

TEST(StepTimes, WhoIsLateIsCountedAndTheMiddleTold) {
  StepTimes times(0);
  Time now = 0;
  step(&times, &now, 1 * kMs, 1 * kMs);
  for (int i = 0; i < 10; ++i) step(&times, &now, 50 * kMs, 5 * kMs, i < 7 ? 40 * kMs : 0);
  for (int i = 0; i < 2; ++i) step(&times, &now, 50 * kMs, 5 * kMs, 2000 * kMs);
  const StepReport report = only(times);
  EXPECT_EQ(report.ever.steps, 12u);
  EXPECT_EQ(report.late, 9u);
  EXPECT_EQ(report.late_median, 40 * kMs);
  EXPECT_EQ(report.ever.lateness[0], 3u);
  EXPECT_EQ(report.ever.lateness[6], 7u) << "up to 100 ms";
  EXPECT_EQ(report.ever.lateness.back(), 2u);
}

TEST(StepTimes, AFewMillisecondsOfALongStepAreNotLate) {
  StepTimes times(0);
  Time now = 0;
  step(&times, &now, 1 * kMs, 1 * kMs);
  step(&times, &now, 1000 * kMs, 5 * kMs, 10 * kMs);
  EXPECT_EQ(only(times).late, 0u);
  step(&times, &now, 100 * kMs, 5 * kMs, 10 * kMs);
  EXPECT_EQ(only(times).late, 1u);
}

TEST(StepTimes, OthersWaitForWhoComesLastAndNotForAllBehindTheFirst) {
  StepTimes times(0);
  Time now = 0;
  step(&times, &now, 1 * kMs, 1 * kMs);
  step(&times, &now, 100 * kMs, 5 * kMs, 10 * kMs, 10 * kMs);
  EXPECT_EQ(only(times).late, 0u) << "as late as the middle one of many";
  step(&times, &now, 100 * kMs, 5 * kMs, 10 * kMs, 200 * kMs);
  EXPECT_EQ(only(times).late, 0u) << "beside a straggler";
  step(&times, &now, 100 * kMs, 5 * kMs, 10 * kMs, 3 * kMs);
  EXPECT_EQ(only(times).late, 1u) << "one of several that are slow";
  // Another is the last in another op of the step.
  now += 100 * kMs;
  times.submitted(0, now);
  times.submitted(0, now);
  times.moves(op_of({now}, now - 10 * kMs, 10'000));
  times.moves(op_of({now}, now - 20 * kMs, 60'000));
  times.ended(0, now, 0);
  times.ended(0, now += 45 * kMs, 0);
  EXPECT_EQ(only(times).late, 2u);
  EXPECT_EQ(only(times).late_median, 10 * kMs) << "not by the 20 for which nobody waited";
  EXPECT_EQ(only(times).ever.late_sum, (10 + 10 + 10 + 20) * kMs);
}

TEST(StepTimes, InputIsNotComputing) {
  StepTimes times(0);
  Time now = 0;
  step(&times, &now, 1 * kMs, 1 * kMs, 0, 0, 7 * kMs);
  step(&times, &now, 30 * kMs, 5 * kMs, 0, 0, 17 * kMs);
  EXPECT_EQ(only(times).mean.input, 10 * kMs);
  EXPECT_EQ(only(times).mean.compute, 20 * kMs);
  // An end that came as a message knows nothing of it, and a trainer may say what it likes.
  step(&times, &now, 30 * kMs, 5 * kMs, 0, 0, 0);
  step(&times, &now, 30 * kMs, 5 * kMs, 0, 0, 9000 * kMs);
  EXPECT_EQ(only(times).ever.all.input, 10 * kMs + 30 * kMs);
  EXPECT_EQ(only(times).ever.all.compute, 20 * kMs + 30 * kMs);
}

TEST(StepTimes, ANewEpochSpoilsTheStepThatItFallsInto) {
  StepTimes times(0);
  Time now = 0;
  step(&times, &now, 1 * kMs, 1 * kMs);
  times.submitted(0, now);
  times.begin_epoch();
  times.ended(0, now += 3000 * kMs, 0);
  EXPECT_EQ(only(times).ever.steps, 0u);
  step(&times, &now, 10 * kMs, 1 * kMs);
  EXPECT_EQ(only(times).ever.steps, 1u);
  EXPECT_EQ(only(times).mean.total(), 11 * kMs);
}

TEST(StepTimes, RanksAreToldApartAndTheLast500Count) {
  StepTimes times(0);
  Time now = 0;
  for (int i = 0; i <= 700; ++i) {
    now += 10 * kMs;
    times.submitted(0, now);
    times.submitted(1, now + 3 * kMs);
    const bool begun = i > 200;
    times.moves(op_of({now, now + (begun ? 3 : 1) * kMs}, now, begun ? 3000 : 1000));
    now += 4 * kMs;
    times.ended(0, now, 0);
    times.ended(1, now, 0);
  }
  const auto reports = times.report();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].ever.steps, 700u);
  EXPECT_EQ(reports[0].recent, 500u);
  EXPECT_EQ(reports[0].mean.straggler, 3 * kMs);
  EXPECT_EQ(reports[0].mean.exposed, 1 * kMs);
  EXPECT_EQ(reports[0].late, 0u);
  EXPECT_EQ(reports[1].late, 500u);
  EXPECT_EQ(reports[1].mean.straggler, 0);
  EXPECT_EQ(std::accumulate(reports[1].ever.lateness.begin(), reports[1].ever.lateness.end(),
                            uint64_t{0}),
            700u);
}

TEST(StepTimes, AnEndWithoutASubmissionIsNobodysConcern) {
  StepTimes times(0);
  times.ended(3, kMs, 0);
  EXPECT_EQ(only(times).ever.steps, 0u);
}

}  // namespace
}  // namespace gradring::core
