#include "daemon/control/hardware/gpu_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradring::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Uuid = std::array<std::byte, 16>;

constexpr Uuid kGpuA = {std::byte{0xa0}, std::byte{1}}, kGpuB = {std::byte{0xb0}, std::byte{2}};

class GpuLanes : public testing::Test {
 protected:
  // Two GPUs and two cards; each GPU has its own near it, and the second the first's as well.
  void SetUp() override {
    for (const char* uuid :
         {"GPU-a0010000-0000-0000-0000-000000000000", "GPU-b0020000-0000-0000-0000-000000000000"}) {
      machine_.add_gpus()->set_uuid(uuid);
    }
    for (const char* nic : {"mlx5_0", "mlx5_1"}) machine_.add_nics()->set_name(nic);
    machine_.add_affinity()->add_choices()->set_nic(0);
    wire::AffinityReport* const second = machine_.add_affinity();
    second->add_choices()->set_nic(1);
    second->add_choices()->set_nic(0);
  }
  std::vector<std::vector<uint8_t>> near(const std::vector<Uuid>& gpus,
                                         const std::vector<std::string>& lanes) {
    return lanes_near(machine_, gpus, lanes);
  }

  wire::MachineReport machine_;
};

TEST_F(GpuLanes, AreThoseOfTheCardThatIsNearest) {
  EXPECT_THAT(near({kGpuA, kGpuB}, {"mlx5_0:1 (RDMA)", "mlx5_1:1 (RDMA)"}),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(near({kGpuB, kGpuA}, {"mlx5_0:1 (RDMA)", "mlx5_1:1 (RDMA)"}),
              ElementsAre(ElementsAre(1), ElementsAre(0)))
      << "the daemon may count its GPUs in another order";
}

TEST_F(GpuLanes, AreThoseOfTheNextWhereNoLaneGoesByThat) {
  EXPECT_THAT(near({kGpuA, kGpuB}, {"mlx5_0:1 (RDMA)"}),
              ElementsAre(ElementsAre(0), ElementsAre(0)));
  EXPECT_THAT(near({kGpuA, kGpuB}, {"mlx5_1:1 (RDMA)"}), ElementsAre(IsEmpty(), ElementsAre(0)));
}

TEST_F(GpuLanes, ThereAreNoneWhereNothingIsKnown) {
  EXPECT_THAT(near({Uuid{}}, {"mlx5_0:1 (RDMA)"}), ElementsAre(IsEmpty()));
  machine_.Clear();
  EXPECT_THAT(near({kGpuA}, {"mlx5_0:1 (RDMA)"}), ElementsAre(IsEmpty()));
}

}  // namespace
}  // namespace gradring::daemon
