#include "daemon/gpu_direct.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/daemon/flipping_transport.h"
#include "tests/daemon/slow_gpus.h"
#include "transport/loopback/fabric.h"
#include "transport/ucx/ucx_transport.h"

namespace gradring::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuDirectTest : public testing::Test {
 protected:
  void SetUp() override {
    config_.gpu_direct = true;
    lanes_.push_back(fabric_.join("a"));
  }
  GpuDirect chosen() { return gpu_direct_of(config_, &gpus_, lanes_); }

  transport::Fabric fabric_;
  Config config_;
  Lanes lanes_;
  SlowGpus gpus_;
};

TEST_F(GpuDirectTest, IsOnWhereAllLanesReachGpus) {
  EXPECT_TRUE(chosen().on);
  EXPECT_EQ(chosen().how, "from the GPUs' memory");
}

TEST_F(GpuDirectTest, ALaneThatDoesNotReachThemSaysWhy) {
  lanes_.push_back(*transport::make_ucx_transport({{"lo"}, "", {}}));
  EXPECT_FALSE(chosen().on);
  EXPECT_THAT(chosen().how, AllOf(HasSubstr("from the host's memory"), HasSubstr("lo")));
}

// UCX registers memory of GPUs without a card, too.
class CardThatTakesDmabufs final : public FlippingTransport {
 public:
  using FlippingTransport::FlippingTransport;
  Status can_reach_gpus(bool dmabufs) const override {
    return dmabufs ? Status() : Status(Code::kUnavailable, "modprobe nvidia_peermem");
  }
  tl::expected<std::unique_ptr<transport::Registration>, Status> make_ready_on_gpu(
      std::span<std::byte> /*memory*/) override {
    return nullptr;
  }
};

TEST_F(GpuDirectTest, ACardThatCannotReachThemSaysWhy) {
  Flips none;
  lanes_.push_back(std::make_unique<CardThatTakesDmabufs>(fabric_.join("b"), &none));
  EXPECT_TRUE(chosen().on);
  gpus_.let_lend_dmabufs(false);
  EXPECT_FALSE(chosen().on);
  EXPECT_THAT(chosen().how, AllOf(HasSubstr("from the host's memory"), HasSubstr("modprobe")));
}

TEST_F(GpuDirectTest, IsTriedWithTheFirstGpuThatHasMemoryForIt) {
  gpus_.have(2);
  gpus_.fill_up(0);
  EXPECT_TRUE(chosen().on) << chosen().how;
  gpus_.fill_up(1);
  EXPECT_FALSE(chosen().on);
  EXPECT_THAT(chosen().how, HasSubstr("GPU 0 has no memory left"));
}

TEST_F(GpuDirectTest, WhoWantsToLookAtWhatGoesHasItOnTheHost) {
  config_.checksum = true;
  EXPECT_THAT(chosen().how, HasSubstr("checksum is on"));
  EXPECT_FALSE(chosen().on);
  config_.checksum = false;
  config_.verify = true;
  EXPECT_THAT(chosen().how, HasSubstr("verify is on"));
  EXPECT_FALSE(chosen().on);
}

TEST_F(GpuDirectTest, IsOffUnlessItIsWishedFor) {
  config_.gpu_direct = false;
  EXPECT_EQ(chosen().how, "from the host's memory: gpu-direct is off");
  EXPECT_EQ(gpu_direct_of(config_, nullptr, lanes_).how, "") << "no GPU sums here";
}

}  // namespace
}  // namespace gradring::daemon
