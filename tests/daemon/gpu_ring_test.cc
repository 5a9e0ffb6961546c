// What GpuRing and GpuOps have GPUs do, and for whom it counts.

#include "daemon/data/gpu_ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/daemon/flipping_transport.h"
#include "tests/daemon/slow_gpus.h"
#include "transport/loopback/fabric.h"

namespace gradring::daemon {
namespace {

// Copying what another node lacked of an op can outlast its op, as where that node is gone by now.
TEST(GpuRingAlone, WhatAnEndedOpStillHasDoneIsNoPartOfTheNextOneOfItsKey) {
  constexpr uint64_t kSlice = 4096;
  const auto gpus = std::make_shared<SlowGpus>();
  gpus->let(0);
  GpuDesk desk(gpus);
  GpuOrders orders(&desk, nullptr, [](const GpuWork&, GpuTask, uint64_t) {});
  const auto ends = [](uint32_t, uint64_t, const core::Outcome&) {};
  GpuOps ops(&orders, ends, [](const std::string& why) { ADD_FAILURE() << why; });
  auto staging = GpuStaging::create(*gpus, 1, 1, kSlice);
  ASSERT_TRUE(staging);
  const OpKey key{0, 1};
  (*staging)->put({core::Staging::Kind::kSlot, 0}, 0);
  (*staging)->holds(0, {key, 0, 0});
  GpuRing ring(*std::move(staging), &orders, &ops);

  core::Op ended;
  ended.key = key;
  ended.plan.slices = 1;
  ended.plan.slice_bytes = kSlice;
  ended.plan.block_bytes = kSlice;
  ended.slices.resize(1);
  ended.slices[0].kept = ring.keep(ended, 0);
  ASSERT_TRUE(ended.slices[0].kept);
  ring.fetch(ended, 0, {core::Staging::Kind::kStart, 0});
  ASSERT_TRUE(ring.busy());

  std::vector<float> data(kSlice / sizeof(float));
  const SlowGpus::Memory memory(&data);
  Submit next;
  next.submission.key = key;
  next.submission.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0,
                               data.size()};
  next.gpu_input = next.gpu_output = {&memory, 0};
  ops.add(next);
  gpus->let_all();
  for (const GpuDesk::Ended& one : desk.take_ended()) {
    ring.on_ended(one.work, one.status.ok());
    ops.on_ended(one.work, one.status, nullptr);
  }
  EXPECT_FALSE(ring.busy());
  EXPECT_FALSE(ops.under_way()) << "or it never begins";
}

// As one whose window on that GPU is all taken.
class CardThatRefusesTheFirst final : public FlippingTransport {
 public:
  using FlippingTransport::FlippingTransport;
  tl::expected<std::unique_ptr<transport::Registration>, Status> make_ready_on_gpu(
      std::span<std::byte> /*memory*/) override {
    if (asked_++ > 0) return nullptr;
    return tl::unexpected(Status(Code::kUnavailable, "the card takes none"));
  }

 private:
  int asked_ = 0;
};

TEST(GpuStagingAlone, IsOnTheGpusThatHaveMemoryWhichCardsReach) {
  SlowGpus gpus;
  gpus.have(4);
  gpus.fill_up(0);
  auto staging = GpuStaging::create(gpus, 1, 1, 4096);
  ASSERT_TRUE(staging);
  transport::Fabric fabric;
  Flips none;
  Lanes lanes;
  lanes.push_back(std::make_unique<CardThatRefusesTheFirst>(fabric.join("a"), &none));
  ASSERT_TRUE((*staging)->make_ready(lanes).ok());
  EXPECT_EQ((*staging)->gpus(), (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ((*staging)->lacking(), "GPU 0 has no memory left; the card takes none");
  (*staging)->leave_transports();
}

TEST(GpuStagingAlone, SaysWhyTheFirstHasNoneWhereNoneHas) {
  SlowGpus gpus;
  gpus.have(2);
  for (const size_t gpu : {size_t{0}, size_t{1}}) gpus.fill_up(gpu);
  const auto staging = GpuStaging::create(gpus, 1, 1, 4096);
  ASSERT_FALSE(staging);
  EXPECT_EQ(staging.error().message(), "GPU 0 has no memory left");
}

}  // namespace
}  // namespace gradring::daemon
