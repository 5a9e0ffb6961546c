// gradring-run with ranks on other hosts, by an rsh that stays here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/launcher.h"

namespace gradring::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunElsewhere, PlacesRanksAndSendsTheEnvironment) {
  FakeSsh ssh;
  auto words =
      launch("4",
             "echo $REMOTE $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GRADRING_JOB "
             "$GRADRING_RUNTIME_DIR $EXTRA \"$QUOTED\" $(pwd) $MASTER_ADDR ${MASTER_PORT%????}",
             {"-H", "alpha:2,beta:2", "--rsh", ssh.path, "--job", "j", "--runtime-dir", "/run/%h",
              "-x", "EXTRA=5", "-x", "QUOTED"});
  words.insert(words.begin(), {"MASTER_ADDR=", "QUOTED=it's \"so\" $HOME", "GRADRING_RANK=7"});
  const auto outcome = run(words);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  char here[4096];
  ASSERT_NE(getcwd(here, sizeof here), nullptr);
  const std::string tail = " 5 it's \"so\" $HOME " + std::string(here) + " alpha 2\n";
  for (const std::string line : {"alpha 0 0 4 2 j /run/alpha", "alpha 1 1 4 2 j /run/alpha",
                                 "beta 2 0 4 2 j /run/beta", "beta 3 1 4 2 j /run/beta"}) {
    EXPECT_THAT(outcome.out, HasSubstr(line + tail));
  }
}

TEST(RunElsewhere, AnAddressOfThisHostIsNotElsewhere) {
  const auto outcome = run(
      launch("2", "echo rank $RANK of $WORLD_SIZE", {"-H", "127.0.0.1:2", "--rsh", "/bin/false"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* line : {"rank 0 of 2\n", "rank 1 of 2\n"})
    EXPECT_THAT(outcome.out, HasSubstr(line));
}

TEST(RunElsewhere, TheTokenIsTheSameAndNotInAnyCommandLine) {
  FakeSsh ssh;
  const auto outcome = run(launch("2",
                                  "echo $GRADRING_JOB_TOKEN >" + ssh.file("token.$RANK") +
                                      "; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true",
                                  {"-H", "alpha,beta", "--rsh", ssh.path}));
  std::string tokens[2];
  std::ifstream(ssh.file("token.0")) >> tokens[0];
  std::ifstream(ssh.file("token.1")) >> tokens[1];
  EXPECT_EQ(tokens[0].size(), 32u);
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_THAT(outcome.out, HasSubstr("--agent"));
  EXPECT_THAT(outcome.out, Not(HasSubstr(tokens[0])));
}

TEST(RunElsewhere, AFailureThereEndsAllAndIsTheExitCode) {
  FakeSsh ssh;
  const auto outcome =
      run(launch("4", ssh.note("pid") + "[ $RANK = 3 ] && { sleep 0.3; exit 9; }; exec sleep 100",
                 {"-H", "alpha:2,beta:2", "--rsh", ssh.path}));
  EXPECT_EQ(outcome.exit_code, 9);
  EXPECT_THAT(outcome.err, HasSubstr("gradring-run on beta: rank 3 (pid"));
  EXPECT_THAT(outcome.err, HasSubstr("host beta (ranks 2-3)"));
  for (int rank = 0; rank < 4; ++rank) EXPECT_FALSE(runs(ssh.of("pid." + std::to_string(rank))));
}

TEST(RunElsewhere, RemoteRanksEndWithTheLauncherAndWithTheConnection) {
  for (const int number : {SIGTERM, SIGKILL}) {
    FakeSsh ssh;
    Background launcher(
        launch("2", ssh.note("pid") + "sleep 100; true", {"-H", "alpha,beta", "--rsh", ssh.path}));
    const pid_t ranks[] = {ssh.of("pid.0"), ssh.of("pid.1")};
    kill(launcher.pid(), number);
    launcher.wait();
    for (const pid_t pid : ranks)
      EXPECT_TRUE(eventually([&] { return !runs(pid); }, seconds(3))) << number;
  }
}

TEST(RunElsewhere, TaggedLinesStayWhole) {
  FakeSsh ssh;
  const auto outcome = run(launch("2", "yes $(seq -s, 300) | head -n 3000",
                                  {"--tag", "-H", "alpha,beta", "--rsh", ssh.path}));
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2 * 3000);
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    const bool tagged = line.starts_with("[0] ") || line.starts_with("[1] ");
    ASSERT_TRUE(tagged && line.rfind('[') == 0) << line;
  }
}

TEST(RunElsewhere, AHostThatCannotBeReachedIsNamed) {
  const auto outcome = run(launch("2", "exec sleep 100", {"-H", "alpha,beta", "--rsh", "false"}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, ::testing::ContainsRegex("host (alpha|beta) \\(rank [01]\\)"));
}

TEST(RunElsewhere, WhatRunsNothingThereAndEndsWellIsAFailure) {
  auto outcome = run(launch("2", "true", {"-H", "alpha,beta", "--rsh", "echo hi"}));
  EXPECT_EQ(outcome.exit_code, 127);
  EXPECT_THAT(outcome.err, ::testing::ContainsRegex(
                               "host (alpha|beta) \\(rank [01]\\) \\(pid [0-9]+\\) ended with exit "
                               "code 0, and not as gradring-run does there: what does echo run"));
  outcome = run(launch("4", "true",
                       {"-H", "alpha:3,beta:1", "--rsh", "echo hi", "--policy", "elastic min=1"}));
  EXPECT_EQ(outcome.exit_code, 4) << "that many ranks have failed";
}

TEST(RunElsewhere, ARanksExitCodeIsNotTakenForThatOfAnAgentThatIsDone) {
  FakeSsh ssh;
  const auto outcome = run(launch("1", "exit 111", {"-H", "alpha", "--rsh", ssh.path}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("ended with exit code 111"));
}

TEST(RunElsewhere, AWordThatIsNoUtf8IsNamed) {
  const auto outcome = run({GRADRING_RUN, "-np", "1", "-H", "alpha:1", "echo", "caf\xe9"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("\"caf\\xe9\" of the command is not UTF-8 and cannot go along "
                                     "to host alpha"));
}

TEST(RunElsewhere, AnAgentDoesNotTrustItsInput) {
  const auto outcome =
      run({"sh", "-c", std::string("echo garbage | ") + GRADRING_RUN + " --agent"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("garbled"));
}

}  // namespace
}  // namespace gradring::tools
