// The recorded machines: what nvidia-smi would print of them, and which card each GPU gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/machine/machine.h"
#include "transport/machine/affinity.h"
#include "transport/machine/distance.h"

namespace gradring::machine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The rows of the matrix, blanks between the codes.
std::vector<std::string> rows_of(const Machine& machine) {
  const size_t devices = machine.gpus.size() + machine.nics.size();
  const std::vector<std::string> codes = distances_of(machine);
  std::vector<std::string> rows(devices);
  for (size_t i = 0; i < codes.size(); ++i) {
    rows[i / devices] += (i % devices == 0 ? "" : " ") + codes[i];
  }
  return rows;
}

std::vector<std::string> cards_of(const Machine& machine, const Wishes& wishes = {}) {
  std::vector<std::string> cards;
  for (const auto& choices : affinity_of(machine, rails_of(machine, wishes), wishes).choices) {
    std::string text;
    for (const Choice& choice : choices) {
      text += (text.empty() ? "" : " ") + machine.nics[choice.nic].name;
    }
    cards.push_back(text);
  }
  return cards;
}

TEST(RecordedMachine, EightGpusOnNvSwitchWithACardEach) {
  const Machine machine = recorded("dgx-h100");
  EXPECT_THAT(machine.notes, IsEmpty());
  ASSERT_EQ(machine.gpus.size(), 8u);
  ASSERT_EQ(machine.nics.size(), 10u);
  const std::vector<std::string> rows = rows_of(machine);
  EXPECT_EQ(rows[0],
            "X NV18 NV18 NV18 NV18 NV18 NV18 NV18 "
            "PIX NODE NODE NODE NODE SYS SYS SYS SYS NODE");
  EXPECT_EQ(rows[1],
            "NV18 X NV18 NV18 NV18 NV18 NV18 NV18 "
            "NODE NODE PIX NODE NODE SYS SYS SYS SYS NODE");
  EXPECT_EQ(rows[7],
            "NV18 NV18 NV18 NV18 NV18 NV18 NV18 X "
            "SYS SYS SYS SYS SYS NODE NODE NODE PIX SYS");
  EXPECT_EQ(rows[8],
            "PIX NODE NODE NODE SYS SYS SYS SYS "
            "X NODE NODE NODE NODE SYS SYS SYS SYS NODE");
  // The card for storage stands between the first two, and is not taken for one of them.
  EXPECT_THAT(cards_of(machine), ElementsAre("mlx5_0", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5",
                                             "mlx5_6", "mlx5_7", "mlx5_8"));
  EXPECT_EQ(machine.gpus[0].place.cpus, "0-55,112-167");
  EXPECT_EQ(machine.gpus[7].place.numa, 1);
  EXPECT_EQ(machine.gpus[0].name, "NVIDIA H100 80GB HBM3");
  const Nic& card = machine.nics[0];
  EXPECT_EQ(card.rate_bps(), 400'000'000'000u);
  ASSERT_TRUE(card.rdma);
  EXPECT_EQ(card.rdma->ports[0].gids[3].type, "RoCE v2");
  EXPECT_EQ(card.rdma->ports[0].gids[3].address, "::ffff:10.1.0.11");
  EXPECT_EQ(card.interfaces[0].mtu, 9000u);
}

TEST(RecordedMachine, SlowCardsAreForManagement) {
  const Machine machine = recorded("dgx-h100");
  const std::vector<Rail> rails = rails_of(machine, {});
  ASSERT_EQ(rails.size(), 10u);
  const Rail& storage = rails[static_cast<size_t>(nic_named(machine, "mlx5_1"))];
  EXPECT_FALSE(storage.used);
  EXPECT_EQ(storage.reason, "100 Gbit/s, less than half of the fastest's 400 Gbit/s");
  const Rail& board = rails[static_cast<size_t>(nic_named(machine, "eno1"))];
  EXPECT_FALSE(board.used);
  EXPECT_THAT(board.reason, HasSubstr("no RDMA"));
  EXPECT_EQ(rails[0].reason, "up, 400 Gbit/s, RDMA");
}

TEST(RecordedMachine, ADesktop) {
  const Machine machine = recorded("consumer");
  EXPECT_THAT(rows_of(machine),
              ElementsAre("X PHB PHB PHB", "PHB X PHB PHB", "PHB PHB X PIX", "PHB PHB PIX X"));
  EXPECT_THAT(cards_of(machine), ElementsAre("enp5s0", "enp5s0"));
  EXPECT_EQ(machine.gpus[0].place.numa, 0);
  EXPECT_EQ(machine.gpus[0].place.socket, 0);
  const std::vector<Rail> rails = rails_of(machine, {});
  EXPECT_EQ(rails[0].reason, "up, 2.5 Gbit/s");
  EXPECT_EQ(rails[1].reason, "its link is down");
}

TEST(RecordedMachine, ABondIsOneRailOfDoubleRate) {
  const Machine machine = recorded("server-4x2");
  const std::vector<std::string> rows = rows_of(machine);
  EXPECT_EQ(rows[0], "X NV12 SYS SYS PXB SYS PXB PHB SYS");
  EXPECT_EQ(rows[2], "SYS SYS X NV12 SYS PXB SYS SYS PXB");
  EXPECT_THAT(cards_of(machine),
              ElementsAre("mlx5_bond_0", "mlx5_bond_0", "mlx5_bond_1", "mlx5_bond_1"));
  const std::vector<Rail> rails = rails_of(machine, {});
  ASSERT_EQ(rails.size(), 3u);  // two bonds and the board's own
  EXPECT_EQ(rails[0].nics.size(), 2u);
  EXPECT_EQ(rails[0].rate_bps, 200'000'000'000u);
  EXPECT_EQ(rails[0].reason, "up, 200 Gbit/s, RDMA, as a bond");
}

TEST(RecordedMachine, NothingTellsDevicesApartInAVirtualOne) {
  const Machine machine = recorded("vm-flat");
  EXPECT_EQ(rows_of(machine)[0], "X NV12 NV12 NV12 PHB PHB PHB PHB PHB");
  EXPECT_EQ(machine.gpus[0].place.numa, -1);
  EXPECT_EQ(machine.gpus[0].place.socket, -1);
  EXPECT_THAT(cards_of(machine), ElementsAre("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"));
  const Affinity affinity = affinity_of(machine, rails_of(machine, {}), {});
  EXPECT_THAT(affinity.choices[2][0].reason, HasSubstr("like all others: by index"));
}

TEST(RecordedMachine, WishesAreMet) {
  const Machine machine = recorded("vm-flat");
  EXPECT_THAT(cards_of(machine, {{}, {"0=mlx5_3", "00000000:00:06.0=0000:00:0b.0"}}),
              ElementsAre("mlx5_3", "mlx5_2", "mlx5_0", "mlx5_1"));
  EXPECT_THAT(cards_of(machine, {{"mlx5_1:1", "eth0"}, {}}),
              ElementsAre("mlx5_1", "mlx5_1", "eth0", "eth0"));
}

TEST(RecordedMachine, WishesThatMakeNoSenseAreNamed) {
  const Machine machine = recorded("vm-flat");
  const Wishes wishes = {{}, {"9=mlx5_0", "0=nosuch", "1=eth0", "nonsense", ""}};
  const Affinity affinity = affinity_of(machine, rails_of(machine, wishes), wishes);
  EXPECT_THAT(affinity.complaints, ElementsAre("gpu-nic 9=mlx5_0: there is no such GPU",
                                               "gpu-nic 0=nosuch: there is no such network card",
                                               "gpu-nic 1=eth0: that card is not used",
                                               "gpu-nic nonsense: there is no such GPU",
                                               "gpu-nic : there is no such GPU"));
  EXPECT_THAT(cards_of(machine, wishes), ElementsAre("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"));
}

}  // namespace
}  // namespace gradring::machine
