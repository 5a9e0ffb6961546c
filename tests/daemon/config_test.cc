#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>

#include "tests/daemon/config_fixture.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

TEST_F(ConfigTest, HasDefaultsThatWork) {
  const auto invocation = load({});
  ASSERT_TRUE(invocation) << invocation.error();
  const Config& config = invocation->config;
  EXPECT_EQ(config.runtime_dir, "/run/gradring");
  EXPECT_EQ(config.form_deadline, 300 * core::kSecond);
  EXPECT_EQ(config.op_deadline, 1800 * core::kSecond);
  EXPECT_EQ(config.suspect, 1 * core::kSecond);
  EXPECT_EQ(config.decide, 3 * core::kSecond);
  EXPECT_EQ(config.staging_limit, 64u << 20);
  EXPECT_EQ(config.socket_mode, 0666u);
  EXPECT_GT(config.segment_limit, 0u);
  EXPECT_THAT(config.node, testing::EndsWith(":7300"));
  EXPECT_EQ(fault_of(config), "");
}

TEST_F(ConfigTest, TakesATableOfSumsOrSaysWhatIsWrongWithIt) {
  EXPECT_EQ(load({})->config.tuning, "default");
  EXPECT_EQ(load({"--tuning", "auto"})->config.tuning, "auto");
  EXPECT_EQ(load({"--tuning", "64K:parts,rest:32K"})->config.tuning, "64K:parts,rest:32K");
  environment_ = {{"GRADRING_TUNING", "64K:parts,1M:ring"}};
  EXPECT_EQ(load({})->config.tuning, "64K:parts,1M:ring");
  EXPECT_THAT(told({"--tuning", "64K:star"}), HasSubstr("'star' is not a way: write default"));
  EXPECT_THAT(told({"--tuning", "on"}), HasSubstr("write default, auto, or a table"));
}

TEST_F(ConfigTest, TakesWhatAnRdmaCardSendsBy) {
  const Config by_itself = load({})->config;
  EXPECT_FALSE(by_itself.rdma_gid_index || by_itself.rdma_traffic_class);
  EXPECT_EQ(by_itself.rdma_timeout, core::kSecond);
  EXPECT_EQ(by_itself.rdma_retries, 7u);
  EXPECT_EQ(load({"--rdma-gid-index", "0"})->config.rdma_gid_index, 0u);
  EXPECT_EQ(load({"--rdma-path-mtu", "512"})->config.rdma_path_mtu, 512u);
  EXPECT_FALSE(load({"--rdma-path-mtu", "auto"})->config.rdma_path_mtu);
  for (const auto& [option, value, right] :
       {std::array{"--rdma-gid-index", "256", "auto, or a number from 0 to 255"},
        {"--rdma-traffic-class", "-1", "from 0 to 255"},
        {"--rdma-service-level", "16", "from 0 to 15"},
        {"--rdma-path-mtu", "256", "auto, 512, 1024, 2048 or 4096"},
        {"--rdma-timeout", "0", "from 1ms to 1h"},
        {"--rdma-timeout", "2h", "from 1ms to 1h"},
        {"--rdma-retries", "8", "from 0 to 7"},
        {"--rdma-rnr-retries", "x", "from 0 to 7"}}) {
    EXPECT_THAT(told({option, value}), HasSubstr(right));
  }
}

TEST_F(ConfigTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  write("default.conf", "slots = 4\nmax-jobs = 5\ndecide = 7s\npeer = f:1\npeer = g:1\n");
  environment_ = {
      {"GRADRING_SLOTS", "8"}, {"GRADRING_MAX_JOBS", "9"}, {"GRADRING_PEER", "e:1, h:2 "}};
  const auto invocation = load({"--slots", "12"});
  ASSERT_TRUE(invocation) << invocation.error();
  EXPECT_EQ(invocation->config.slots, 12u);
  EXPECT_EQ(invocation->config.max_jobs, 9u);
  EXPECT_EQ(invocation->config.decide, 7 * core::kSecond);
  EXPECT_EQ(invocation->config.suspect, 1 * core::kSecond);
  EXPECT_THAT(invocation->config.peers, testing::ElementsAre("e:1", "h:2"));
}

TEST_F(ConfigTest, AListOfPeersInOneValueIsToldHowItIsWritten) {
  EXPECT_THAT(told({"--peer", "127.0.0.1:1, 127.0.0.1:2"}), HasSubstr("say peer once for each"));
  EXPECT_THAT(told({"--peer", "127.0.0.1"}), testing::EndsWith("write HOST:PORT"));
}

TEST_F(ConfigTest, ValuesOfTheFileMayBeInQuotes) {
  write("default.conf", "node = \"a\"\npolicy = 'elastic min=2'\npeer = c:1\n");
  const auto invocation = load({});
  ASSERT_TRUE(invocation) << invocation.error();
  EXPECT_EQ(invocation->config.node, "a");
  EXPECT_EQ(invocation->config.policy, "elastic min=2");
  EXPECT_THAT(invocation->config.peers, testing::ElementsAre("c:1"));
}

TEST_F(ConfigTest, AQuoteAtOneEndAloneIsNamed) {
  for (const char* value : {"\"a", "a\"", "'a\"", "\""}) {
    write("default.conf", std::string("node = ") + value + "\n");
    const auto invocation = load({});
    ASSERT_FALSE(invocation) << value;
    EXPECT_THAT(invocation.error(),
                HasSubstr(std::string("node: '") + value + "' is not good: it has a quote at"));
  }
}

TEST_F(ConfigTest, EverySettingCanBeWrittenInAllThreeWays) {
  const std::map<std::string, std::string> good = {{"node", "n"},
                                                   {"runtime-dir", "/tmp/x"},
                                                   {"listen", "127.0.0.1:1"},
                                                   {"peer", "a:1"},
                                                   {"discover", "file:/etc/gradring/peers"},
                                                   {"peers-from", "dns:gradring:7300"},
                                                   {"control-links", "4"},
                                                   {"net-device", "eth0"},
                                                   {"listen-also", "10.1.0.1:7300"},
                                                   {"data-ports", "7310-7317"},
                                                   {"rdma-gid-index", "3"},
                                                   {"rdma-traffic-class", "106"},
                                                   {"rdma-service-level", "3"},
                                                   {"rdma-path-mtu", "4096"},
                                                   {"rdma-timeout", "67ms"},
                                                   {"rdma-retries", "3"},
                                                   {"rdma-rnr-retries", "6"},
                                                   {"key", "k"},
                                                   {"allowed-keys", "a"},
                                                   {"insecure", "true"},
                                                   {"form-deadline", "1s"},
                                                   {"op-deadline", "1s"},
                                                   {"suspect", "1s"},
                                                   {"decide", "2s"},
                                                   {"restart-grace", "0"},
                                                   {"policy", "elastic min=2 max=8"},
                                                   {"quorum-wait", "5s"},
                                                   {"completion", "stable"},
                                                   {"metrics", "127.0.0.1:7390"},
                                                   {"drain-timeout", "1s"},
                                                   {"segment-limit", "1G"},
                                                   {"segments-per-session", "1"},
                                                   {"staging-limit", "1G"},
                                                   {"slice-bytes", "64K"},
                                                   {"slots", "3"},
                                                   {"max-sessions", "1"},
                                                   {"sessions-per-uid", "1"},
                                                   {"max-jobs", "1"},
                                                   {"checksum", "on"},
                                                   {"verify", "on"},
                                                   {"gpu-sums", "on"},
                                                   {"gpu-engine", "measured"},
                                                   {"flight-recorder-size", "0"},
                                                   {"socket-mode", "0600"},
                                                   {"socket-group", "root"},
                                                   {"log-level", "debug"}};
  for (const auto& [name, value] : good) {
    EXPECT_TRUE(load({"--" + name + "=" + value})) << name;
    write("one.conf", name + " = " + value + "\n");
    EXPECT_TRUE(load({"--config", scratch_.path("one.conf")})) << name;
    std::string variable = "GRADRING_" + name;
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(toupper(c));
    // That the variable is read shows when its value is bad.
    if (name == "node" || name == "runtime-dir" || name == "listen" || name == "key" ||
        name == "allowed-keys" || name == "socket-group" || name == "metrics") {
      environment_ = {{variable, ""}};
    } else if (name == "peer" || name == "net-device" || name == "listen-also") {
      environment_ = {{variable, "a,,b"}};
    } else {
      environment_ = {{variable, "?"}};
    }
    const auto bad = load({});
    ASSERT_FALSE(bad) << name;
    EXPECT_THAT(bad.error(), HasSubstr(variable));
    environment_.clear();
  }
  const auto help = load({"--help"});
  ASSERT_TRUE(help);
  for (const auto& [name, value] : good) EXPECT_THAT(help->text, HasSubstr("--" + name));
}

TEST_F(ConfigTest, SumsOnGpusDoNotOutliveADaemon) {
  EXPECT_EQ(told({"--gpu-sums=on"}), "");
  EXPECT_THAT(told({"--gpu-sums=on", "--restart-grace=5s"}), HasSubstr("gpu-sums: "));
  EXPECT_EQ(told({"--gpu-sums=on", "--gpu-direct=on"}), "");
  EXPECT_THAT(told({"--gpu-direct=on"}), HasSubstr("turn gpu-sums on as well"));
}

TEST_F(ConfigTest, ASwitchNeedsNoValue) {
  EXPECT_TRUE(load({"--insecure"})->config.insecure);
  EXPECT_TRUE(load({"--insecure", "--slots", "4"})->config.insecure);
  EXPECT_FALSE(load({"--insecure=false"})->config.insecure);
}

TEST_F(ConfigTest, AsksWhatToDo) {
  using What = Invocation::What;
  EXPECT_EQ(load({"--help"})->what, What::kHelp);
  EXPECT_EQ(load({"--version"})->what, What::kVersion);
  EXPECT_EQ(load({"--check-config"})->what, What::kCheckConfig);
  EXPECT_EQ(load({})->what, What::kRun);
}

struct Bad {
  std::vector<std::string> flags;
  std::string names;     // the text names the setting
  std::string suggests;  // and what would be right
};

TEST_F(ConfigTest, BadInputGetsOneLineThatSaysWhatToChange) {
  const std::vector<Bad> cases = {
      {{"--colour", "red"}, "--colour", "--help"},
      {{"--pee", "a:1"}, "--pee", "--help"},
      {{"stray"}, "stray", "--help"},
      {{"--slots"}, "slots", "--help"},
      {{"--slots", "many"}, "--slots", "number from 2"},
      {{"--slots", "1"}, "--slots", "number from 2"},
      {{"--bundle-bytes", "65K"}, "--bundle-bytes", "up to 65536 bytes"},
      {{"--slots", "99999999999999999999"}, "--slots", "number from 2"},
      {{"--slots", "4", "--slots", "5"}, "--slots", "once"},
      {{"--decide", "5 parsecs"}, "--decide", "300s"},
      {{"--decide", "5"}, "--decide", "300s"},
      {{"--decide", "-1s"}, "--decide", "300s"},
      {{"--decide", "9999999999999999h"}, "--decide", "300s"},
      {{"--suspect", "1ms"}, "--suspect", "at least 20 ms"},
      {{"--suspect", "3s"}, "decide", "longer than suspect"},
      {{"--restart-grace", "soon"}, "restart-grace", "soon"},
      {{"--policy", "sometimes"}, "--policy", "write fail"},
      {{"--policy", "fail min=2"}, "--policy", "write fail"},
      {{"--policy", "elastic min=3 max=2"}, "--policy", "write fail"},
      {{"--completion", "soon"}, "--completion", "stable"},
      {{"--segment-limit", "lots"}, "--segment-limit", "64M"},
      {{"--segment-limit", "12Q"}, "--segment-limit", "64M"},
      {{"--slice-bytes", "5000"}, "slice-bytes", "multiple of 4K"},
      {{"--slice-bytes", "128M", "--staging-limit", "8G"}, "slice-bytes", "64M"},
      {{"--flight-recorder-size", "1K"}, "flight-recorder-size", "4K to 64M"},
      {{"--flight-recorder-size", "65M"}, "flight-recorder-size", "4K to 64M"},
      {{"--staging-limit", "1M"}, "staging-limit", "raise it"},
      {{"--slots", "4096"}, "staging-limit", "lower slots"},
      {{"--socket-mode", "0066"}, "--socket-mode", "0660"},
      {{"--socket-mode", "rw"}, "--socket-mode", "octal"},
      {{"--log-level", "loud"}, "--log-level", "debug"},
      {{"--insecure=perhaps"}, "--insecure", "on or off"},
      {{"--node", "two words"}, "node", "without blanks"},
      {{"--node", std::string(200, 'x')}, "node", "127"},
      {{"--node", ""}, "--node", "empty"},
      {{"--runtime-dir", "relative"}, "runtime-dir", "absolute"},
      {{"--runtime-dir", "/" + std::string(120, 'x')}, "runtime-dir", "shorter"},
      {{"--listen", "7300"}, "listen", "10.0.0.1:7300"},
      {{"--listen", "127.0.0.1:0"}, "listen", "10.0.0.1:7300"},
      {{"--listen", "127.0.0.1:70000"}, "listen", "10.0.0.1:7300"},
      {{"--listen", "::1:7300"}, "listen", "10.0.0.1:7300"},
      {{"--listen", "myhost:7300"}, "listen", "numeric"},
      {{"--listen", "10.0.0.1:7300"}, "listen", "insecure"},
      {{"--listen", "0.0.0.0:7300"}, "listen", "gradringctl keygen"},
      {{"--metrics", "7390"}, "metrics", "127.0.0.1:7390"},
      {{"--metrics", "localhost:7390"}, "metrics", "numeric"},
      {{"--metrics", "0.0.0.0:7390"}, "metrics", "127.0.0.1:7390"},
      {{"--metrics", "[::]:7390"}, "metrics", "every network"},
      {{"--metrics", "127.0.0.1:7300"}, "metrics", "another port"},
      {{"--data-ports", "7310-7309"}, "data-ports", "7310-7317"},
      {{"--data-ports", "0-10"}, "data-ports", "auto"},
      {{"--data-ports", "7310-"}, "data-ports", "auto"},
      {{"--data-ports", "7310-65536"}, "data-ports", "65535"},
      {{"--data-ports", "7000-8000"}, "port 7300", "that of listen"},
      {{"--metrics", "127.0.0.1:7390", "--data-ports", "7390"}, "7390", "metrics"},
      {{"--listen-also", "0.0.0.0:7300"}, "listen-also", "one network"},
      {{"--listen-also", "127.0.0.1:7300"}, "listen-also", "twice"},
      {{"--listen-also", "10.1.0.1:7300"}, "10.1.0.1:7300", "insecure"},
      {{"--net-device", "eth0", "--net-device", "eth0"}, "net-device", "twice"},
      {{"--peer", "nowhere"}, "peer", "HOST:PORT"},
      {{"--peer", "127.0.0.1:1", "--peer", "127.0.0.1:1"}, "peer", "once"},
      {{"--peer", "127.0.0.1:1", "--peer", "localhost:1"}, "peer", "once"},
      {{"--peer", "[::1]:1", "--peer", "[0:0::0:1]:01"}, "peer", "once"},
      {{"--listen", "[::1]:1", "--peer", "[0::1]:1"}, "peer", "own listen address"},
      {{"--listen-also", "[::1]:1", "--listen-also", "[0::1]:1"}, "listen-also", "twice"},
      {{"--peer", "127.0.0.1:7300"}, "peer", "own listen address"},
      {{"--peer", "localhost:7300"}, "peer", "own listen address"},
      {{"--peer", "10.0.0.2:7300"}, "listen", "listen on an address"},
      {{"--gpu-nic", "mlx5_0"}, "gpu-nic", "0=mlx5_0"},
      {{"--gpu-nic", "0="}, "gpu-nic", "0=mlx5_0"},
      {{"--machine-recording", "/nowhere"}, "machine-recording", "/nowhere"},
      {{"--form-deadline", "2562047h"}, "form-deadline", "at most 1000000h"},
      {{"--key", "/k"}, "allowed-keys", "lists the keys"},
      {{"--allowed-keys", "/k"}, "key", "keygen"},
      {{"--config", "/dev/null", "--config", "/dev/null"}, "--config", "once"},
      {{"--config", "/nowhere/at/all.conf"}, "/nowhere/at/all.conf", "cannot read"},
  };
  for (const Bad& bad : cases) {
    const std::string text = told(bad.flags);
    EXPECT_THAT(text, HasSubstr(bad.names)) << testing::PrintToString(bad.flags);
    EXPECT_THAT(text, HasSubstr(bad.suggests)) << testing::PrintToString(bad.flags);
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST_F(ConfigTest, MorePeersThanADaemonCanHaveAreRefused) {
  std::string text;
  for (size_t port = 1; port <= kPeersMax + 1; ++port) text += fmt::format("peer = h:{}\n", port);
  write("many.conf", "insecure = true\nlisten = 10.0.0.1:7300\n" + text);
  EXPECT_THAT(told({"--config", scratch_.path("many.conf")}), HasSubstr("a daemon can have 8192"));
}

TEST_F(ConfigTest, AFileThatIsNotTextIsRefusedInAWholeSentence) {
  for (const std::string& bytes : {std::string("\xff\xfes\0l\0o\0t\0s\0", 12),
                                   std::string("slots = 4\0\n", 11), std::string(512, '\0')}) {
    write("zeros.conf", bytes);
    EXPECT_THAT(told({"--config", scratch_.path("zeros.conf")}),
                HasSubstr(scratch_.path("zeros.conf") + " is not text"));
  }
}

TEST_F(ConfigTest, ABadFileIsNamedWithItsKey) {
  const std::map<std::string, std::string> cases = {
      {"colour = red\n", "unknown key 'colour'"},
      {"[section]\nslots = 4\n", "unknown key 'section.slots'"},
      {"slots = none\n", "slots: 'none' is not good"},
      {"slots = 4\nslots = 5\n", "once"},
      {"slots\n", "'slots' is not KEY = VALUE"},
      {"%invalid_line%\n", "'%invalid_line%' is not KEY = VALUE"},
  };
  for (const auto& [text, expected] : cases) {
    write("bad.conf", text);
    const std::string path = scratch_.path("bad.conf");
    const auto invocation = load({"--config", path});
    ASSERT_FALSE(invocation) << text;
    EXPECT_THAT(invocation.error(), HasSubstr(expected));
    EXPECT_THAT(invocation.error(), HasSubstr(path));
  }
  write("empty.conf", "");
  EXPECT_TRUE(load({"--config", scratch_.path("empty.conf")}));
  write("comments.conf", "# nothing\n\n  # here\n");
  EXPECT_TRUE(load({"--config", scratch_.path("comments.conf")}));
  write("windows.conf", "\xef\xbb\xbfslots = 7\r\nmax-jobs = 5\r\n");
  const auto windows = load({"--config", scratch_.path("windows.conf")});
  ASSERT_TRUE(windows) << windows.error();
  EXPECT_EQ(windows->config.slots, 7u);
}

TEST_F(ConfigTest, TheDefaultFileNeedNotExistButCountsIfItDoes) {
  EXPECT_TRUE(load({}));
  write("default.conf", "slots = 3\n");
  EXPECT_EQ(load({})->config.slots, 3u);
}

// Defaults in place of what it says would be another node, and open to others.
TEST_F(ConfigTest, AFileThatIsThereAndCannotBeReadIsNotPassedOver) {
  EXPECT_THAT(told({"--config", scratch_.directory()}), HasSubstr("Is a directory"));
  std::filesystem::create_symlink("default.conf", scratch_.path("default.conf"));  // for ever
  EXPECT_THAT(told({}), HasSubstr("cannot read the configuration file"));
  EXPECT_EQ(told({"--config", "/dev/null"}), "");
}

TEST(Values, DurationsAndSizes) {
  EXPECT_EQ(parse_duration("250ms"), 250 * core::kMillisecond);
  EXPECT_EQ(parse_duration("2m"), 120 * core::kSecond);
  EXPECT_EQ(parse_duration("1h"), 3600 * core::kSecond);
  EXPECT_EQ(parse_duration("0"), 0);
  for (const char* bad : {"", "s", "1", "1.5s", "1 s", "+1s", "1sec"})
    EXPECT_FALSE(parse_duration(bad)) << bad;
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("256K"), 256u << 10);
  EXPECT_EQ(parse_size("2G"), uint64_t{2} << 30);
  for (const char* bad : {"", "K", "1KB", "-1", "99999999T"}) EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(Values, Addresses) {
  EXPECT_EQ(parse_host_port("[::1]:7300")->host, "::1");
  EXPECT_EQ(parse_host_port("node-b:65535")->port, 65535);
  for (const char* bad :
       {"", ":1", "a", "a:", "a:0", "a:65536", "a:1x", "::1:7300", "[]:1", "[::1:1", "a b:1"}) {
    EXPECT_FALSE(parse_host_port(bad)) << bad;
  }
  EXPECT_TRUE(is_loopback("127.3.2.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_TRUE(is_loopback("localhost"));
  EXPECT_FALSE(is_loopback("128.0.0.1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
}

TEST(Config, ItSaysThatItLivesEachSecondHoweverPatientItIs) {
  Config config;
  config.suspect = 200 * core::kMillisecond;
  EXPECT_EQ(config.pulse(), 50 * core::kMillisecond);
  config.suspect = 90 * core::kSecond;
  EXPECT_EQ(config.pulse(), core::kSecond);
}

}  // namespace
}  // namespace gradring::daemon
