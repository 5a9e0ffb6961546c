#include <gmock/gmock.h>

#include "tests/transport/gpus_fixture.h"

namespace gradring::transport {
namespace {

using ::testing::HasSubstr;

// Several GPUs, and several things at once.
class GpuOrder : public GpusOfTheDaemon {
 protected:
  static std::byte* bytes_of(std::vector<float>& floats) {
    return reinterpret_cast<std::byte*>(floats.data());
  }
  Memory lend_floats(const std::vector<float>& values, int gpu) {
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return lend(bytes, 0, gpu);
  }
  Status sum(const std::vector<Memory>& of, std::vector<float>& out, uint64_t ticket) {
    std::vector<GpuRange> inputs;
    for (const Memory& memory : of) inputs.push_back({memory.get(), 0});
    return gpus_->begin({Dtype::kFloat32, ReduceOp::kSum, inputs, bytes_of(out), out.size()},
                        ticket);
  }
  Bytes behind(uint64_t address, size_t offset, size_t count) const {
    const auto* const begin = static_cast<const std::byte*>(twin_.behind(address)) + offset;
    return {begin, begin + count};
  }
  void all_end_well(size_t many) {
    const auto ended = ends();
    EXPECT_EQ(ended.size(), many);
    for (const auto& [ticket, status] : ended) EXPECT_TRUE(status.ok()) << status.message();
  }
};

TEST_F(GpuOrder, AreNamedForPeople) {
  EXPECT_EQ(gpus_->name(), "1 GPU, Twin");
  have(3);
  EXPECT_EQ(gpus_->name(), "3 GPUs, Twin");
}

TEST_F(GpuOrder, MemoryOfSeveralGpusIsSummedByAnyOfThem) {
  have(3);
  const Memory a = lend_floats({1, 2}, 0), b = lend_floats({10, 20}, 1), c = lend_floats({5, 5}, 2);
  std::vector<std::vector<float>> outs(6, std::vector<float>(2));
  for (size_t i = 0; i < outs.size(); ++i) ASSERT_TRUE(sum({a, b, c}, outs[i], i).ok());
  all_end_well(outs.size());
  for (const auto& out : outs) EXPECT_EQ(out, (std::vector<float>{16, 27}));
}

TEST_F(GpuOrder, TheGpusOfASumTakeTurns) {
  have(2);
  const Memory a = lend_floats({1}, 0), b = lend_floats({10}, 1);
  std::vector<float> first(1), second(1);
  ASSERT_TRUE(sum({a, b}, first, 1).ok());
  ASSERT_TRUE(sum({a, b}, second, 2).ok());
  all_end_well(2);  // the streams of both are there now
  first = second = {0};
  twin_.hold_gpu(0, true);
  ASSERT_TRUE(sum({a, b}, first, 1).ok());
  ASSERT_TRUE(sum({a, b}, second, 2).ok());
  let_gpus_work();
  EXPECT_EQ(first[0] + second[0], 11) << "the other GPU has done one of them, and one only";
  twin_.hold_gpu(0, false);
  all_end_well(2);
  EXPECT_EQ(first[0] + second[0], 22);
}

// Its driver would have the daemon wait with it, and all of the node's jobs.
TEST_F(GpuOrder, AGpuThatIsBehindIsNotGivenAllThereIs) {
  const Memory a = lend_floats({1}, 0), b = lend_floats({10}, 0);
  std::vector<std::vector<float>> outs(2000, std::vector<float>(1));
  ASSERT_TRUE(sum({a, b}, outs[0], 0).ok());
  all_end_well(1);  // its stream is there now
  twin_.hold_gpu(0, true);
  for (size_t i = 0; i < outs.size(); ++i) ASSERT_TRUE(sum({a, b}, outs[i], i).ok());
  EXPECT_THAT(twin_.most(), testing::AllOf(testing::Gt(100u), testing::Lt(1000u)));
  twin_.hold_gpu(0, false);
  all_end_well(outs.size());
  EXPECT_THAT(outs, testing::Each(std::vector<float>{11}));
  EXPECT_LT(twin_.most(), 1000u);
}

// One whose stream is full says nothing of others.
TEST_F(GpuOrder, AGpuThatIsBehindKeepsNoOther) {
  have(2);
  const Memory a = lend_floats({1}, 0), b = lend_floats({10}, 1);
  std::vector<float> slow(1), quick(1);
  ASSERT_TRUE(sum({a, a}, slow, 0).ok());
  ASSERT_TRUE(sum({b, b}, quick, 1).ok());
  all_end_well(2);  // the streams of both are there now
  quick = {0};
  twin_.hold_gpu(0, true);
  constexpr size_t kMany = 1000;
  for (uint64_t ticket = 0; ticket < kMany; ++ticket) ASSERT_TRUE(sum({a, a}, slow, ticket).ok());
  ASSERT_TRUE(sum({b, b}, quick, kMany).ok());
  let_gpus_work();
  EXPECT_EQ(quick, std::vector<float>{20}) << "it waits for a GPU that it has no need of";
  ASSERT_TRUE(sum({b, b}, slow, kMany + 1).ok());
  ASSERT_TRUE(sum({a, a}, quick, kMany + 2).ok());
  twin_.hold_gpu(0, false);
  all_end_well(kMany + 3);
  EXPECT_EQ(slow, std::vector<float>{20}) << "what came last in that memory";
  EXPECT_EQ(quick, std::vector<float>{2}) << "and in that";
}

// So an order that comes when its GPU could take it stays behind those that wait.
TEST_F(GpuOrder, WhatOneGpuDoesByItselfIsInOrderAlsoWhereSomeWaits) {
  const Memory a = lend_floats({1}, 0), b = lend_floats({0}, 0), c = lend_floats({0}, 0);
  const auto copy = [this](const Memory& from, const Memory& to, uint64_t ticket) {
    const GpuRange input{from.get(), 0};
    const std::vector<GpuRange> outputs = {{to.get(), 0}};
    Gpus::Allreduce order = Gpus::copy(input, outputs, sizeof(float));
    order.on = 0;
    return gpus_->begin(order, ticket);
  };
  ASSERT_TRUE(copy(b, c, 0).ok());
  all_end_well(1);  // its stream is there now
  twin_.hold_gpu(0, true);
  constexpr uint64_t kMany = 1000;
  for (uint64_t ticket = 0; ticket < kMany; ++ticket) ASSERT_TRUE(copy(c, c, ticket).ok());
  ASSERT_TRUE(copy(a, b, kMany).ok());
  twin_.hold_gpu(0, false);
  let_gpus_work();
  std::vector<Gpus::Ended> ended;
  gpus_->take_ended(&ended);  // there is room again, and the rest has not begun
  ASSERT_LT(ended.size(), kMany);
  ASSERT_TRUE(copy(b, c, kMany + 1).ok());
  all_end_well(kMany + 2 - ended.size());
  std::vector<float> out(1);
  ASSERT_TRUE(sum({c, c}, out, 0).ok());
  all_end_well(1);
  EXPECT_EQ(out, std::vector<float>{2});
}

// All of what waits ends when nothing works any more.
TEST_F(GpuOrder, WhatWaitsForAGpuThatIsLostFails) {
  const Memory a = lend_floats({1}, 0);
  std::vector<float> out(1);
  ASSERT_TRUE(sum({a, a}, out, 0).ok());
  all_end_well(1);
  twin_.hold_gpu(0, true);
  for (uint64_t ticket = 0; ticket < 2000; ++ticket) ASSERT_TRUE(sum({a, a}, out, ticket).ok());
  twin_.lose(0, true);
  const auto ended = ends();
  EXPECT_EQ(ended.size(), 2000u);
  for (const auto& [ticket, status] : ended) EXPECT_FALSE(status.ok()) << ticket;
  twin_.hold_gpu(0, false);
  twin_.lose(0, false);
}

TEST_F(GpuOrder, GpusThatCannotReadOneAnotherAreToldSo) {
  have(2);
  twin_.answer("cuDeviceCanAccessPeer", 1);
  const Memory a = lend_floats({1}, 0), b = lend_floats({10}, 1);
  twin_.answer("cuDeviceCanAccessPeer", 0);
  std::vector<float> out(1);
  const Status refused = sum({a, b}, out, 1);
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("can reach the memory of all others"));
  ASSERT_TRUE(sum({b, b}, out, 2).ok());
  all_end_well(1);
  EXPECT_EQ(out, std::vector<float>{20});
  // What is spread needs nobody to read another's.
  const Bytes bytes = random_bytes(4);
  ASSERT_TRUE(
      gpus_->begin({bytes.data(), std::vector<GpuRange>{{a.get(), 0}, {b.get(), 0}}, 4}, 3).ok());
  all_end_well(1);
  for (const auto& [address, gpu] : allocated_) EXPECT_EQ(behind(address, 0, 4), bytes);
}

// As behind an IOMMU: the driver says that there is a way, and no call fails.
TEST_F(GpuOrder, AWayThatLosesDataIsNone) {
  have(2);
  twin_.answer("peers lose", 1);
  ASSERT_TRUE(gpus_->start().ok());
  const Memory a = lend_floats({1}, 0), b = lend_floats({10}, 1);
  const std::vector<GpuRange> both = {{a.get(), 0}, {b.get(), 0}};
  EXPECT_FALSE(gpus_->reaches(0, both) || gpus_->reaches(1, both));
  std::vector<float> out(1);
  EXPECT_THAT(sum({a, b}, out, 1).message(), HasSubstr("can reach the memory of all others"));
  ASSERT_TRUE(sum({b, b}, out, 2).ok());
  const Bytes bytes = random_bytes(4);
  ASSERT_TRUE(gpus_->begin({bytes.data(), both, 4}, 3).ok());
  all_end_well(2);
  twin_.answer("peers lose", 0);
  EXPECT_EQ(out, std::vector<float>{20});
  for (const auto& [address, gpu] : allocated_) EXPECT_EQ(behind(address, 0, 4), bytes);
  have(2);
  ASSERT_TRUE(gpus_->start().ok());
  const Memory again = lend_floats({1}, 0), other = lend_floats({10}, 1);
  ASSERT_TRUE(sum({again, other}, out, 1).ok());
  all_end_well(1);
  EXPECT_EQ(out, std::vector<float>{11});
}

TEST_F(GpuOrder, MemoryOfTrainersIsOpenedForEachGpuThatItsDriverDoesNotLetReachIt) {
  for (const bool peers_reach : {false, true}) {
    have(3);
    ASSERT_TRUE(gpus_->start().ok());
    twin_.answer("imported", peers_reach ? 0 : 700);
    const int held = twin_.held();
    const uint64_t address = allocate(Bytes(4));
    const float one = 1;
    twin_.gpu.write(address, &one, 4);
    const Memory a = open(address, 0, 4), again = open(address, 2, 2);
    EXPECT_EQ(twin_.held(), held + (peers_reach ? 1 : 3));
    const Memory b = lend_floats({10}, 2);
    std::vector<std::vector<float>> outs(2, std::vector<float>(1));  // by one GPU and the other
    for (size_t i = 0; i < outs.size(); ++i) ASSERT_TRUE(sum({a, b}, outs[i], i).ok());
    all_end_well(outs.size());
    for (const auto& out : outs) EXPECT_EQ(out, std::vector<float>{11});
  }
  twin_.answer("imported", 700);
}

TEST_F(GpuOrder, MemoryOfTrainersThatOnlyItsOwnGpuReachesIsNobodyElses) {
  have(2);
  twin_.answer("cuIpcOpenMemHandle_v2 elsewhere", 217);
  const Memory a = lend_floats({1}, 0), b = lend_floats({10}, 1);
  twin_.answer("cuIpcOpenMemHandle_v2 elsewhere", 0);
  const std::vector<GpuRange> both = {{a.get(), 0}, {b.get(), 0}};
  EXPECT_FALSE(gpus_->reaches(0, both));
  EXPECT_TRUE(gpus_->reaches(0, std::vector<GpuRange>{both.front()}));
  std::vector<float> out(1);
  EXPECT_THAT(sum({a, b}, out, 1).message(), HasSubstr("can reach the memory of all others"));
  // No GPU has tried, and failed for good.
  ASSERT_TRUE(sum({b, b}, out, 2).ok());
  all_end_well(1);
  EXPECT_EQ(out, std::vector<float>{20});
  for (const uint64_t ticket : {3, 4}) {
    const Bytes bytes = random_bytes(4);
    ASSERT_TRUE(gpus_->begin({bytes.data(), both, 4}, ticket).ok());
    all_end_well(1);
    for (const auto& [address, gpu] : allocated_) EXPECT_EQ(behind(address, 0, 4), bytes);
  }
  // The daemon's own is found by all.
  const auto own = gpus_->allocate(1, 4);
  ASSERT_TRUE(own);
  EXPECT_TRUE(gpus_->reaches(0, std::vector<GpuRange>{{own->get(), 0}}));
}

TEST_F(GpuOrder, WhatIsSpreadEndsWithItsGpusFailure) {
  have(2);
  twin_.answer("cuDeviceCanAccessPeer", 1);
  const Memory a = lend_floats({1}, 0), b = lend_floats({10}, 1);
  twin_.answer("cuDeviceCanAccessPeer", 0);
  const std::vector<GpuRange> both = {{a.get(), 0}, {b.get(), 0}};
  const Bytes bytes = random_bytes(4);
  ASSERT_TRUE(gpus_->begin({bytes.data(), both, 4}, 0).ok());
  all_end_well(1);  // the streams of both are there now
  for (const int gpu : {0, 1}) twin_.hold_gpu(gpu, true);
  twin_.answer("later", 700);
  ASSERT_TRUE(gpus_->begin({bytes.data(), both, 4}, 1).ok());
  for (const int gpu : {0, 1}) twin_.hold_gpu(gpu, false);
  const auto ended = ends();
  twin_.answer("later", 0);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended.at(1).message(), HasSubstr("has failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
}

// Whatever comes behind something on that GPU in the memory of the host, too.
TEST_F(GpuOrder, AGpuThatIsLostKeepsNoOther) {
  have(2);
  const Memory a = lend_floats({1}, 0), b = lend_floats({10}, 1);
  std::vector<float> out(1);
  ASSERT_TRUE(sum({a, a}, out, 0).ok());
  ASSERT_TRUE(sum({b, b}, out, 1).ok());
  all_end_well(2);  // the streams of both are there now
  twin_.hold_gpu(0, true);
  ASSERT_TRUE(sum({a, a}, out, 2).ok());
  ASSERT_TRUE(sum({b, b}, out, 3).ok());
  let_gpus_work();
  EXPECT_EQ(out, std::vector<float>{20}) << "which is behind what GPU 0 has not done";
  twin_.lose(0, true);
  const auto ended = ends();
  ASSERT_EQ(ended.size(), 2u);
  for (const auto& [ticket, status] : ended) EXPECT_FALSE(status.ok()) << ticket;
  twin_.hold_gpu(0, false);
  twin_.lose(0, false);
}

TEST_F(GpuOrder, WhatIsSummedLaterIntoTheSameMemoryStays) {
  have(2);
  const Memory a = lend_floats({1, 1, 1, 1}, 0), b = lend_floats({20, 20, 20, 20}, 1);
  std::vector<float> out(4), other(4);
  ASSERT_TRUE(sum({a, a}, out, 1).ok());
  ASSERT_TRUE(sum({b, b}, out, 2).ok());
  all_end_well(2);
  EXPECT_EQ(out, std::vector<float>(4, 40));

  twin_.hold_gpu(0, true);
  ASSERT_TRUE(sum({a, a}, out, 3).ok());
  ASSERT_TRUE(sum({b, b}, other, 4).ok());  // elsewhere: it need not wait
  const std::vector<GpuRange> two = {{b.get(), 0}, {b.get(), 0}};
  ASSERT_TRUE(gpus_->begin({Dtype::kFloat32, ReduceOp::kSum, two, bytes_of(out) + 12, 1}, 5).ok());
  let_gpus_work();
  EXPECT_EQ(other, std::vector<float>(4, 40));
  out.back() = 0;
  let_gpus_work();
  EXPECT_EQ(out.back(), 0) << "the GPU that is free has not gone ahead";
  twin_.hold_gpu(0, false);
  all_end_well(3);
  EXPECT_EQ(out, (std::vector<float>{2, 2, 2, 40}));
}

TEST_F(GpuOrder, ASumIsThereBeforeItIsSpread) {
  have(2);
  const Memory a = lend_floats({1, 2}, 0), b = lend_floats({0, 0}, 1);
  std::vector<float> out(2);
  const std::vector<GpuRange> to = {{b.get(), 0}};
  ASSERT_TRUE(sum({a, a}, out, 1).ok());
  ASSERT_TRUE(gpus_->begin({bytes_of(out), to, 8}, 2).ok());
  all_end_well(2);
  twin_.hold_gpu(0, true);
  out = {0, 0};
  ASSERT_TRUE(sum({a, a}, out, 3).ok());
  ASSERT_TRUE(gpus_->begin({bytes_of(out), to, 8}, 4).ok());
  ASSERT_TRUE(sum({b, b}, out, 5).ok());
  let_gpus_work();
  twin_.hold_gpu(0, false);
  all_end_well(3);
  EXPECT_EQ(out, (std::vector<float>{4, 8}));
}

TEST_F(GpuOrder, WhatIsSpreadComesToAllOutputsAndNowhereElse) {
  have(2);
  const size_t bytes = (size_t{9} << 20) + 5;  // several pieces
  const Bytes source = random_bytes(bytes);
  const Bytes before = random_bytes(bytes + 20);
  std::vector<Memory> memory;
  std::vector<GpuRange> outputs;
  for (const int gpu : {0, 1, 1}) {
    memory.push_back(lend(before, 0, gpu));
    outputs.push_back({memory.back().get(), 3 + outputs.size()});
  }
  for (uint64_t ticket = 0; ticket < 2; ++ticket) {  // from either GPU
    ASSERT_TRUE(gpus_->begin({source.data(), outputs, bytes}, ticket).ok());
    all_end_well(1);
    size_t with_source = 0;
    for (const auto& [address, gpu] : allocated_) {
      for (const size_t offset : {3, 4, 5}) {
        Bytes expected = before;
        std::copy(source.begin(), source.end(), expected.begin() + static_cast<ptrdiff_t>(offset));
        with_source += behind(address, 0, bytes + 20) == expected ? 1 : 0;
      }
      std::memcpy(twin_.behind(address), before.data(), before.size());
    }
    EXPECT_EQ(with_source, outputs.size());
  }
}

}  // namespace
}  // namespace gradring::transport
