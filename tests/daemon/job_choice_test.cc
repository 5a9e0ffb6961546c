// Which job a name means.
#include "daemon/control/queries/job_choice.h"

#include <gtest/gtest.h>

namespace gradring::daemon {
namespace {

using core::JobInfo;
using core::JobState;

JobInfo job(JobState state, bool over, const std::string& explanation) {
  JobInfo info;
  info.name = "often";
  info.state = state;
  info.over = over;
  info.explanation = explanation;
  return info;
}

std::string chosen(const std::vector<JobInfo>& jobs) {
  const auto info = choose(jobs, "often");
  return info ? info->explanation : "none";
}

TEST(JobChoice, OfThoseThatAreOverTheLast) {
  const JobInfo first = job(JobState::kFailed, true, "first");
  const JobInfo second = job(JobState::kFailed, true, "second");
  const JobInfo third = job(JobState::kEnded, true, "third");
  EXPECT_EQ(chosen({first}), "first");
  EXPECT_EQ(chosen({first, second}), "second");
  EXPECT_EQ(chosen({first, second, third}), "third");
}

TEST(JobChoice, WhatIsStillThereBeforeWhatIsOver) {
  const JobInfo forming = job(JobState::kForming, false, "forming");
  const JobInfo running = job(JobState::kRunning, false, "running");
  const JobInfo fails = job(JobState::kFailed, false, "fails");
  const JobInfo over = job(JobState::kFailed, true, "over");
  EXPECT_EQ(chosen({fails, over}), "fails");
  EXPECT_EQ(chosen({forming, over}), "forming");
  EXPECT_EQ(chosen({forming, running, over}), "running");
  EXPECT_EQ(chosen({forming, fails, over}), "forming");
}

TEST(JobChoice, ByItsNameOrEnoughOfItsIncarnation) {
  JobInfo info = job(JobState::kRunning, false, "it");
  info.incarnation.fill(0xab);
  EXPECT_TRUE(choose({info}, "abababab"));
  EXPECT_FALSE(choose({info}, "ababab"));
  EXPECT_FALSE(choose({info}, "ofte"));
}

}  // namespace
}  // namespace gradring::daemon
