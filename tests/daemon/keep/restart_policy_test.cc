#include "daemon/keep/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "daemon/keep/exit_status.h"

namespace gradring::keep {
namespace {

using core::kMillisecond;
using core::kSecond;
using testing::HasSubstr;

int exited(int status) { return W_EXITCODE(status, 0); }
int killed(int signal) { return W_EXITCODE(0, signal); }

TEST(RestartPolicy, ADeathIsFollowedByAStart) {
  for (const int end :
       {killed(SIGKILL), killed(SIGSEGV), killed(SIGABRT), exited(1), exited(127)}) {
    RestartPolicy policy({});
    policy.started(0);
    const auto verdict = policy.ended(end, kSecond);
    EXPECT_TRUE(verdict.restart) << end;
    EXPECT_EQ(verdict.at, kSecond + 200 * kMillisecond);
  }
}

TEST(RestartPolicy, AnEndThatWasAskedForIsTheEnd) {
  for (const int end : {exited(0), killed(SIGTERM), killed(SIGINT), killed(SIGHUP)}) {
    RestartPolicy policy({});
    policy.started(0);
    const auto verdict = policy.ended(end, kSecond);
    EXPECT_FALSE(verdict.restart) << end;
    EXPECT_EQ(verdict.status, 0);
  }
}

TEST(RestartPolicy, WhoMadeWayIsFollowedAtOnceHoweverOften) {
  RestartPolicy policy({});
  for (int i = 0; i < 9; ++i) policy.started(0);
  const auto verdict = policy.ended(exited(kMadeWay), kSecond);
  EXPECT_TRUE(verdict.restart);
  EXPECT_EQ(verdict.at, kSecond);
}

TEST(RestartPolicy, AWrongConfigurationIsNotTriedAgain) {
  RestartPolicy policy({});
  policy.started(0);
  const auto verdict = policy.ended(exited(2), kSecond);
  EXPECT_FALSE(verdict.restart);
  EXPECT_EQ(verdict.status, 2);
  EXPECT_THAT(verdict.why, HasSubstr("configuration"));
}

TEST(RestartPolicy, TheSixthStartWithinTenSecondsIsOneTooMany) {
  RestartPolicy policy({});
  for (Time now = 0; now < 4 * kSecond; now += kSecond) {
    policy.started(now);
    EXPECT_TRUE(policy.ended(killed(SIGSEGV), now).restart);
  }
  policy.started(4 * kSecond);
  const auto verdict = policy.ended(killed(SIGSEGV), 9 * kSecond);
  EXPECT_FALSE(verdict.restart);
  EXPECT_EQ(verdict.status, 1);
  EXPECT_THAT(verdict.why, HasSubstr("signal 11 (Segmentation fault)"));
  EXPECT_THAT(verdict.why, HasSubstr("5 times within 10 s"));
  EXPECT_TRUE(policy.ended(killed(SIGSEGV), 10 * kSecond).restart) << "it has run long enough";
}

}  // namespace
}  // namespace gradring::keep
