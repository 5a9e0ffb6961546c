// Where gradring-run has the ranks of torch.distributed meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>

#include "tests/tools/launcher.h"
#include "tools/run/here.h"
#include "tools/run/rendezvous.h"

namespace gradring::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

constexpr char kAnyPort[] = "MASTER_PORT=2[0-9][0-9][0-9][0-9]";

class Rendezvous : public ::testing::Test {
 protected:
  Rendezvous() { forget(); }
  ~Rendezvous() override { forget(); }
  static void forget() {
    for (const char* name : {"RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID",
                             "SLURM_STEP_NODELIST"})
      unsetenv(name);
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
  static std::string address(const std::vector<Share>& shares) {
    const auto both = rendezvous(shares, {});
    EXPECT_THAT(both, ElementsAre(testing::StartsWith("MASTER_ADDR="), MatchesRegex(kAnyPort)));
    return both[0].substr(both[0].find('=') + 1);
  }
};

TEST_F(Rendezvous, IsTheHostOfRankZero) {
  EXPECT_EQ(address({{"", 0, 4}}), "127.0.0.1");
  EXPECT_EQ(address({{"localhost", 0, 4}}), "127.0.0.1");
  EXPECT_EQ(address({{"alpha", 0, 4}, {"beta", 4, 4}}), "alpha");
  EXPECT_EQ(address({{"me@alpha", 0, 4}, {"beta", 4, 4}}), "alpha");
  EXPECT_EQ(address({{"10.1.2.3", 0, 4}, {"localhost", 4, 4}}), "10.1.2.3");
  EXPECT_EQ(address({{"localhost", 0, 4}, {"beta", 4, 4}}), host_name());
  EXPECT_EQ(address({{"127.0.0.1", 0, 4}, {"beta", 4, 4}}), host_name());
}

TEST_F(Rendezvous, IsWhatTheUserSays) {
  const std::vector<Share> shares = {{"alpha", 0, 4}};
  set("MASTER_PORT", "29500");
  EXPECT_THAT(rendezvous(shares, {}), ElementsAre("MASTER_ADDR=alpha", "MASTER_PORT=29500"));
  set("MASTER_ADDR", "omega");
  EXPECT_THAT(rendezvous(shares, {}), ElementsAre("MASTER_ADDR=omega", "MASTER_PORT=29500"));
  EXPECT_THAT(rendezvous(shares, {"MASTER_ADDR=psi"}),
              ElementsAre("MASTER_ADDR=psi", "MASTER_PORT=29500"));
  // In a rank they are those of its own launch, and its first rank listens there.
  set("RANK", "0");
  EXPECT_EQ(address(shares), "alpha");
}

TEST(PortIsFree, UnlessSomebodyListensThere) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_FALSE(port_is_free(ntohs(address.sin_port)));
  close(fd);
  EXPECT_TRUE(port_is_free(ntohs(address.sin_port)));
}

TEST_F(Rendezvous, IsHandedOver) {
  RunOptions options;
  options.launcher = Launcher::kMpirun;
  options.hosts = {{"alpha", 4}, {"beta", 4}};
  EXPECT_THAT(rendezvous_to_hand_over(options),
              ElementsAre("MASTER_ADDR=alpha", MatchesRegex(kAnyPort)));
  options.hosts.clear();
  EXPECT_THAT(rendezvous_to_hand_over(options),
              ElementsAre("MASTER_ADDR=" + host_name(), MatchesRegex(kAnyPort)));
  options.launcher = Launcher::kSrun;
  EXPECT_THAT(rendezvous_to_hand_over(options), ElementsAre("MASTER_ADDR=", "MASTER_PORT="));
  options.send = {"MASTER_ADDR=alpha"};
  set("MASTER_PORT", "29500");
  EXPECT_THAT(rendezvous_to_hand_over(options),
              ElementsAre("MASTER_ADDR=alpha", "MASTER_PORT=29500"));
}

TEST_F(Rendezvous, IsTheFirstNodeOfAStep) {
  EXPECT_THAT(rendezvous_in_step(), ElementsAre());
  set("SLURM_JOB_ID", "123456");
  set("SLURM_STEP_ID", "1");
  set("SLURM_STEP_NODELIST", "gpu[03-07,12],login");
  EXPECT_THAT(rendezvous_in_step(), ElementsAre("MASTER_ADDR=gpu03", "MASTER_PORT=23557"));
  set("MASTER_ADDR", "");
  EXPECT_THAT(rendezvous_in_step(), ElementsAre("MASTER_ADDR=gpu03", "MASTER_PORT=23557"));
  set("MASTER_ADDR", "gpu05");
  EXPECT_THAT(rendezvous_in_step(), ElementsAre("MASTER_ADDR=gpu05", "MASTER_PORT=23557"));
}

TEST(Nodelist, BeginsWithItsFirstHost) {
  EXPECT_EQ(first_of_nodelist("alpha"), "alpha");
  EXPECT_EQ(first_of_nodelist("alpha,beta[1-2]"), "alpha");
  EXPECT_EQ(first_of_nodelist("gpu[03-07,12],login"), "gpu03");
  EXPECT_EQ(first_of_nodelist("rack[1,3]node[09-10]-ib,x"), "rack1node09-ib");
  EXPECT_EQ(first_of_nodelist("gpu[7]"), "gpu7");
  for (const char* odd : {"", "gpu[", "gpu[3", "[", "gpu]"}) first_of_nodelist(odd);
}

}  // namespace
}  // namespace gradring::tools
