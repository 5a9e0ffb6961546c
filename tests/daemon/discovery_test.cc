// Where peers come from: how the sources are written, what they answer, and who is told when.
#include "daemon/discovery/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "daemon/discovery/host_list.h"
#include "tests/daemon/scratch.h"

namespace gradring::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = PeerSource::Kind;

TEST(HostList, IsWhatSlurmMeans) {
  EXPECT_THAT(*expand_host_list("login"), ElementsAre("login"));
  EXPECT_THAT(*expand_host_list("gpu[08-10,2],login,x[1]"),
              ElementsAre("gpu08", "gpu09", "gpu10", "gpu2", "login", "x1"));
  EXPECT_THAT(*expand_host_list("r[1-2]n[3,5].lan"),
              ElementsAre("r1n3.lan", "r1n5.lan", "r2n3.lan", "r2n5.lan"));
}

TEST(HostList, RefusesWhatItIsNot) {
  for (const char* text : {"", "a,,b", "a[", "a]", "a[]", "a[2-1]", "a[1-]", "a[-1]", "a[1[2]]",
                           "a b", "a[0-99999999]", "a[0-999]b[0-999]c", "a[12345678901]", "a/b"}) {
    const auto hosts = expand_host_list(text);
    ASSERT_FALSE(hosts) << text;
    EXPECT_THAT(hosts.error(), HasSubstr("no list of hosts")) << text;
  }
}

TEST(PeerSource, IsRead) {
  EXPECT_EQ(parse_peer_source("file:/etc/gradring/peers")->name, "/etc/gradring/peers");
  const auto name = parse_peer_source("dns:gradring.default.svc:7400");
  EXPECT_EQ(name->kind, Kind::kDns);
  EXPECT_EQ(name->name, "gradring.default.svc");
  EXPECT_EQ(name->port, 7400);
  EXPECT_EQ(parse_peer_source("dns:gradring")->port, 7300);
  EXPECT_EQ(parse_peer_source("slurm")->port, 7300);
  EXPECT_EQ(parse_peer_source("slurm:7400")->port, 7400);
  for (const char* text : {"", "file:", "file:peers", "dns:", "dns:a:0", "dns:a:b",
                           "slurm:", "slurm:0", "slurms:1", "etcd:x", "/etc/peers"}) {
    EXPECT_FALSE(parse_peer_source(text)) << text;
  }
}

TEST(PeerFile, HasAnAddressOnEachLine) {
  EXPECT_THAT(
      *addresses_in(
          "\xef\xbb\xbf# all of them\n10.0.0.1:7301\n\n  node-b  # the second\r\n[::1]:7302\n"),
      ElementsAre("10.0.0.1:7301", "node-b:7300", "[::1]:7302"));
  EXPECT_TRUE(addresses_in("")->empty());
  for (const char* text : {"a\nb c\n", "a\nb:0\n", "a\nb:x\n", "a\n:7300\n"}) {
    const auto addresses = addresses_in(text);
    ASSERT_FALSE(addresses) << text;
    EXPECT_THAT(addresses.error(), HasSubstr("line 2: '")) << text;
  }
}

TEST(PeerFile, SaysWhyItCannotBeRead) {
  const auto addresses = ask_file({Kind::kFile, "/nowhere/peers", 0});
  ASSERT_FALSE(addresses);
  EXPECT_EQ(addresses.error(), "/nowhere/peers cannot be read: No such file or directory");
}

TEST(PeerName, IsLookedUp) {
  const auto addresses = ask_dns({Kind::kDns, "127.0.0.1", 7400});
  ASSERT_TRUE(addresses) << addresses.error();
  EXPECT_THAT(*addresses, ElementsAre("127.0.0.1:7400"));
  EXPECT_THAT(*ask_dns({Kind::kDns, "::1", 7400}), ElementsAre("[::1]:7400"));
}

TEST(PeerName, ThatHasOneFamilyKeepsIt) {
  const PeerSource source{Kind::kDns, "127.0.0.1", 7400};
  for (const char* listens : {"10.0.0.1:7300", "[fd00::1]:7300", "[::]:7300"}) {
    EXPECT_THAT(*ask_dns(source, {listens}), ElementsAre("127.0.0.1:7400")) << listens;
  }
}

TEST(PeersOfSlurm, AreTheOthersOfTheAllocation) {
  const std::map<std::string, std::string> variables = {{"SLURM_JOB_NODELIST", "n[1-3]"},
                                                        {"SLURMD_NODENAME", "n2"}};
  const auto variable = [&](const std::string& name) -> std::optional<std::string> {
    return variables.at(name);
  };
  EXPECT_THAT(*ask_slurm({Kind::kSlurm, "", 7300}, variable), ElementsAre("n1:7300", "n3:7300"));
  const auto outside = ask_slurm({Kind::kSlurm, "", 7300},
                                 [](const std::string&) { return std::optional<std::string>(); });
  ASSERT_FALSE(outside);
  EXPECT_THAT(outside.error(), HasSubstr("SLURM_JOB_NODELIST"));
}

// What a Discovery has told, one by one.
class Told {
 public:
  Discovery::Found listener() {
    return [this](const Addresses& addresses) {
      const std::lock_guard<std::mutex> lock(mutex_);
      told_.push_back(addresses);
      news_.notify_all();
    };
  }
  Addresses wait_for(size_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool came =
        news_.wait_for(lock, std::chrono::seconds(20), [&] { return told_.size() >= number; });
    return came ? told_[number - 1] : Addresses{"nothing came"};
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<Addresses> told_;
};

void write_whole(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  std::filesystem::rename(path + ".new", path);
}

TEST(Discovery, TellsEachAnswerThatIsAnother) {
  Scratch scratch;
  const std::string path = scratch.path("peers");
  write_whole(path, "b\na\nb\n");
  Told told;
  const Discovery discovery({{Kind::kFile, path, 0}, {Kind::kDns, "127.0.0.1", 7400}}, nullptr,
                            told.listener());
  EXPECT_THAT(told.wait_for(1), ElementsAre("127.0.0.1:7400", "a:7300", "b:7300"));
  write_whole(path, "a\n b c d\n");                              // a mistake: nobody is gone
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // it is asked each second
  write_whole(path, "a\nc\n");
  EXPECT_THAT(told.wait_for(2), ElementsAre("127.0.0.1:7400", "a:7300", "c:7300"));
  std::filesystem::remove(path);
  write_whole(path, "c\n");
  EXPECT_THAT(told.wait_for(3), ElementsAre("127.0.0.1:7400", "c:7300"));
}

}  // namespace
}  // namespace gradring::daemon
