// gradring-run with plain commands: ranks that fail, hang, hide, and launchers that are shot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/tools/launcher.h"

namespace gradring::tools {
namespace {

using ::testing::HasSubstr;

std::string last_line(const std::string& file) {
  std::string line, last;
  for (std::ifstream in(file); std::getline(in, line);) last = line;
  return last;
}

TEST(Run, AllGoodIsZero) {
  const auto outcome = run(launch("3", "echo rank $RANK of $WORLD_SIZE"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* line : {"rank 0 of 3\n", "rank 1 of 3\n", "rank 2 of 3\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(line));
  }
}

TEST(Run, ManyAreStartedWithFewDescriptorsAndHaveNoMoreThemselves) {
  auto words = launch("20", "ulimit -Sn", {"--tag"});
  words.insert(words.begin(), {"sh", "-c", "ulimit -Sn 32 && exec \"$@\"", "sh"});
  const auto outcome = run(words);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[19] 32\n"));
}

TEST(Run, LinesOfSeveralRanksAreNotMixed) {
  const std::string script =
      "i=0; while [ $i -lt 200 ]; do printf 'rank '; printf '%s ' $RANK; printf 'of 4\\n'; "
      "i=$((i + 1)); done";
  const auto outcome = run(launch("4", script));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::map<std::string, int> count;
  for (std::string line; std::getline(lines, line);) ++count[line];
  EXPECT_THAT(count, ::testing::ElementsAre(
                         ::testing::Pair("rank 0 of 4", 200), ::testing::Pair("rank 1 of 4", 200),
                         ::testing::Pair("rank 2 of 4", 200), ::testing::Pair("rank 3 of 4", 200)));
}

TEST(Run, FirstFailureEndsTheOthersAndIsTheExitCode) {
  Pids pids;
  const auto begin = Clock::now();
  const auto outcome = run(
      launch("3", pids.note("pid") + "[ $RANK = 1 ] && { sleep 0.3; exit 3; }; exec sleep 100"));
  EXPECT_LE(Clock::now() - begin, seconds(4));
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 (pid " + std::to_string(pids.of("pid.1")) +
                                     ") ended with exit code 3; ending the 2 still running"));
  EXPECT_FALSE(runs(pids.of("pid.0")));
  EXPECT_FALSE(runs(pids.of("pid.2")));
}

TEST(Run, ASignalIsNamed) {
  const auto outcome = run(launch("2", "[ $RANK = 0 ] && kill -9 $$; exec sleep 100"));
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_THAT(outcome.err, HasSubstr("rank 0"));
  EXPECT_THAT(outcome.err, HasSubstr("was ended by signal 9 (Killed)"));
}

TEST(Run, OfSeveralThatEndTogetherTheKilledOneIsNamed) {
  Pids pids;
  // The launch stands still while two end.
  const std::string ends = "[ $RANK = 2 ] && { kill -STOP $PPID; touch " + pids.file("stopped") +
                           "; while runs " + pids.file("pid.0") + " || runs " + pids.file("pid.1") +
                           "; do sleep 0.01; done; kill -CONT $PPID; }; ";
  const std::string wait = "until [ -e " + pids.file("stopped") + " ]; do sleep 0.01; done; ";
  const auto outcome = run(launch(
      "3", pids.note("pid") +
               "runs() { [ \"$(sed 's/.*) //; s/ .*//' /proc/$(cat $1)/stat)\" != Z ]; }; " + ends +
               wait + "[ $RANK = 0 ] && exit 1; [ $RANK = 1 ] && kill -9 $$; exec sleep 100"));
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 (pid " + std::to_string(pids.of("pid.1")) +
                                     ") was ended by signal 9 (Killed); ending the 1 still"));
}

TEST(Run, WhoDoesNotEndIsKilledAfterFiveSeconds) {
  Pids pids;
  const auto begin = Clock::now();
  const auto outcome =
      run(launch("2", pids.note("pid") + "[ $RANK = 0 ] && { sleep 0.3; exit 7; }; "
                                         "trap '' TERM; while :; do sleep 0.1; done"));
  const auto took = Clock::now() - begin;
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_GE(took, seconds(5));
  EXPECT_LE(took, seconds(9));
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 (pid " + std::to_string(pids.of("pid.1")) +
                                     ") does not end: killing it"));
  EXPECT_FALSE(runs(pids.of("pid.1")));
}

TEST(Run, AStoppedRankIsEndedToo) {
  Pids pids;
  const auto outcome = run(launch(
      "2", pids.note("pid") + "[ $RANK = 0 ] && { sleep 0.3; exit 7; }; kill -STOP $$; sleep 100"));
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_FALSE(runs(pids.of("pid.1")));
}

TEST(Run, NothingStaysBehind) {
  Pids pids;
  // One child in the rank's group, one in a session of its own, and the rank itself ends well.
  const std::string script = "sleep 100 & echo $! >" + pids.file("group.$RANK") +
                             "; setsid sh -c 'echo $$ >" + pids.file("session.$RANK") +
                             "; exec sleep 100' & while [ ! -s " + pids.file("session.$RANK") +
                             " ]; do sleep 0.01; done; exit 0";
  const auto outcome = run(launch("2", script));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* name : {"group.0", "group.1", "session.0", "session.1"}) {
    EXPECT_GT(pids.of(name), 0);
    EXPECT_FALSE(runs(pids.of(name))) << name;
  }
}

TEST(Run, SignalsToTheLauncherEndAll) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Pids pids;
    Background launcher(launch("2", pids.note("pid") + "sleep 100; true"));
    const pid_t first = pids.of("pid.0"), second = pids.of("pid.1");
    kill(launcher.pid(), number);
    EXPECT_EQ(launcher.wait(), 128 + number);
    EXPECT_FALSE(runs(first));
    EXPECT_FALSE(runs(second));
  }
}

TEST(Run, ASignalSaysHowManyItEnds) {
  const auto outcome = run({"sh", "-c",
                            GRADRING_RUN " -np 3 sh -c '[ $RANK != 1 ] || exec sleep 100' & "
                                         "sleep 1; kill -TERM $!; wait $!"});
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM);
  EXPECT_THAT(outcome.err, HasSubstr("ending 1 program\n"));
}

constexpr const char* kTellsOfSignals =
    "trap 'echo one >>$FILE.$RANK' USR1; trap 'echo two >>$FILE.$RANK; exit 0' USR2; "
    "echo ready >$FILE.$RANK; while true; do sleep 0.05; done";

TEST(Run, SignalsOfTheRanksOwnArePassedOn) {
  FakeSsh ssh;
  for (const std::vector<std::string>& where :
       {std::vector<std::string>{}, {"-H", "localhost,beta", "--rsh", ssh.path}}) {
    Pids pids;
    const std::string script = "FILE=" + pids.file("heard") + "; " + kTellsOfSignals;
    Background launcher(launch("2", script, where));
    for (const int number : {SIGUSR1, SIGUSR2}) {
      const std::string last = number == SIGUSR1 ? "ready" : "one";
      for (const char* rank : {"0", "1"})
        EXPECT_TRUE(eventually([&] { return last_line(pids.file("heard.") + rank) == last; }));
      kill(launcher.pid(), number);
    }
    EXPECT_EQ(launcher.wait(), 0);
    for (const char* rank : {"0", "1"}) EXPECT_EQ(last_line(pids.file("heard.") + rank), "two");
  }
}

TEST(Run, UnderNohupTheTerminalMayGo) {
  Pids pids;
  std::vector<std::string> words = {"sh", "-c", "trap '' HUP; exec \"$@\"", "sh"};
  for (const auto& word : launch("2", pids.note("pid") + "exec sleep 100")) words.push_back(word);
  Background launcher(words);
  const pid_t first = pids.of("pid.0"), second = pids.of("pid.1");
  kill(launcher.pid(), SIGHUP);
  kill(launcher.pid(), SIGTERM);
  // Of two signals that wait the one with the lower number is taken first.
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM);
  EXPECT_FALSE(runs(first));
  EXPECT_FALSE(runs(second));
}

TEST(Run, WhoWritesWithoutEndHoldsUpNobody) {
  // Tagged, output goes through the launcher, which could read this one's for ever.
  std::vector<std::string> words = {"timeout", "20", "sh", "-c", "exec \"$@\" >/dev/null", "sh"};
  const std::string script = "[ $RANK = 0 ] && exec yes; sleep 0.3; exit 7";
  for (const auto& word : launch("2", script, {"--tag"})) words.push_back(word);
  Background launcher(words);
  EXPECT_EQ(launcher.wait(), 7);
}

TEST(Run, AReaderThatTakesNothingDoesNotKeepItFromEnding) {
  Pids pids;
  std::vector<std::string> words = {"sh", "-c", "\"$@\" | exec sleep 8", "sh"};
  const std::string script =
      pids.note("pid") + "echo $PPID >" + pids.file("launcher") + "; exec yes";
  for (const auto& word : launch("1", script, {"--tag"})) words.push_back(word);
  Background pipeline(words);
  const pid_t launcher = pids.of("launcher"), rank = pids.of("pid.0");
  std::this_thread::sleep_for(seconds(1));  // by then the pipe is full
  kill(launcher, SIGTERM);
  EXPECT_TRUE(eventually([&] { return !runs(launcher) && !runs(rank); }, seconds(4)));
}

// To be --rsh of a launch: a script that is told neither host nor command.
std::string rsh_that(const Pids& pids, const std::string& script) {
  const std::string path = pids.file("rsh");
  std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
  chmod(path.c_str(), 0755);
  return path;
}

// Others have the outputs as well, and what they cannot write they lose.
TEST(Run, AnSshThatKeepsItsOutputsFromBlockingLosesNoLine) {
  Pids pids;
  const std::string rsh = rsh_that(
      pids,
      "python3 -c 'import os; os.set_blocking(1, False); os.set_blocking(2, False)'; sleep 2");
  for (const bool tag : {false, true}) {
    std::vector<std::string> words = {"sh", "-c", "\"$@\" | (sleep 1; wc -l)", "sh"};
    std::vector<std::string> options = {"-H", "localhost:1,other:1", "--rsh", rsh};
    if (tag) options.emplace_back("--tag");
    for (const auto& word : launch("2", "yes | head -n 100000", options)) words.push_back(word);
    const auto outcome = run(words);
    EXPECT_EQ(std::stoi(outcome.out), 100'000) << outcome.err;
  }
}

TEST(Run, AnSshThatWantsToAskSomethingIsNamed) {
  Pids pids;
  // As the kernel does with who reads from a terminal that is another's.
  const std::string rsh = rsh_that(pids, "kill -TTIN $$; exec sleep 100");
  const auto begin = Clock::now();
  const auto outcome = run(launch("2", "sleep 100", {"-H", "localhost:1,other:1", "--rsh", rsh}));
  EXPECT_EQ(outcome.exit_code, 255);
  EXPECT_THAT(outcome.err, HasSubstr("wants to ask something at the terminal"));
  EXPECT_LE(Clock::now() - begin, seconds(20));
}

TEST(Run, VariablesThatAreGivenCountForItselfToo) {
  const auto outcome = run(launch("1", "echo $GRADRING_JOB $GRADRING_JOB_TOKEN",
                                  {"-x", "GRADRING_JOB=mine", "-x", "GRADRING_JOB_TOKEN=secret"}));
  EXPECT_EQ(outcome.out, "mine secret\n");
  const auto elastic = run(launch("2", "[ $RANK = 1 ] || exit 3; sleep 0.5; echo went on",
                                  {"-x", "GRADRING_POLICY=elastic min=1"}));
  EXPECT_EQ(elastic.out, "went on\n");
}

TEST(Run, ASecondCtrlCDoesNotWait) {
  Pids pids;
  Background launcher(
      launch("1", "trap '' TERM INT; " + pids.note("pid") + "while :; do sleep 0.1; done"));
  const pid_t rank = pids.of("pid.0");
  const auto begin = Clock::now();
  kill(launcher.pid(), SIGINT);
  std::this_thread::sleep_for(milliseconds(300));
  kill(launcher.pid(), SIGINT);
  EXPECT_EQ(launcher.wait(), 128 + SIGINT);
  EXPECT_LE(Clock::now() - begin, seconds(3));
  EXPECT_FALSE(runs(rank));
}

TEST(Run, EvenAKilledLauncherLeavesNothing) {
  Pids pids;
  // The shell is the rank; its child is what a parent-death signal alone would miss.
  Background launcher(launch(
      "2", pids.note("pid") + "sleep 100 & echo $! >" + pids.file("child.$RANK") + "; wait"));
  const pid_t ranks[] = {pids.of("pid.0"), pids.of("pid.1"), pids.of("child.0"),
                         pids.of("child.1")};
  for (const pid_t pid : ranks) EXPECT_TRUE(runs(pid));
  kill(launcher.pid(), SIGKILL);
  launcher.wait();
  for (const pid_t pid : ranks) {
    EXPECT_TRUE(eventually([&] { return !runs(pid); }, seconds(2))) << pid;
  }
}

TEST(Run, WhatCannotBeStartedIsSaid) {
  const auto outcome = run({GRADRING_RUN, "-np", "2", "/no/such/program"});
  EXPECT_EQ(outcome.exit_code, 127);
  EXPECT_THAT(outcome.err, HasSubstr("rank 0: cannot run /no/such/program"));
  EXPECT_THAT(outcome.err, HasSubstr("No such file"));
  EXPECT_THAT(run({GRADRING_RUN, "-np", "1", "gradring-no-such-program"}).err,
              HasSubstr("cannot run gradring-no-such-program: No such file or directory, in no"));
  const auto rsh =
      run({GRADRING_RUN, "-np", "1", "-H", "elsewhere:1", "--rsh", "/no/such/ssh", "true"});
  EXPECT_THAT(rsh.err, HasSubstr("cannot run /no/such/ssh: No such file")) << "it named a folder .";
  EXPECT_EQ(run({GRADRING_RUN, "-np"}).exit_code, 2);
  EXPECT_EQ(run({GRADRING_RUN, "--help"}).exit_code, 0);
}

// A folder of Python's that was moved, or a script that was saved with Windows' ends of lines.
TEST(Run, AScriptWhoseInterpreterIsMissingIsNotSaidToBeMissing) {
  const TemporaryFolder folder;
  const std::string script = folder.path() + "/train";
  std::ofstream(script) << "#!/bin/sh\r\nexit 0\r\n";
  chmod(script.c_str(), 0755);
  const auto outcome = run({GRADRING_RUN, "-np", "1", script});
  EXPECT_EQ(outcome.exit_code, 127);
  EXPECT_THAT(outcome.err, HasSubstr("it is there, but not the program that its first line names"));
  const std::string path = "PATH=" + folder.path() + ":" + std::getenv("PATH");
  const auto along_path = run({"env", path, GRADRING_RUN, "-np", "1", "train"});
  EXPECT_THAT(along_path.err, HasSubstr("it is there, but not the program")) << "a moved venv's";
}

TEST(Run, HelpThatCannotBeWrittenIsToldInWords) {
  const auto outcome = run_without_room({GRADRING_RUN, "--help"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "gradring-run: cannot write the answer\n");
}

TEST(Run, InputIsEmpty) { EXPECT_EQ(run(launch("1", "cat; echo end")).out, "end\n"); }

TEST(Run, WhoAsksAtTheTerminalIsNotStopped) {
  std::vector<std::string> words = {"timeout", "20", "python3", "-c",
                                    "import pty, sys; pty.spawn(sys.argv[1:])"};
  for (const auto& word : launch("1", "read answer </dev/tty; echo it ends")) words.push_back(word);
  EXPECT_THAT(run(words).out, HasSubstr("it ends"));
}

TEST(Run, TagsLinesOfBothStreams) {
  const auto outcome = run(launch("2", "echo out; echo err >&2; printf unfinished", {"--tag"}));
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* rank : {"[0] ", "[1] "}) {
    EXPECT_THAT(outcome.out, HasSubstr(std::string(rank) + "out\n"));
    EXPECT_THAT(outcome.out, HasSubstr(std::string(rank) + "unfinished\n"));
    EXPECT_THAT(outcome.err, HasSubstr(std::string(rank) + "err\n"));
  }
}

TEST(Run, TaggedOutputIsComplete) {
  const auto outcome = run(launch("2", "seq 20000", {"--tag"}));
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 40000);
  EXPECT_THAT(outcome.out, HasSubstr("[1] 20000\n"));
}

}  // namespace
}  // namespace gradring::tools
