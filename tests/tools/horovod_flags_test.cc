// What becomes of horovodrun's flags, one by one.
#include "tools/run/horovod_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/tools/process.h"
#include "tools/run/options.h"

namespace gradring::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

tl::expected<RunOptions, std::string> parse(std::vector<std::string> words, bool ranks = true) {
  if (ranks) words.insert(words.end(), {"-np", "4"});
  words.insert(words.end(), {"python", "train.py", "--gloo"});
  const auto options = parse_run_options(words);
  if (!options) return tl::unexpected(options.error());
  return **options;
}

std::string refused(const std::vector<std::string>& words) {
  const auto options = parse(words);
  return options ? "" : options.error();
}

TEST(HorovodFlags, EachWithoutEffectIsTakenWithItsValuesAndSaysWhy) {
  for (const HorovodFlag& flag : flags_without_effect()) {
    std::vector<std::string> words = {"--" + std::string(flag.name)};
    std::istringstream values{std::string(flag.values)};
    for (std::string value; values >> value;) words.emplace_back("7");
    const auto options = parse(words);
    if (flag.refused) {
      EXPECT_EQ(options.error(), words[0] + ": " + std::string(flag.why));
      continue;
    }
    ASSERT_TRUE(options) << options.error();
    EXPECT_THAT(options->command, ElementsAre("python", "train.py", "--gloo")) << words[0];
    EXPECT_THAT(options->warnings,
                ElementsAre("not needed here: " + words[0] + " (" + std::string(flag.why) + ")"));
  }
}

TEST(HorovodFlags, AreNamedInOneLineByReason) {
  const auto options =
      parse({"--gloo", "--cycle-time-ms=3.5", "--fusion-threshold-mb", "32",
             "--mpi-args=--map-by x", "--network-interface", "eth0", "--network-interface", "eth1",
             "--timeline-mark-cycles", "--blacklist-cooldown-range", "60", "300"});
  ASSERT_TRUE(options) << options.error();
  ASSERT_EQ(options->warnings.size(), 1u);
  EXPECT_EQ(std::ranges::count(options->warnings[0], '\n'), 0);
  EXPECT_THAT(options->warnings[0],
              HasSubstr("--cycle-time-ms, --timeline-mark-cycles (the daemon acts "
                        "on events, it has no cycle); "));
  EXPECT_THAT(parse({})->warnings, IsEmpty());
}

TEST(HorovodFlags, AreKnownByAllTheirSpellings) {
  EXPECT_EQ(parse({"--num-proc", "3"}, false)->ranks, 3);
  EXPECT_EQ(parse({"--num-proc=3"}, false)->ranks, 3);
  EXPECT_EQ(parse({"-np=3"}, false)->ranks, 3);
  EXPECT_TRUE(parse({"-prefix-timestamp"})->stamp);
  EXPECT_TRUE(parse({"--prefix-output-with-timestamp"})->stamp);
  EXPECT_TRUE(parse({"--verbose"})->verbose);
  EXPECT_EQ(parse({"--min-num-proc", "2", "--max-num-proc", "8"})->policy, "elastic min=2 max=8");
}

TEST(HorovodFlags, MinAndMaxAreAPolicy) {
  EXPECT_EQ(parse({"--min-np", "2"})->policy, "elastic min=2");
  EXPECT_EQ(parse({"--min-np", "2", "--max-np", "6", "--restarts", "1"})->policy,
            "elastic min=2 max=6");
  setenv("GRADRING_POLICY", "fail", 1);
  EXPECT_EQ(parse({"--min-np", "2"})->policy, "elastic min=2");
  unsetenv("GRADRING_POLICY");
  EXPECT_THAT(refused({"--min-np", "5"}), HasSubstr("more than -np 4"));
  EXPECT_THAT(refused({"--min-np", "2", "--max-np", "3"}), HasSubstr("less than -np 4"));
  EXPECT_THAT(refused({"--max-np", "8"}), HasSubstr("say --min-np as well"));
  EXPECT_THAT(refused({"--min-np", "2", "--policy", "fail"}), HasSubstr("--policy and --min-np"));
  EXPECT_THAT(refused({"--min-np", "0"}), HasSubstr("--min-np 0: it takes 1 to"));
}

TEST(HorovodFlags, SshHasItsPortAndItsKey) {
  EXPECT_THAT(parse({"-p", "22", "-i", "a key"})->rsh,
              ElementsAre("ssh", "-p", "22", "-i", "a key"));
  EXPECT_THAT(parse({"--ssh-port=22", "--rsh", "ssh -q"})->rsh,
              ElementsAre("ssh", "-q", "-p", "22"));
  EXPECT_THAT(refused({"-p", "65536"}), HasSubstr("--ssh-port 65536: it takes 1 to 65535"));
}

TEST(HorovodFlags, TimesAndTheTimelineAreVariablesThatMinusXCanSet) {
  EXPECT_THAT(parse({"--start-timeout", "30", "--gloo-timeout-seconds", "60"})->send,
              ElementsAre("GRADRING_JOIN_TIMEOUT=30"));
  EXPECT_THAT(parse({"--gloo-timeout-seconds", "60"})->send,
              ElementsAre("GRADRING_JOIN_TIMEOUT=60"));
  EXPECT_THAT(parse({"-x", "GRADRING_TIMELINE=b", "--timeline-filename", "a"})->send,
              ElementsAre("GRADRING_TIMELINE=a", "GRADRING_TIMELINE=b"));
  EXPECT_THAT(parse({"--stall-check-warning-time-seconds", "5"})->send,
              ElementsAre("GRADRING_STALL_WARNING=5"));
  EXPECT_THAT(parse({"--no-stall-check", "--stall-check-warning-time-seconds", "5"})->send,
              ElementsAre("GRADRING_STALL_WARNING=0"));
  EXPECT_THAT(refused({"--start-timeout", "-1"}), HasSubstr("--start-timeout -1: it takes 1 to"));
}

TEST(HorovodFlags, HostsMayStandInAFile) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/hosts";
  std::ofstream(file) << "a slots=1\nb\n";
  for (const char* flag : {"-hostfile", "--hostfile"}) {
    const auto options = parse({flag, file, "--slots-per-host", "3"});
    ASSERT_TRUE(options) << options.error();
    EXPECT_THAT(options->hosts, ElementsAre(Slots{"a", 1}, Slots{"b", 3}));
  }
  EXPECT_THAT(parse({"-H", "a,b:2", "--slots-per-host", "3"})->hosts,
              ElementsAre(Slots{"a", 3}, Slots{"b", 2}));
  EXPECT_THAT(refused({"--hostfile", file, "-H", "a"}), HasSubstr("leave one away"));
  EXPECT_THAT(refused({"--hostfile", "/no/such"}), HasSubstr("cannot read /no/such"));
  EXPECT_THAT(refused({"--hostfile", folder.path()}), HasSubstr("cannot read " + folder.path()));
  std::ofstream(file) << "a slots=nine\n";
  EXPECT_THAT(refused({"--hostfile", file}), HasSubstr("hosts: line 1: "));
}

TEST(HorovodFlags, AFolderForOutputIsFoundFromAnywhere) {
  EXPECT_EQ(parse({"--output-filename", "/a/../b"})->output, "/b");
  EXPECT_EQ(parse({"--output-filename", "logs"})->output.front(), '/');
}

}  // namespace
}  // namespace gradring::tools
