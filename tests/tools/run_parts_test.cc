// The parts of gradring-run that start nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tools/run/here.h"
#include "tools/run/launch.h"
#include "tools/run/options.h"
#include "tools/run/placement.h"
#include "tools/run/tagger.h"

namespace gradring::tools {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Hosts, AreReadWithTheirSlots) {
  EXPECT_THAT(*parse_hosts("a"), ElementsAre(Slots{"a", 1}));
  EXPECT_THAT(*parse_hosts("a:2,b,c.example:16"),
              ElementsAre(Slots{"a", 2}, Slots{"b", 1}, Slots{"c.example", 16}));
  EXPECT_THAT(*parse_hosts("10.0.0.1:2,[fe80::1]:4,[::1]"),
              ElementsAre(Slots{"10.0.0.1", 2}, Slots{"fe80::1", 4}, Slots{"::1", 1}));
  EXPECT_THAT(*parse_hosts("user@a:2"), ElementsAre(Slots{"user@a", 2}));
  EXPECT_THAT(*parse_hosts(" a:2, b\n"), ElementsAre(Slots{"a", 2}, Slots{"b", 1}));
  EXPECT_THAT(*parse_hosts("a:1,b:1,a:1"), ElementsAre(Slots{"a", 2}, Slots{"b", 1}));
  EXPECT_THAT(*parse_hosts("localhost:2,b:1,127.0.0.1:1," + host_name() + ":4"),
              ElementsAre(Slots{"localhost", 7}, Slots{"b", 1}));
}

TEST(Hosts, RefuseWhatIsNoHost) {
  for (const char* bad :
       {"", " ", ",", "a,", "a:", "a:0", "a:-1", "a:x", "a:5000", ":2", "-oProxyCommand=x:1", "a b",
        "a;b", "$(x)", "::1", "fe80::1:2", "user@", "user@:2", "@a"}) {
    EXPECT_FALSE(parse_hosts(bad)) << bad;
  }
  EXPECT_THAT(parse_hosts("fe80::1:2").error(), HasSubstr("into brackets"));
}

TEST(Hosts, HaveAsManySlotsAsIsSaidForAll) {
  EXPECT_THAT(*parse_hosts("a,b:1", 4), ElementsAre(Slots{"a", 4}, Slots{"b", 1}));
}

TEST(Hostfile, IsReadAsMpirunReadsIt) {
  EXPECT_THAT(
      *parse_hostfile("# ours\n\n  a slots=2\nb\tslots=4 max_slots=8 # fast\nc\nd:3\na slots=1"),
      ElementsAre(Slots{"a", 3}, Slots{"b", 4}, Slots{"c", 1}, Slots{"d", 3}));
  EXPECT_THAT(*parse_hostfile("\xef\xbb\xbf# ours\r\na\r\nb slots=2\r\n", 8),
              ElementsAre(Slots{"a", 8}, Slots{"b", 2}));
}

TEST(Hostfile, NamesTheLineThatIsWrong) {
  const auto error = [](const char* text) { return parse_hostfile(text).error(); };
  EXPECT_THAT(error("a slots=2\nb slots=0\n"), HasSubstr("line 2: \"slots=0\""));
  EXPECT_THAT(error("a slots=x"), HasSubstr("line 1"));
  EXPECT_THAT(error("a 2"), HasSubstr("HOST slots=N"));
  EXPECT_THAT(error("-oProxyCommand=x slots=1"), HasSubstr("no host name"));
  EXPECT_THAT(error(" # nobody\n"), HasSubstr("names no host"));
}

TEST(Place, FillsHostsInTheirOrder) {
  EXPECT_THAT(*place(3, {}), ElementsAre(Share{"", 0, 3}));
  EXPECT_THAT(*place(4, {{"a", 2}, {"b", 2}}), ElementsAre(Share{"a", 0, 2}, Share{"b", 2, 2}));
  EXPECT_THAT(*place(3, {{"a", 2}, {"b", 2}, {"c", 2}}),
              ElementsAre(Share{"a", 0, 2}, Share{"b", 2, 1}));
  const auto full = place(5, {{"a", 2}, {"b", 2}});
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error(), HasSubstr("-np 5 is more than the 4"));
  EXPECT_EQ(describe_ranks({"a", 2, 2}), "ranks 2-3");
  EXPECT_EQ(describe_ranks({"a", 2, 1}), "rank 2");
}

TEST(Tagger, TagsWholeLines) {
  Tagger tagger("[3] ");
  EXPECT_EQ(tagger.feed("one\ntw"), "[3] one\n");
  EXPECT_EQ(tagger.feed("o\n\nthree"), "[3] two\n[3] \n");
  EXPECT_EQ(tagger.flush(), "[3] three\n");
  EXPECT_EQ(tagger.flush(), "");
}

TEST(Tagger, PutsTheTimeInFront) {
  Tagger tagger("[3] ", [] { return std::string("noon "); });
  EXPECT_EQ(tagger.feed("one\ntwo\n"), "noon [3] one\nnoon [3] two\n");
  Tagger nothing("");
  EXPECT_EQ(nothing.feed("half a li"), "half a li");
  EXPECT_EQ(nothing.flush(), "");
}

TEST(Tagger, CutsLinesWithoutEnd) {
  Tagger tagger("> ");
  const std::string all = tagger.feed(std::string(Tagger::kLineMax * 2 + 10, 'x'));
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 2);
  EXPECT_EQ(tagger.flush(), "> xxxxxxxxxx\n");
}

TEST(Tagger, KeepsLinesWholeWithoutATagAndPassesOnAllElseAsItCame) {
  Tagger tagger("", nullptr, "\n\r");
  EXPECT_EQ(tagger.feed("lo"), "");
  EXPECT_EQ(tagger.feed("ss 3\r\nlo"), "loss 3\r\n");
  EXPECT_EQ(tagger.feed("ss 2\n\n 10%\r 20%"), "loss 2\n\n 10%\r");
  EXPECT_EQ(tagger.flush(), " 20%\n");
  EXPECT_EQ(tagger.flush(), "");
  const std::string longest(Tagger::kLineMax * 3 + 10, 'x');
  std::string parts = tagger.feed(longest);
  parts += tagger.feed("\n");
  EXPECT_TRUE(parts == longest + "\n") << "it is not cut where it is only passed on";
}

TEST(Tagger, KeepsLinesWholeThatAreTaggedAlready) {
  Tagger tagger("", nullptr, "\n");
  EXPECT_EQ(tagger.feed("[2] 10%\r"), "");
  EXPECT_EQ(tagger.feed(" 20%\n"), "[2] 10%\r 20%\n");
  EXPECT_EQ(tagger.feed("[3] one\n[3] tw"), "[3] one\n");
  EXPECT_EQ(tagger.feed("o\n[3] th"), "[3] two\n");
  EXPECT_EQ(tagger.flush(), "[3] th\n");
  const std::string longest = "[3] " + std::string(Tagger::kLineMax, 'x') + "\n";
  EXPECT_EQ(tagger.feed(longest), longest);
}

Launch two_of_four() {
  Launch launch;
  launch.share = {"b", 2, 2};
  launch.size = 4;
  launch.counts = {1, 1, 2};
  launch.job = "train";
  launch.token = "secret";
  launch.runtime_dir = "/run/b";
  launch.directory = "/tmp";
  launch.environment = {"A=1", "B=x=y"};
  launch.command = {"sh", "-c", "echo 'hi'\n"};
  launch.policy = "elastic min=2";
  launch.restarts = 3;
  launch.tag = true;
  launch.stamp = true;
  launch.output = "/logs";
  return launch;
}

TEST(Launch, GivesEachRankItsPlace) {
  setenv("GRADRING_RANK", "99", 1);  // of an outer launch
  setenv("RANK", "98", 1);
  setenv("HOROVOD_RANK", "97", 1);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);  // no rank would listen at MASTER_PORT
  const auto processes = processes_of(two_of_four());
  unsetenv("GRADRING_RANK");
  unsetenv("RANK");
  unsetenv("HOROVOD_RANK");
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  ASSERT_EQ(processes.size(), 2u);
  const auto& second = processes[1];
  EXPECT_EQ(second.label, "rank 3");
  EXPECT_EQ(second.tag, "[3] ");
  EXPECT_TRUE(second.stamp);
  EXPECT_EQ(second.output, "/logs/rank.3");
  EXPECT_EQ(second.directory, "/tmp");
  EXPECT_FALSE(second.lifeline);
  for (const char* variable :
       {"RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", "GRADRING_JOB=train",
        "GRADRING_JOB_TOKEN=secret", "GRADRING_RUNTIME_DIR=/run/b", "GRADRING_POLICY=elastic min=2",
        "A=1", "B=x=y"}) {
    EXPECT_THAT(second.environment, Contains(variable));
  }
  EXPECT_THAT(second.environment, Not(Contains("RANK=98")));
  EXPECT_THAT(second.environment, Not(Contains("GRADRING_RANK=99")));
  EXPECT_THAT(second.environment, Not(Contains("HOROVOD_RANK=97")));
  EXPECT_THAT(second.environment, Not(Contains("TORCHELASTIC_USE_AGENT_STORE=True")));
  EXPECT_THAT(second.environment, Contains("PYTHONUNBUFFERED=1"));
}

// Scripts look there before they call hvd.init().
TEST(Launch, GivesEachRankItsPlaceInHorovodsNamesToo) {
  const auto processes = processes_of(two_of_four());
  for (const char* variable :
       {"HOROVOD_RANK=2", "HOROVOD_SIZE=4", "HOROVOD_LOCAL_RANK=0", "HOROVOD_LOCAL_SIZE=2",
        "HOROVOD_CROSS_RANK=2", "HOROVOD_CROSS_SIZE=3"}) {
    EXPECT_THAT(processes[0].environment, Contains(variable));
  }
  for (const char* variable :
       {"HOROVOD_RANK=3", "HOROVOD_LOCAL_RANK=1", "HOROVOD_CROSS_RANK=0", "HOROVOD_CROSS_SIZE=1"}) {
    EXPECT_THAT(processes[1].environment, Contains(variable)) << "no other host has a second rank";
  }
}

// Into a file, too, Python writes late, and what it has not written a rank that is ended loses.
TEST(Launch, PythonPrintsAtOnceWhereverItPrintsTo) {
  Launch launch = two_of_four();
  launch.tag = launch.stamp = false;
  launch.output.clear();
  EXPECT_THAT(processes_of(launch)[0].environment, Contains("PYTHONUNBUFFERED=1"));
  launch.environment.emplace_back("PYTHONUNBUFFERED=");
  EXPECT_THAT(processes_of(launch)[0].environment, Contains("PYTHONUNBUFFERED="));
  EXPECT_THAT(processes_of(launch)[0].environment, Not(Contains("PYTHONUNBUFFERED=1")));
}

TEST(Launch, FoldersOfRanksSortAsTheRanksDo) {
  Launch launch = two_of_four();
  EXPECT_EQ(processes_of(launch)[0].output, "/logs/rank.2");
  launch.size = 11;
  EXPECT_EQ(processes_of(launch)[0].output, "/logs/rank.02");
  launch.output.clear();
  EXPECT_EQ(processes_of(launch)[0].output, "");
}

TEST(Launch, TravelsAsOneLine) {
  const std::string line = to_line(two_of_four());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto there = from_line(line);
  ASSERT_TRUE(there) << there.error();
  EXPECT_EQ(to_line(*there), line);
  EXPECT_EQ(there->share, (Share{"b", 2, 2}));
  EXPECT_EQ(there->command, two_of_four().command);
  EXPECT_EQ(there->policy, "elastic min=2");
  EXPECT_EQ(there->restarts, 3);
  EXPECT_TRUE(there->stamp);
  EXPECT_EQ(there->output, "/logs");
  for (const char* bad : {"", "{}", "[]", "garbage", R"({"host":"a"})"})
    EXPECT_FALSE(from_line(bad)) << bad;
}

TEST(Launch, OfOtherBytesThanUtf8IsRefusedInWordsWithoutSecrets) {
  EXPECT_EQ(fault_of(two_of_four()), "");
  Launch word = two_of_four();
  word.command.emplace_back("caf\xe9");
  EXPECT_EQ(fault_of(word),
            "\"caf\\xe9\" of the command is not UTF-8 and cannot go along to host b: change it, or "
            "run all ranks here");
  Launch variable = two_of_four();
  variable.environment.emplace_back("GRADRING_KEY=secret\xff");
  EXPECT_THAT(fault_of(variable),
              AllOf(HasSubstr("the variable GRADRING_KEY is not UTF-8"), Not(HasSubstr("secret"))));
  Launch host = two_of_four();
  host.share.host = "b\xff";
  EXPECT_THAT(fault_of(host), HasSubstr("the name of the host is not UTF-8"));
}

TEST(Launch, SendsOnlyWhatIsMeantForOthers) {
  setenv("GRADRING_TIMELINE", "t.json", 1);
  setenv("HOROVOD_LOG_LEVEL", "debug", 1);
  setenv("MY_OWN", "1", 1);
  setenv("MY_PRIVATE", "1", 1);
  const auto sent = environment_to_send({"MY_OWN", "NEW=2", "NOT_THERE"});
  EXPECT_THAT(sent, Contains("GRADRING_TIMELINE=t.json"));
  EXPECT_THAT(sent, Contains("HOROVOD_LOG_LEVEL=debug"));
  EXPECT_THAT(sent, Contains("MY_OWN=1"));
  EXPECT_THAT(sent, Contains("NEW=2"));
  EXPECT_THAT(sent, Not(Contains("MY_PRIVATE=1")));
  EXPECT_THAT(sent, Not(Contains(HasSubstr("NOT_THERE"))));
  EXPECT_THAT(variables_to_set({"MY_OWN", "NEW=2"}), ElementsAre("NEW=2"));
  unsetenv("GRADRING_TIMELINE");
  unsetenv("HOROVOD_LOG_LEVEL");
}

TEST(Launch, TokensDiffer) {
  EXPECT_EQ(random_token().size(), 32u);
  EXPECT_NE(random_token(), random_token());
}

TEST(RunOptions, TheCommandBeginsAtTheFirstOtherWord) {
  const auto parse = [](const std::vector<std::string>& words) { return parse_run_options(words); };
  auto options =
      parse({"-np", "4", "-H", "a:2,b:2", "--tag", "-x", "A=1", "-xB", "python3", "-np", "--tag"});
  ASSERT_TRUE(options && *options) << options.error();
  EXPECT_EQ((*options)->ranks, 4);
  EXPECT_THAT((*options)->hosts, ElementsAre(Slots{"a", 2}, Slots{"b", 2}));
  EXPECT_TRUE((*options)->tag);
  EXPECT_THAT((*options)->send, ElementsAre("A=1", "B"));
  EXPECT_THAT((*options)->command, ElementsAre("python3", "-np", "--tag"));
  EXPECT_THAT((*options)->rsh, ElementsAre("ssh"));

  options = parse({"--np=2", "--rsh", "ssh -p 22", "--runtime-dir=/run/%h", "--", "-odd", "x"});
  ASSERT_TRUE(options && *options) << options.error();
  EXPECT_EQ((*options)->ranks, 2);
  EXPECT_THAT((*options)->rsh, ElementsAre("ssh", "-p", "22"));
  EXPECT_EQ((*options)->runtime_dir, "/run/%h");
  EXPECT_THAT((*options)->command, ElementsAre("-odd", "x"));

  options = parse({"-n", "3", "--job", "j", "a", "b"});
  ASSERT_TRUE(options && *options) << options.error();
  EXPECT_EQ((*options)->job, "j");
  EXPECT_THAT((*options)->command, ElementsAre("a", "b"));
}

TEST(RunOptions, AVariableThatIsNotSetIsNamed) {
  setenv("MY_OWN", "1", 1);
  const auto options =
      parse_run_options({"-np", "1", "-x", "MY_OWN", "-x", "MISSPELT", "-x", "NEW=2", "true"});
  unsetenv("MY_OWN");
  EXPECT_THAT((*options)->warnings,
              ElementsAre("-x MISSPELT: it is not set here, so ranks do not get it"));
}

TEST(RunOptions, PolicyIsThatOfTheEnvironmentUnlessItIsGiven) {
  const auto policy = [](std::vector<std::string> words) {
    words.insert(words.end(), {"-np", "2", "true"});
    return (*parse_run_options(words))->policy;
  };
  EXPECT_EQ(policy({}), "");
  setenv("GRADRING_POLICY", "elastic", 1);
  EXPECT_EQ(policy({}), "elastic");
  EXPECT_EQ(policy({"--policy", "fail"}), "fail");
  unsetenv("GRADRING_POLICY");
  EXPECT_TRUE(is_elastic("elastic") && is_elastic("elastic min=2 max=4"));
  EXPECT_TRUE(is_elastic(" elastic") && is_elastic("elastic\tmin=2")) << "as the daemon reads it";
  EXPECT_FALSE(is_elastic("") || is_elastic("fail") || is_elastic("elastically"));
}

TEST(RunOptions, PolicyIsOneThatTheDaemonTakes) {
  const auto error = [](const char* ranks, const char* policy) {
    const auto options = parse_run_options({"-np", ranks, "--policy", policy, "true"});
    return options ? "" : options.error();
  };
  EXPECT_THAT(error("2", "bogus"), HasSubstr("policy \"bogus\" is not known; use \"fail\""));
  EXPECT_THAT(error("2", "elastic min=x"), HasSubstr("\"elastic min=x\" is not known"));
  EXPECT_EQ(error("2", "elastic min=3"), "-np 2 does not fit the policy, elastic min=3");
  EXPECT_EQ(error("4", "elastic max=3"), "-np 4 does not fit the policy, elastic min=1 max=3");
  EXPECT_EQ(error("2", "elastic min=2 max=3"), "");
  setenv("GRADRING_POLICY", "rubber", 1);
  EXPECT_THAT(parse_run_options({"-np", "1", "true"}).error(), HasSubstr("\"rubber\""));
  unsetenv("GRADRING_POLICY");
  EXPECT_THAT(parse_run_options({"-np", "1", "-x", "GRADRING_POLICY=rubber", "true"}).error(),
              HasSubstr("\"rubber\""));
}

TEST(RunOptions, AreRefusedInWords) {
  const auto error = [](const std::vector<std::string>& words) {
    return parse_run_options(words).error();
  };
  EXPECT_THAT(error({}), HasSubstr("-np"));
  EXPECT_THAT(error({"-np", "2"}), HasSubstr("which command"));
  EXPECT_THAT(error({"-np", "2", ""}), HasSubstr("which command"));
  EXPECT_THAT(error({"-np", "0", "true"}), HasSubstr("how many ranks"));
  EXPECT_THAT(error({"-np", "x", "true"}), HasSubstr("np"));
  EXPECT_THAT(error({"true"}), HasSubstr("how many ranks"));
  EXPECT_THAT(error({"-np", "2", "--frob", "true"}), HasSubstr("frob"));
  EXPECT_THAT(error({"-np", "2", "-H", "a:0", "true"}), HasSubstr("-H"));
  EXPECT_EQ(error({"-np", "2", "-H", "", "true"}), "--hosts is empty");
  EXPECT_EQ(error({"-np", "2", "--hostfile", "", "true"}), "--hostfile is empty");
  EXPECT_THAT(error({"-np", "2", "-x", "=5", "true"}), HasSubstr("it is -x NAME or -x NAME=VALUE"));
  EXPECT_THAT(error({"-np", "2", "--restarts", "1", "true"}), HasSubstr("--policy elastic"));
  EXPECT_THAT(error({"-np", "2", "--policy", "elastic", "--restarts", "-1", "true"}),
              HasSubstr("negative"));
}

}  // namespace
}  // namespace gradring::tools
