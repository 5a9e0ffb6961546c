// Sums of what lies on several GPUs, by NCCL: one that the tests bring along.

#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <limits>
#include <string>
#include <thread>

#include "tests/client/nccl_twin.h"
#include "tests/transport/fold_kinds.h"
#include "tests/transport/gpus_fixture.h"
#include "transport/cuda/communicators.h"
#include "transport/reducer.h"

namespace gradring::transport {
namespace {

using fold_kinds::Kind;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class GpuNccl : public GpusOfTheDaemon {
 protected:
  void SetUp() override { use(3); }
  void TearDown() override {
    nccl_.answer("later", 0);
    GpusOfTheDaemon::TearDown();
    EXPECT_EQ(nccl_.held(), 0) << "no communicator stays";
  }
  void use(int gpus, const GpuSums& sums = {GpuSumsBy::kNccl}) {
    have(gpus, sums);
    const Status started = gpus_->start();
    ASSERT_TRUE(started.ok()) << started.message();
  }

  // So many ranks, on the GPUs in turn, with values whose sums are exact in any order.
  struct Ranks {
    std::vector<Bytes> inputs;
    std::vector<Memory> memories;
    std::vector<uint64_t> addresses;
    std::vector<GpuRange> ranges;
  };
  Ranks ranks(const Kind& kind, size_t many, size_t count, int gpus, size_t skipped = 0) {
    Ranks made;
    const size_t element = size_of(kind.dtype);
    for (size_t i = 0; i < many; ++i) {
      Bytes bytes((skipped + count) * element);
      for (size_t at = 0; at < skipped + count; ++at) put(kind.dtype, &bytes[at * element]);
      made.addresses.push_back(allocate(bytes, 0, static_cast<int>(i) % gpus));
      made.memories.push_back(open(made.addresses.back(), 0, bytes.size()));
      made.ranges.push_back({made.memories.back().get(), skipped * element});
      made.inputs.push_back(std::move(bytes));
    }
    return made;
  }
  void put(Dtype dtype, std::byte* to) {
    const auto small = static_cast<int>(random_() % 9) - 4;
    const auto as = [&](auto value) { std::memcpy(to, &value, sizeof value); };
    if (dtype == Dtype::kFloat32) return as(static_cast<float>(small));
    if (dtype == Dtype::kFloat64) return as(static_cast<double>(small));
    if (dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16) return as(uint16_t{0});
    const uint64_t bits = random_();
    std::memcpy(to, &bits, size_of(dtype));
  }
  static Bytes sum_of(const Kind& kind, const Ranks& ranks, size_t count, uint32_t divisor = 0,
                      const Scale& scale = {}) {
    Bytes sum(count * size_of(kind.dtype));
    std::vector<const void*> from;
    for (const Bytes& input : ranks.inputs)
      from.push_back(input.data() + input.size() - sum.size());
    fold(kind.dtype, kind.op, from, sum.data(), count, divisor, scale);
    return sum;
  }
  Bytes now(const Ranks& ranks, size_t rank) const {
    const auto* const from = static_cast<const std::byte*>(twin_.behind(ranks.addresses[rank]));
    return {from, from + ranks.inputs[rank].size()};
  }
  void allreduce(const Kind& kind, size_t many, size_t count, int gpus, size_t skipped = 0,
                 uint32_t divisor = 0, const Scale& scale = {}) {
    const Ranks all = ranks(kind, many, count, gpus, skipped);
    const Status begun = gpus_->begin(Gpus::Allreduce{kind.dtype, kind.op, all.ranges, all.ranges,
                                                      divisor, count, scale.inputs, scale.result},
                                      7);
    ASSERT_TRUE(begun.ok()) << begun.message();
    ends_well(7);
    const Bytes sum = sum_of(kind, all, count, divisor, scale);
    for (size_t rank = 0; rank < many; ++rank) {
      Bytes expected = all.inputs[rank];
      std::copy(sum.begin(), sum.end(), expected.end() - static_cast<ptrdiff_t>(sum.size()));
      ASSERT_TRUE(now(all, rank) == expected)
          << fold_kinds::describe(kind) << ", " << count << ", rank " << rank;
    }
  }

  const test::NcclTwin& nccl_ = test::nccl_twin();
  static constexpr Kind kSum = {Dtype::kFloat32, ReduceOp::kSum};
};

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
  auto ready = gpus_->make_ready(host);
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
  auto ready = gpus_->make_ready(host);
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
  auto ready = gpus_->make_ready(host);
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
  auto ready = gpus_->make_ready(host);
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

TEST_F(GpuNccl, WithoutItKernelsDoItAndTheWaySaysSo) {
  nccl_.answer("ncclGetUniqueId", 1);
  use(2);
  nccl_.answer("ncclGetUniqueId", 0);
  EXPECT_THAT(gpus_->way(), StartsWith("by kernels"));
  EXPECT_THAT(gpus_->way(), HasSubstr("unhandled cuda error"));
  EXPECT_EQ(nccl_.held(), 0);
  allreduce(kSum, 4, 1000, 2);
}

TEST_F(GpuNccl, ACommunicatorThatCannotBeMadeIsNoFailureEither) {
  nccl_.answer("ncclCommInitRankConfig", 1);
  use(2);
  nccl_.answer("ncclCommInitRankConfig", 0);
  EXPECT_THAT(gpus_->way(), HasSubstr("makes no communicators"));
  allreduce(kSum, 4, 1000, 2);
}

TEST_F(GpuNccl, ItsErrorEndsWhatIsUnderWayInWords) {
  const Ranks all = ranks(kSum, 3, 5000, 3);
  twin_.hold_gpu(2, true);
  const Gpus::Allreduce order{kSum.dtype, kSum.op, all.ranges, all.ranges, 0, 5000};
  ASSERT_TRUE(gpus_->begin(order, 1).ok());
  nccl_.answer("later", 6);  // of another GPU, say
  std::vector<Gpus::Ended> ended;
  gpus_->take_ended(&ended);
  EXPECT_EQ(nccl_.held(), 0) << "aborted, so that no other GPU waits";
  twin_.hold_gpu(2, false);
  const auto ends_of = ends();
  ASSERT_EQ(ends_of.size() + ended.size(), 1u);
  const Status& how = ended.empty() ? ends_of.begin()->second : ended[0].status;
  EXPECT_THAT(how.message(), HasSubstr("NCCL 2.28.9 has failed"));
  EXPECT_THAT(how.message(), HasSubstr("uses no GPU any more"));
  EXPECT_EQ(gpus_->begin(order, 2).code(), Code::kUnavailable);
  EXPECT_TRUE(now(all, 0) == all.inputs[0]) << "nothing was written";
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

TEST_F(GpuNccl, WhicheverIsFasterIsChosen) {
  use(2, {GpuSumsBy::kMeasured});
  EXPECT_THAT(gpus_->way(), HasSubstr("64 MiB of float32 on each GPU by NCCL 2.28.9"));
  EXPECT_THAT(gpus_->way(), HasSubstr("GB/s, by kernels"));
  allreduce(kSum, 4, 1000, 2);
  use(1, {GpuSumsBy::kMeasured});
  EXPECT_THAT(gpus_->way(), HasSubstr("one GPU alone"));
}

TEST_F(GpuNccl, OneThatFailsWhileItIsMeasuredIsNotChosen) {
  nccl_.answer("after",
               nccl_.groups() + 2 * static_cast<int>(cuda::Communicators::kTriedBytes.size()));
  use(2, {GpuSumsBy::kMeasured});
  nccl_.answer("after", 0);
  EXPECT_THAT(gpus_->way(), StartsWith("by kernels"));
  EXPECT_THAT(gpus_->way(), HasSubstr("which does not work"));
  allreduce(kSum, 4, 1000, 2);
}

// What GPUs may still work on is not freed: a driver would wait for them, and start-up with it.
TEST_F(GpuNccl, WhatDoesNotEndWhileItIsMeasuredKeepsNobodyAndItsMemory) {
  have(2, {GpuSumsBy::kMeasured, std::chrono::milliseconds(200)});
  nccl_.answer("connects", 100);  // so that there is time until it is measured
  const int before = nccl_.groups();
  auto started = std::async(std::launch::async, [this] { return gpus_->start(); });
  const auto until = [&](int groups) {
    while (nccl_.groups() < before + groups) std::this_thread::yield();
  };
  until(1);
  twin_.stall("cuMemAlloc_v2", true);
  until(2 * static_cast<int>(cuda::Communicators::kTriedBytes.size()));
  let_gpus_work();
  twin_.hold_gpu(0, true);
  twin_.settle(true);
  const int held = twin_.held();
  twin_.stall("cuMemAlloc_v2", false);
  const bool in_time = started.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(in_time);
  EXPECT_GE(twin_.held(), held + 2);
  twin_.hold_gpu(0, false);
  const Status how = started.get();
  EXPECT_THAT(how.message(), HasSubstr("did not end within 0.2 s"));
  EXPECT_THAT(how.message(), HasSubstr("uses no GPU any more"));
  EXPECT_THAT(gpus_->way(), StartsWith("not at all"));
  twin_.settle(false);
  nccl_.answer("connects", 0);
}

// It connects GPUs anew for an algorithm that it has not used yet.
TEST_F(GpuNccl, TheFirstCallOfAnySizeMayTakeItsTime) {
  nccl_.answer("connects", 1100);
  allreduce(kSum, 3, 50, 3);
  nccl_.answer("connects", 0);
}

// Where the machine has no way between them.
TEST_F(GpuNccl, GpusThatDoNotReachOneAnotherAreSummedToo) {
  twin_.answer("cuDeviceCanAccessPeer", 1);
  use(3);
  allreduce(kSum, 4, 1000, 3);
  use(2, {GpuSumsBy::kMeasured});
  twin_.answer("cuDeviceCanAccessPeer", 0);
  EXPECT_THAT(gpus_->way(), StartsWith("by NCCL"));
  EXPECT_THAT(gpus_->way(), HasSubstr("by kernels which does not work"));
}

TEST(NcclEnvironment, IsForOneProcessThatWaitsForNobodyButWhatTheUserSaysStays) {
  const auto now = [](const char* name) {
    const char* const value = ::getenv(name);
    return std::string(value == nullptr ? "unset" : value);
  };
  for (const char* const name : {"NCCL_SOCKET_IFNAME", "NCCL_RUNTIME_CONNECT"}) ::unsetenv(name);
  set_nccl_environment(GpuSumsBy::kKernels);
  EXPECT_EQ(now("NCCL_SOCKET_IFNAME") + now("NCCL_RUNTIME_CONNECT"), "unsetunset");
  ::setenv("NCCL_SOCKET_IFNAME", "eth0", 1);
  set_nccl_environment(GpuSumsBy::kMeasured);
  EXPECT_EQ(now("NCCL_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(now("NCCL_RUNTIME_CONNECT"), "0");
  for (const char* const name : {"NCCL_SOCKET_IFNAME", "NCCL_RUNTIME_CONNECT"}) ::unsetenv(name);
}

}  // namespace
}  // namespace gradring::transport
