// Which of a port's addresses a lane uses, and how they are read.
#include "transport/machine/gids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gradring::machine {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

namespace fs = std::filesystem;

// As a card with two addresses of IPv4 and one of IPv6 has it.
GidTable card() {
  return {"mlx5_0:1",
          true,
          {{0, "RoCE v1", "fe80::9a03:9bff:fe00:1", "eth0"},
           {1, "RoCE v2", "fe80::9a03:9bff:fe00:1", "eth0"},
           {2, "RoCE v1", "::ffff:192.168.5.1", "eth0"},
           {3, "RoCE v2", "::ffff:192.168.5.1", "eth0"},
           {4, "RoCE v1", "::ffff:10.0.0.1", "eth0"},
           {5, "RoCE v2", "::ffff:10.0.0.1", "eth0"},
           {6, "RoCE v2", "fd00::1", "eth0"}}};
}

std::vector<OwnAddress> own() {
  return {{"192.168.5.1", 24}, {"10.0.0.1", 20}, {"fd00::1", 64}, {"fe80::9a03:9bff:fe00:1", 64}};
}

GidChoice chosen(const std::vector<GidWish::Near>& near, const GidTable& table = card()) {
  const auto choice = choose_gid(table, {{}, near}, own());
  EXPECT_TRUE(choice);
  return choice ? *choice : GidChoice{};
}
int index_of(const GidChoice& choice) {
  return choice.gid ? static_cast<int>(choice.gid->index) : -1;
}

TEST(Gids, TheOneInTheNetworkOfListenIsTakenAndUcxIsTold) {
  const GidChoice choice = chosen({{"10.0.0.1", "listen"}});
  EXPECT_EQ(index_of(choice), 5);
  EXPECT_TRUE(choice.ours) << "UCX takes 3";
  EXPECT_EQ(choice.reason, "GID 5 (RoCE v2, 10.0.0.1, eth0), the address of listen");
}

TEST(Gids, ACardOfAnotherInterfaceIsJudgedByItsNetwork) {
  // 10.0.15.200 is still in 10.0.0.0/20, 10.0.16.1 is not.
  EXPECT_EQ(index_of(chosen({{"10.0.15.200", "peer"}})), 5);
  EXPECT_THAT(chosen({{"10.0.15.200", "peer"}}).reason,
              HasSubstr("in the network of peer 10.0.15.200"));
  EXPECT_EQ(index_of(chosen({{"10.0.16.1", "peer"}})), 3);
  EXPECT_EQ(index_of(chosen({{"172.16.0.1", "listen"}, {"10.0.0.9", "peer"}})), 5);
  EXPECT_EQ(index_of(chosen({{"somewhere", "peer"}, {"10.0.0.9", "peer"}})), 5);
}

TEST(Gids, WhereUcxIsRightItIsLeftAlone) {
  for (const auto& near :
       {std::vector<GidWish::Near>{{"192.168.5.1", "listen"}},
        std::vector<GidWish::Near>{{"172.16.0.1", "listen"}}, std::vector<GidWish::Near>{}}) {
    const GidChoice choice = chosen(near);
    EXPECT_EQ(index_of(choice), 3);
    EXPECT_FALSE(choice.ours);
    EXPECT_THAT(choice.reason, StartsWith("GID 3 (RoCE v2, 192.168.5.1, eth0)"));
  }
}

TEST(Gids, TheFamilyIsThatOfListen) {
  const GidChoice choice = chosen({{"fd00:7::1", "listen"}});
  EXPECT_EQ(index_of(choice), 6);
  EXPECT_TRUE(choice.ours);
  EXPECT_THAT(choice.reason, HasSubstr("IPv6 as listen"));
}

TEST(Gids, TheLinksOwnAddressIsTheLastResort) {
  GidTable table = card();
  std::erase_if(table.gids, [](const Gid& gid) { return gid.address.starts_with("::ffff"); });
  const GidChoice choice = chosen({{"10.0.0.1", "listen"}}, table);
  EXPECT_EQ(index_of(choice), 6);
  EXPECT_TRUE(choice.ours) << "UCX takes 1, which no router knows";
  table.gids.pop_back();
  EXPECT_EQ(index_of(chosen({{"10.0.0.1", "listen"}}, table)), 1);
  EXPECT_FALSE(chosen({{"10.0.0.1", "listen"}}, table).ours);
  table.gids.pop_back();
  EXPECT_EQ(index_of(chosen({{"10.0.0.1", "listen"}}, table)), 0);
  table.gids.clear();
  EXPECT_EQ(index_of(chosen({{"10.0.0.1", "listen"}}, table)), -1);
}

TEST(Gids, TheOperatorsIndexWinsAndMustBeThere) {
  const auto choice = choose_gid(card(), {3, {{"10.0.0.1", "listen"}}}, own());
  ASSERT_TRUE(choice);
  EXPECT_EQ(index_of(*choice), 3);
  EXPECT_TRUE(choice->ours);
  EXPECT_THAT(choice->reason, HasSubstr("by rdma-gid-index"));
  const auto refused = choose_gid(card(), {9, {}}, own());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("rdma-gid-index: 9 is not in the table of mlx5_0:1"),
                    HasSubstr("0 (RoCE v1, fe80::"), HasSubstr("5 (RoCE v2, 10.0.0.1, eth0)")));
  EXPECT_THAT(choose_gid({"mlx5_0:1", true, {}}, {0, {}}, {}).error().message(),
              HasSubstr("none is set"));
}

TEST(Gids, InfinibandHasNothingToChoose) {
  const GidTable table{"mlx5_0:1", false, {{0, "IB", "fe80::1", ""}}};
  EXPECT_EQ(index_of(chosen({{"10.0.0.1", "listen"}}, table)), -1);
  EXPECT_EQ(chosen({{"10.0.0.1", "listen"}}, table).reason, "");
  EXPECT_TRUE(choose_gid(table, {0, {}}, {}));
}

class GidFiles : public testing::Test {
 protected:
  GidFiles() : root_(fs::temp_directory_path() / ("gids-" + std::to_string(getpid()))) {
    write("mlx5_0/ports/1/link_layer", "Ethernet");
    write("mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:9a03:9bff:fe00:0001");
    write("mlx5_0/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000");
    write("mlx5_0/ports/1/gids/10", "0000:0000:0000:0000:0000:ffff:0a00:0001");
    write("mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1");
    write("mlx5_0/ports/1/gid_attrs/types/10", "RoCE v2");
    write("mlx5_0/ports/1/gid_attrs/ndevs/10", "eth0");
    write("mlx5_1/ports/1/link_layer", "InfiniBand");
    write("mlx5_1/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001");
    write("mlx5_1/ports/1/gid_attrs/types/0", "IB/RoCE v1");
    write("mlx5_1/ports/2/link_layer", "InfiniBand");
  }
  ~GidFiles() override { fs::remove_all(root_); }
  void write(const std::string& name, const std::string& line) {
    const fs::path file = root_ / "class/infiniband" / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << line << '\n';
  }
  std::optional<GidTable> read(const std::string& device) {
    return read_gid_table(device, root_.string());
  }

  const fs::path root_;
};

TEST_F(GidFiles, WhatIsSetIsReadInTheOrderOfItsIndexes) {
  const auto table = read("mlx5_0");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->port, "mlx5_0:1");
  EXPECT_TRUE(table->ethernet);
  ASSERT_EQ(table->gids.size(), 2u);
  EXPECT_EQ(table->gids[0], (Gid{0, "RoCE v1", "fe80::9a03:9bff:fe00:1", ""}));
  EXPECT_EQ(table->gids[1], (Gid{10, "RoCE v2", "::ffff:10.0.0.1", "eth0"}));
  const auto other = read("mlx5_1:1");
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->ethernet);
  EXPECT_EQ(other->gids[0].type, "IB");
}

TEST_F(GidFiles, WhatIsNoPortHasNoTable) {
  for (const char* device : {"mlx5_1", "mlx5_0:2", "mlx5_0:x", "eth0", "", "../mlx5_0"}) {
    EXPECT_FALSE(read(device)) << device;
  }
}

TEST(Gids, ThisMachineHasAnAddressOfItsOwn) {
  const auto own = own_addresses();
  const auto loopback = std::find_if(
      own.begin(), own.end(), [](const OwnAddress& one) { return one.address == "127.0.0.1"; });
  ASSERT_NE(loopback, own.end());
  EXPECT_EQ(loopback->prefix_bits, 8u);
}

}  // namespace
}  // namespace gradring::machine
