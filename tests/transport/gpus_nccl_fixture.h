#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/client/nccl_twin.h"
#include "tests/transport/fold_kinds.h"
#include "tests/transport/gpus_fixture.h"
#include "transport/reducer.h"

namespace gradring::transport {

using fold_kinds::Kind;

// The daemon's GPUs, with the tests' NCCL among them.
class GpuNccl : public GpusOfTheDaemon {
 protected:
  void SetUp() override { use(3); }
  void TearDown() override {
    nccl_.answer("later", 0);
    GpusOfTheDaemon::TearDown();
    EXPECT_EQ(nccl_.held(), 0) << "no communicator stays";
  }
  // A fault makes the engine do so, that no other GPU waits.
  void wait_until_aborted() const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (nccl_.held() > 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(nccl_.held(), 0);
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

}  // namespace gradring::transport
