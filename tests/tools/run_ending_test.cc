#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tools/run/ending.h"

namespace gradring::tools {
namespace {

using ::testing::HasSubstr;

siginfo_t exited(int status) {
  siginfo_t info{};
  info.si_code = CLD_EXITED;
  info.si_status = status;
  return info;
}

TEST(Ending, OfARankIsItsExitCode) {
  EXPECT_EQ(ending_of({}, false, exited(0)).code, 0);
  const Ending failed = ending_of({}, false, exited(3));
  EXPECT_EQ(failed.code, 3);
  EXPECT_EQ(failed.words, "ended with exit code 3");
}

TEST(Ending, OfWhomASignalEndedIsAsShellsSayIt) {
  siginfo_t info = exited(SIGKILL);
  info.si_code = CLD_KILLED;
  const Ending killed = ending_of({}, true, info);
  EXPECT_EQ(killed.code, 137);
  EXPECT_EQ(killed.words, "was ended by signal 9 (Killed)");
}

TEST(Ending, IsNotWellWithoutTheAnswerThatWasAskedFor) {
  EXPECT_EQ(ending_of({}, true, exited(kAnswered)).code, 0);
  EXPECT_EQ(ending_of({}, true, exited(3)).code, 3);
  const Ending silent = ending_of({}, true, exited(0));
  EXPECT_EQ(silent.code, 1);
  EXPECT_THAT(silent.words, HasSubstr("before it had handed over"));
}

TEST(Ending, OfAnAgentIsWellOnlyAsGradringRunSaysIt) {
  Process agent;
  agent.command = {"ssh", "b"};
  agent.lifeline = "";
  EXPECT_EQ(ending_of(agent, true, exited(kAgentWell)).code, 0);
  EXPECT_EQ(ending_of(agent, false, exited(2)).code, 2);
  const Ending other = ending_of(agent, false, exited(0));
  EXPECT_EQ(other.code, kNotRun);
  EXPECT_THAT(other.words, HasSubstr("what does ssh run on that host"));
}

}  // namespace
}  // namespace gradring::tools
