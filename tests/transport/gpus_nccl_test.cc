// Sums of what lies on several GPUs, by NCCL: one that the tests bring along.

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "tests/transport/gpus_nccl_fixture.h"
#include "transport/cuda/communicators.h"

namespace gradring::transport {
namespace {

using ::testing::HasSubstr;

TEST_F(GpuNccl, SumsAreThoseOfTheHost) {
  EXPECT_EQ(gpus_->way(), "by NCCL 2.28.9");
  const int before = nccl_.groups();
  for (const size_t count : {1, 2, 3, 50, 1023, 100'003}) allreduce(kSum, 3, count, 3);
  EXPECT_EQ(nccl_.groups(), before + 12);
  allreduce(kSum, 7, 4099, 3);     // some GPUs have more ranks than others
  allreduce(kSum, 4, 4099, 3, 5);  // not aligned to more than an element
  allreduce({Dtype::kFloat32, ReduceOp::kAverage}, 6, 4099, 3, 0, 2);
}

// Exact in any order.
TEST_F(GpuNccl, ScaledSumsToo) {
  const std::vector<double> factors = {0.5, 1, -2, 4, 0.25};
  const int before = nccl_.groups();
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    allreduce({dtype, ReduceOp::kSum}, 5, 4099, 3, 5, 0, {factors, -3});
    allreduce({dtype, ReduceOp::kAverage}, 4, 4099, 3, 0, 2, {std::span(factors).first(2), 1});
  }
  EXPECT_EQ(nccl_.groups(), before + 8);
  const Ranks all = ranks(kSum, 5, 5000, 3);
  Bytes host(5000 * sizeof(float));
  auto ready = gpus_->make_ready(host, std::nullopt);
  ASSERT_TRUE(
      gpus_->begin(Gpus::Sum{kSum.dtype, kSum.op, all.ranges, host.data(), 5000, factors}, 1).ok());
  ends_well(1);
  EXPECT_TRUE(host == sum_of(kSum, all, 5000, 0, {factors}));
}

// Each GPU looks at its ranks' inputs while it adds them, and at the sum of all.
TEST_F(GpuNccl, WhatIsNotFiniteIsFoundByRank) {
  constexpr size_t kCount = cuda::Communicators::kPartBytes / sizeof(float) + 1000;
  const auto spoil = [&](Ranks& all, size_t rank, size_t element, float value) {
    std::memcpy(static_cast<std::byte*>(twin_.behind(all.addresses[rank])) + element * 4, &value,
                4);
  };
  Bytes host(kCount * sizeof(float));
  auto ready = gpus_->make_ready(host, std::nullopt);
  for (const bool to_host : {false, true}) {
    const auto sum = [&](const Ranks& all) {
      const Status begun =
          to_host ? gpus_->begin(Gpus::Sum{kSum.dtype, kSum.op, all.ranges, host.data(), kCount}, 7)
                  : gpus_->begin(
                        Gpus::Allreduce{kSum.dtype, kSum.op, all.ranges, all.ranges, 0, kCount}, 7);
      ASSERT_TRUE(begun.ok());
      ends_well(7);
    };
    Ranks all = ranks(kSum, 5, kCount, 3);
    sum(all);
    EXPECT_TRUE(found_.empty());
    all = ranks(kSum, 5, kCount, 3);
    spoil(all, 4, kCount - 9, std::numeric_limits<float>::quiet_NaN());
    spoil(all, 4, kCount - 5, std::numeric_limits<float>::infinity());
    spoil(all, 2, kCount - 7, -std::numeric_limits<float>::infinity());
    sum(all);
    ASSERT_EQ(found_.size(), 1u);
    EXPECT_EQ(found_[7].first, kCount - 9);
    EXPECT_EQ(found_[7].inputs[4].many, 2u);
    EXPECT_EQ(found_[7].inputs[4].first, kCount - 9);
    EXPECT_TRUE(found_[7].inputs[4].nan);
    EXPECT_EQ(found_[7].inputs[2].many, 1u);
    EXPECT_FALSE(found_[7].inputs[2].nan);
    EXPECT_EQ(found_[7].inputs[0].many + found_[7].inputs[1].many + found_[7].inputs[3].many, 0u);
    all = ranks(kSum, 5, kCount, 3);
    spoil(all, 0, 5000, std::numeric_limits<float>::max());  // on two GPUs
    spoil(all, 1, 5000, std::numeric_limits<float>::max());
    sum(all);
    ASSERT_EQ(found_.size(), 1u) << "NCCL's sum outgrew its type";
    EXPECT_EQ(found_[7].first, 5000u);
    for (const auto& input : found_[7].inputs) EXPECT_EQ(input.many, 0u);
  }
}

TEST_F(GpuNccl, EveryTypeAndOperationIsRight) {
  for (const Kind& kind : fold_kinds::all_kinds()) {
    const int before = nccl_.groups();
    allreduce(kind, 4, 67, 3);
    const bool by_nccl = cuda::Communicators::takes(kind.dtype, kind.op);
    EXPECT_EQ(nccl_.groups() > before, by_nccl) << fold_kinds::describe(kind);
  }
}

// NCCL would add 16 bits in 16 bits, and forget NaNs in minima.
TEST_F(GpuNccl, DoesWhatComesToTheBitsOfTheHostAlone) {
  using cuda::Communicators;
  EXPECT_TRUE(Communicators::takes(Dtype::kFloat32, ReduceOp::kAverage));
  EXPECT_TRUE(Communicators::takes(Dtype::kInt64, ReduceOp::kMin));
  EXPECT_FALSE(Communicators::takes(Dtype::kFloat32, ReduceOp::kMin));
  EXPECT_FALSE(Communicators::takes(Dtype::kBfloat16, ReduceOp::kSum));
  EXPECT_FALSE(Communicators::takes(Dtype::kUint8, ReduceOp::kBxor));
  EXPECT_FALSE(Communicators::takes(Dtype::kBool, ReduceOp::kSum));
}

// In several parts, of which each GPU brings its share.
TEST_F(GpuNccl, ALargeSumComesToTheHostAndIsSpread) {
  constexpr size_t kCount = 3 * cuda::Communicators::kPartBytes / sizeof(float) / 2 + 5;
  const Ranks all = ranks(kSum, 4, kCount, 3);
  Bytes host(kCount * sizeof(float));
  auto ready = gpus_->make_ready(host, std::nullopt);
  ASSERT_TRUE(ready) << ready.error().message();
  ASSERT_TRUE(
      gpus_->begin(Gpus::Sum{kSum.dtype, kSum.op, all.ranges, host.data(), kCount}, 1).ok());
  ends_well(1);
  EXPECT_TRUE(host == sum_of(kSum, all, kCount));
  for (std::byte& byte : host) byte = ~byte;
  ASSERT_TRUE(gpus_->begin(Gpus::Spread{host.data(), all.ranges, host.size()}, 2).ok());
  ends_well(2);
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_TRUE(now(all, rank) == host) << rank;
}

TEST_F(GpuNccl, WhatIsNotOnAllGpusGoesByKernels) {
  const int before = nccl_.groups();
  allreduce(kSum, 2, 1000, 2);  // GPUs 0 and 1 of three
  EXPECT_EQ(nccl_.groups(), before);
}

TEST_F(GpuNccl, OneGpuAloneIsNoFailure) {
  use(1);
  EXPECT_EQ(gpus_->way(), "by NCCL 2.28.9");
  allreduce(kSum, 3, 1000, 1);
}

// Its spread waits for the sum that is still on its way to the same memory.
TEST_F(GpuNccl, WhatTouchesTheSameMemoryOfTheHostIsInOrder) {
  const Ranks all = ranks(kSum, 3, 5000, 3);
  Bytes host(5000 * sizeof(float));
  auto ready = gpus_->make_ready(host, std::nullopt);
  twin_.hold_gpu(1, true);
  ASSERT_TRUE(gpus_->begin(Gpus::Sum{kSum.dtype, kSum.op, all.ranges, host.data(), 5000}, 1).ok());
  ASSERT_TRUE(gpus_->begin(Gpus::Spread{host.data(), all.ranges, host.size()}, 2).ok());
  let_gpus_work();
  std::vector<Gpus::Ended> ended;
  gpus_->take_ended(&ended);
  EXPECT_TRUE(ended.empty()) << "one of three GPUs has not begun";
  twin_.hold_gpu(1, false);
  EXPECT_EQ(ends().size(), 2u);
  EXPECT_TRUE(now(all, 2) == sum_of(kSum, all, 5000));
}

TEST_F(GpuNccl, ItsErrorEndsWhatIsUnderWayInWords) {
  const Ranks all = ranks(kSum, 3, 5000, 3);
  twin_.hold_gpu(2, true);
  const Gpus::Allreduce order{kSum.dtype, kSum.op, all.ranges, all.ranges, 0, 5000};
  ASSERT_TRUE(gpus_->begin(order, 1).ok());
  nccl_.answer("later", 6);  // of another GPU, say
  std::vector<Gpus::Ended> ended;
  gpus_->take_ended(&ended);
  wait_until_aborted();
  twin_.hold_gpu(2, false);
  const auto ends_of = ends();
  ASSERT_EQ(ends_of.size() + ended.size(), 1u);
  const Status& how = ended.empty() ? ends_of.begin()->second : ended[0].status;
  EXPECT_THAT(how.message(), HasSubstr("NCCL 2.28.9 has failed"));
  EXPECT_THAT(how.message(), HasSubstr("uses no GPU any more"));
  EXPECT_EQ(gpus_->begin(order, 2).code(), Code::kUnavailable);
  EXPECT_TRUE(now(all, 0) == all.inputs[0]) << "nothing was written";
}

// NCCL ends its kernels first, and other nodes do not wait for whoever aborts.
TEST_F(GpuNccl, AFaultKeepsNobodyWhileNcclAborts) {
  const Ranks all = ranks(kSum, 3, 5000, 3);
  const Gpus::Allreduce order{kSum.dtype, kSum.op, all.ranges, all.ranges, 0, 5000};
  twin_.hold_gpu(2, true);
  ASSERT_TRUE(gpus_->begin(order, 1).ok());
  nccl_.answer("later", 6);
  nccl_.answer("aborts", 700);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Gpus::Ended> ended;
  for (int look = 0; look < 10; ++look) gpus_->take_ended(&ended);
  EXPECT_EQ(gpus_->begin(order, 2).code(), Code::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_GT(nccl_.held(), 0) << "it aborts meanwhile";
  twin_.hold_gpu(2, false);
  EXPECT_TRUE(ended.empty());
  EXPECT_THAT(ends()[1].message(), HasSubstr("NCCL 2.28.9 has failed"));
  gpus_.reset();
  EXPECT_EQ(nccl_.held(), 0) << "what NCCL has is its own until it has aborted";
  nccl_.answer("aborts", 0);
}

// A GPU that is gone says nothing, and NCCL's kernels on the others wait for it.
TEST_F(GpuNccl, WhatDoesNotEndIsGivenUp) {
  use(3, {GpuSumsBy::kNccl, std::chrono::milliseconds(50)});
  const Ranks all = ranks(kSum, 3, 5000, 3);
  twin_.hold_gpu(2, true);
  ASSERT_TRUE(
      gpus_->begin(Gpus::Allreduce{kSum.dtype, kSum.op, all.ranges, all.ranges, 0, 5000}, 1).ok());
  std::vector<Gpus::Ended> ended;
  while (nccl_.held() > 0) gpus_->take_ended(&ended);
  twin_.hold_gpu(2, false);
  const auto ends_of = ends();
  const Status& how = ended.empty() ? ends_of.begin()->second : ended[0].status;
  EXPECT_THAT(how.message(), HasSubstr("did not end within 0.05 s"));
}

TEST_F(GpuNccl, ACallThatIsRefusedEndsInWords) {
  const Ranks all = ranks(kSum, 3, 5000, 3);
  nccl_.answer("ncclGroupEnd", 5);
  ASSERT_TRUE(
      gpus_->begin(Gpus::Allreduce{kSum.dtype, kSum.op, all.ranges, all.ranges, 0, 5000}, 1).ok());
  nccl_.answer("ncclGroupEnd", 0);
  const auto ended = ends();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended.begin()->second.message(), HasSubstr("begins no sum"));
}

// It connects GPUs anew for an algorithm that it has not used yet.
TEST_F(GpuNccl, TheFirstCallOfAnySizeMayTakeItsTime) {
  nccl_.answer("connects", 1100);
  allreduce(kSum, 3, 50, 3);
  nccl_.answer("connects", 0);
}

// While a driver pins, which takes 0.1 s for each GB, nobody may launch NCCL's kernels; and whoever
// begins sums has heartbeats to send.
TEST_F(GpuNccl, NobodyWhoBeginsWaitsForAPin) {
  const Ranks all = ranks(kSum, 3, 5000, 3), one = ranks(kSum, 1, 5000, 1);
  Bytes host(5000 * sizeof(float)), other(4096);
  auto ready = gpus_->make_ready(host, std::nullopt);
  twin_.stall("cuMemHostRegister_v2", true);
  std::thread pins([&] { EXPECT_TRUE(gpus_->make_ready(other, std::nullopt)); });
  std::thread ends_it([&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    twin_.stall("cuMemHostRegister_v2", false);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that it has begun
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(gpus_->begin(Gpus::Sum{kSum.dtype, kSum.op, all.ranges, host.data(), 5000}, 1).ok());
  EXPECT_TRUE(gpus_->begin(Gpus::Spread{host.data(), all.ranges, host.size()}, 2).ok());
  EXPECT_TRUE(gpus_->begin(Gpus::Spread{host.data(), one.ranges, host.size()}, 3).ok());
  std::vector<Gpus::Ended> ended;
  gpus_->take_ended(&ended);
  EXPECT_TRUE(ended.empty());
  EXPECT_TRUE(gpus_->busy());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
  ends_it.join();
  pins.join();
  EXPECT_EQ(ends().size(), 3u);
  const Bytes sum = sum_of(kSum, all, 5000);
  EXPECT_TRUE(host == sum);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(now(all, rank) == sum);
  EXPECT_TRUE(now(one, 0) == sum) << "in the order in which they began";
}

}  // namespace
}  // namespace gradring::transport
