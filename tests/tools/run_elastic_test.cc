// gradring-run with ranks of an elastic job: one that fails does not end the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/launcher.h"

namespace gradring::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> elastic(const std::string& ranks, const std::string& script,
                                 std::vector<std::string> options = {}) {
  options.insert(options.end(), {"--policy", "elastic min=1"});
  return launch(ranks, script, options);
}

TEST(RunElastic, TellsTheRanksThePolicy) {
  const auto outcome = run(elastic("2", "echo $RANK: $GRADRING_POLICY"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("1: elastic min=1\n"));
}

TEST(RunElastic, AFailureDoesNotEndTheOthersAndCounts) {
  Pids pids;
  const auto outcome =
      run(elastic("4", pids.note("pid") + "[ $RANK = 1 ] && exit 3; [ $RANK = 2 ] && kill -9 $$; "
                                          "sleep 0.5; echo rank $RANK is done"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, HasSubstr("rank 0 is done\n"));
  EXPECT_THAT(outcome.out, HasSubstr("rank 3 is done\n"));
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 (pid " + std::to_string(pids.of("pid.1")) +
                                     ") ended with exit code 3; "));
  EXPECT_THAT(outcome.err, HasSubstr("was ended by signal 9 (Killed); "));
}

TEST(RunElastic, WhatALostRankLeavesBehindEndsWithIt) {
  Pids pids;
  // The child would hold the rank's memory and place for as long as the others train.
  const auto outcome =
      run(elastic("2", "[ $RANK = 0 ] && { sleep 100 & echo $! >" + pids.file("child") +
                           "; kill -9 $$; }; while [ ! -s " + pids.file("child") +
                           " ]; do sleep 0.01; done; child=$(cat " + pids.file("child") +
                           "); for i in 1 2 3 4 5 6 7 8 9; do kill -0 $child 2>/dev/null || "
                           "{ echo gone; exit 0; }; sleep 0.2; done; exit 1"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("gone"));
}

TEST(RunElastic, StartsAFailedRankAnewWithItsPlaceAndToken) {
  Pids pids;
  const std::string tries = pids.file("tries");
  const auto outcome = run(
      elastic("2",
              "echo rank $RANK token $GRADRING_JOB_TOKEN; [ $RANK = 0 ] && { sleep 0.5; exit; }; "
              "echo x >>" +
                  tries + "; [ $(wc -l <" + tries + ") -ge 3 ] || exit 9; echo made it",
              {"--restarts", "2", "--tag"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("ended with exit code 9; starting it anew, 1 of 2"));
  EXPECT_THAT(outcome.err, HasSubstr("starting it anew, 2 of 2"));
  EXPECT_THAT(outcome.out, HasSubstr("[1] made it\n"));
  // Every life of it said the same.
  const size_t at = outcome.out.find("[1] rank 1 token ");
  ASSERT_NE(at, std::string::npos);
  const std::string line = outcome.out.substr(at, outcome.out.find('\n', at) + 1 - at);
  size_t lives = 0;
  for (size_t i = 0; (i = outcome.out.find(line, i)) != std::string::npos; ++i) ++lives;
  EXPECT_EQ(lives, 3u) << outcome.out;
}

TEST(RunElastic, AfterItsLastStartARankIsLost) {
  const auto outcome = run(elastic("3", "[ $RANK = 0 ] || exit 9", {"--restarts", "2"}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("rank 2"));
}

TEST(RunElastic, WhoseJobIsOverIsNotStartedAnew) {
  // It would wait for ranks that have ended well until its time to form is over, each time.
  FakeSsh ssh;
  for (const char* hosts : {"localhost:2", "localhost:1,beta:1", "alpha:1,beta:1"}) {
    const auto outcome = run(elastic("2", "[ $RANK = 0 ] || { sleep 0.8; echo a try; exit 9; }",
                                     {"--restarts", "3", "-H", hosts, "--rsh", ssh.path}));
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_EQ(outcome.out, "a try\n") << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("not starting it anew, as all others have ended"));
  }
}

TEST(RunElastic, ASignalToTheLauncherStartsNothingAnew) {
  Pids pids;
  Background launcher(elastic("2", pids.note("pid") + "sleep 100; true", {"--restarts", "5"}));
  const pid_t first = pids.of("pid.0"), second = pids.of("pid.1");
  kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM);
  EXPECT_FALSE(runs(first));
  EXPECT_FALSE(runs(second));
  EXPECT_EQ(pids.of("pid.0"), first);
}

TEST(RunElastic, AProgramThatCannotBeStartedIsNoLossButAMistake) {
  const auto outcome = run({GRADRING_RUN, "-np", "2", "--policy", "elastic", "/no/such/program"});
  EXPECT_EQ(outcome.exit_code, 127);
}

TEST(RunElastic, AHostThatIsLostTakesItsRanksOnly) {
  FakeSsh ssh;
  const auto outcome =
      run(elastic("5",
                  "[ $REMOTE = beta ] && [ $RANK = 3 ] && exit 9; [ $REMOTE = gamma ] && "
                  "kill -9 $PPID; sleep 0.7; echo rank $RANK is done",
                  {"-H", "alpha:2,beta:2,gamma:1", "--rsh", ssh.path}));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(outcome.out, HasSubstr("rank " + std::string(rank) + " is done\n"));
  }
  EXPECT_THAT(outcome.err, HasSubstr("gradring-run on beta: rank 3"));
  EXPECT_THAT(outcome.err, HasSubstr("host gamma (rank 4)"));
}

TEST(RunElastic, SshIsToNoticeAHostThatIsSilent) {
  // The others go on without it, and the launch would wait for it behind them.
  Pids pids;
  const std::string ssh = pids.file("ssh");
  std::ofstream(ssh) << "#!/bin/sh\necho $*\nexit 255\n";
  chmod(ssh.c_str(), 0755);
  const std::vector<std::string> options = {"-H", "beta:1", "--rsh", ssh + " -q"};
  EXPECT_THAT(run(elastic("1", "true", options)).out,
              StartsWith("-q -o ServerAliveInterval=20 -o ServerAliveCountMax=3 beta exec "));
  EXPECT_THAT(run(launch("1", "true", options)).out, StartsWith("-q beta exec "));
}

TEST(RunElastic, FailIsThePolicyOfOldAndEndsAll) {
  const auto outcome =
      run(launch("2", "[ $RANK = 1 ] && exit 3; exec sleep 100", {"--policy", "fail"}));
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, Not(HasSubstr("anew")));
}

}  // namespace
}  // namespace gradring::tools
