// gradring-run in the place of horovodrun, and the output of ranks that is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/tools/launcher.h"

namespace gradring::tools {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Run, KeepsTheOutputOfEachRankAsItCame) {
  TemporaryFolder folder;
  const std::string kept = folder.path() + "/a/b";
  const auto outcome = run(launch("2", "echo out $RANK; echo err $RANK >&2; printf unfinished",
                                  {"--output-filename", kept, "--tag"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[1] out 1\n"));
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(text_of(kept + "/rank." + rank + "/stdout"), "out " + rank + "\nunfinished");
    EXPECT_EQ(text_of(kept + "/rank." + rank + "/stderr"), "err " + rank + "\n");
  }
}

TEST(Run, KeptOutputIsShownAsItCameWhereNothingIsToGoInFront) {
  TemporaryFolder folder;
  const auto outcome =
      run(launch("1", "printf 'no newline'", {"--output-filename", folder.path()}));
  EXPECT_EQ(outcome.out, "no newline");
}

TEST(Run, OutputThatCannotBeKeptIsSaidBeforeAnythingRuns) {
  const auto outcome = run(launch("2", "echo ran", {"--output-filename", "/dev/null/logs"}));
  EXPECT_EQ(outcome.exit_code, 127);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("cannot write /dev/null/logs/rank.0/stdout"));
}

TEST(Run, AFolderForOutputWithinOneThatIsGoneIsRefused) {
  TemporaryFolder folder;
  auto words = launch("1", "echo shown", {"--output-filename", "logs"});
  words.insert(words.begin(),
               {"sh", "-c", "cd \"$0\" && rmdir \"$0\" && exec \"$@\"", folder.path()});
  const auto outcome = run(words);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--output-filename logs: "));
}

TEST(Run, OutputThatAFullDiskDoesNotTakeIsSaid) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/rank.0");
  std::filesystem::create_symlink("/dev/full", folder.path() + "/rank.0/stdout");
  const auto outcome = run(launch("1", "echo shown", {"--output-filename", folder.path()}));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "shown\n");
  EXPECT_THAT(outcome.err, HasSubstr("rank.0/stdout could not take all of the output"));
}

TEST(Run, OutputThatAFullDiskDoesNotTakeIsSaidOfItsOwnAsWell) {
  auto words = launch("1", "echo shown", {"--tag"});
  words.insert(words.begin(), {"sh", "-c", "exec \"$@\" >/dev/full", "sh"});
  const auto outcome = run(words);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write all of the output: No space left"));
}

TEST(Run, OutputThatIsClosedIsNotWaitedFor) {
  auto words = launch("1", "echo one; echo two >&2", {"--tag"});
  words.insert(words.begin(), {"timeout", "20", "sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"});
  EXPECT_EQ(run(words).exit_code, 0);
}

TEST(Run, PutsTheTimeInFrontOfEachLine) {
  const auto outcome = run(launch("1", "echo one; echo two", {"-prefix-timestamp", "--tag"}));
  const std::string line = "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\\.[0-9]{3} \\[0\\] ";
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex(line + "one\n" + line + "two\n"));
}

TEST(RunAsHorovodrun, TakesTheCommandsOfItsReadme) {
  FakeSsh ssh;
  const auto run_as = [&](std::vector<std::string> words) {
    words.insert(words.begin(), GRADRING_RUN);
    words.insert(words.end(), {"--rsh", ssh.path, "sh", "-c", "echo rank $RANK of $WORLD_SIZE"});
    return run(words);
  };
  EXPECT_EQ(run_as({"-np", "4", "-H", "localhost:4"}).err, "");
  const auto outcome = run_as({"-np", "16", "-H", "server1:4,server2:4,server3:4,server4:4"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 16);
  EXPECT_THAT(outcome.out, HasSubstr("rank 15 of 16\n"));
  const auto gloo = run_as({"--gloo", "-np", "2", "--autotune"});
  EXPECT_EQ(gloo.exit_code, 0);
  EXPECT_THAT(gloo.err, HasSubstr("not needed here: --gloo (ranks meet through gradringd"));
  EXPECT_EQ(std::count(gloo.err.begin(), gloo.err.end(), '\n'), 1) << gloo.err;
}

TEST(RunAsHorovodrun, HostfilePortKeyAndVerboseReachTheHosts) {
  FakeSsh ssh;
  std::ofstream(ssh.file("hosts")) << "alpha slots=1\nbeta slots=1\n";
  // Its own options come behind --rsh, in front of the host.
  std::ofstream(ssh.file("with_flags"))
      << "#!/bin/sh\necho flags $1 $2 $3 $4 >&2; shift 4; exec " << ssh.path << " \"$@\"\n";
  chmod(ssh.file("with_flags").c_str(), 0755);
  const auto outcome = run(launch(
      "2", "echo $REMOTE $RANK $GRADRING_JOIN_TIMEOUT $GRADRING_TIMELINE",
      {"-hostfile", ssh.file("hosts"), "-p", "2222", "-i", "key", "--rsh", ssh.file("with_flags"),
       "--start-timeout", "60", "--timeline-filename", "t.json", "--verbose"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("flags -p 2222 -i key"));
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 of 2 by "));
  EXPECT_THAT(outcome.out, HasSubstr("alpha 0 60 t.json\n"));
  EXPECT_THAT(outcome.out, HasSubstr("beta 1 60 t.json\n"));
}

TEST(RunAsHorovodrun, VerboseSaysWhatRunsHere) {
  const auto outcome = run(launch("2", "true\n# \x1b[2J it's", {"--verbose", "--job", "j"}));
  EXPECT_THAT(outcome.err, HasSubstr("job j: ranks 0-1 of 2 here: "));
  EXPECT_THAT(outcome.err, HasSubstr(R"(sh -c 'true\x0a# \x1b[2J it'\''s')"));
}

TEST(RunAsHorovodrun, OutputIsKeptOnTheHostOfTheRank) {
  FakeSsh ssh;
  const auto outcome =
      run(launch("2", "echo $REMOTE",
                 {"-H", "alpha,beta", "--rsh", ssh.path, "--output-filename", ssh.file("logs")}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(text_of(ssh.file("logs/rank.1/stdout")), "beta\n");
}

TEST(RunAsHorovodrun, ShowsWhatThisBuildHas) {
  const auto outcome = run({GRADRING_RUN, "--check-build"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("[X] gradringd"));
  EXPECT_THAT(outcome.out, HasSubstr("] PyTorch\n"));
  EXPECT_EQ(run({GRADRING_RUN, "-cb"}).out, outcome.out);
}

}  // namespace
}  // namespace gradring::tools
