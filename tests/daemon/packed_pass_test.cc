// Sums whose values travel packed, and what their rounding takes away.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "daemon/data/error_feedback.h"
#include "daemon/data/pass.h"
#include "transport/wire_format.h"

namespace gradring::daemon {
namespace {

constexpr WireType kAll[] = {WireType::kFloat16, WireType::kBfloat16, WireType::kInt8};
constexpr size_t kPackedCounts[] = {1, 5, 255, 4096, 4097, 100003, 400000};

std::vector<float> signed_values(size_t count, uint32_t seed) {
  std::vector<float> list(count);
  for (size_t i = 0; i < count; ++i) {
    list[i] = static_cast<float>((i * 2654435761u + seed * 40503u) % 1000) / 7 - 60;
  }
  return list;
}

std::vector<std::byte> packed(WireType wire, const std::vector<float>& from) {
  std::vector<std::byte> to(packed_bytes(wire, from.size()));
  transport::pack(wire, from.data(), from.size(), to.data());
  return to;
}

std::vector<float> unpacked(WireType wire, const std::vector<std::byte>& from, size_t count) {
  std::vector<float> to(count);
  transport::unpack(wire, from.data(), count, to.data());
  return to;
}

// A pass over the contributions of a node's ranks, in place, onto what arrived.
struct Onto {
  Onto(WireType type, size_t ranks, size_t elements, bool arrives) : wire(type), count(elements) {
    for (uint32_t r = 0; r < ranks; ++r) memory.push_back(signed_values(count, r));
    staging = packed(wire, signed_values(count, 77));
    std::vector<const void*> all;
    for (const auto& one : memory) all.push_back(one.data());
    const std::vector<float> arrived = unpacked(wire, staging, count);
    if (arrives) all.push_back(arrived.data());
    sum.resize(count);
    transport::fold(Dtype::kFloat32, ReduceOp::kSum, all, sum.data(), count, 3);
    pass.wire = wire;
    pass.divisor = 3;
    pass.bytes = count * sizeof(float);
    pass.arrived = arrives ? staging.data() : nullptr;
    pass.to = staging.data();
    for (auto& one : memory) {
      inputs.push_back(one.data());
      outputs.push_back(reinterpret_cast<std::byte*>(one.data()));
    }
    pass.inputs = inputs;
  }
  WireType wire;
  size_t count;
  std::vector<std::vector<float>> memory;
  std::vector<std::byte> staging;
  std::vector<float> sum;  // that has to come out, before it is rounded
  std::vector<const void*> inputs;
  std::vector<std::byte*> outputs;
  Pass pass;
};

void expect_no_findings(uint64_t, uint64_t, const transport::FoldFindings&) {
  ADD_FAILURE() << "all is finite";
}

TEST(PackedPass, ACopyIsUnpackedForAllOutputs) {
  for (const uint32_t helpers : {0u, 2u}) {
    PassRunner runner(helpers);
    for (const WireType wire : kAll) {
      for (const size_t count : kPackedCounts) {
        const std::vector<std::byte> staging = packed(wire, signed_values(count, 5));
        const void* const arrived = staging.data();
        std::vector<std::vector<float>> memory(3, std::vector<float>(count));
        std::vector<std::byte*> outputs;
        for (auto& one : memory) outputs.push_back(reinterpret_cast<std::byte*>(one.data()));
        Pass copy;
        copy.op = ReduceOp::kNone;
        copy.inputs = {&arrived, 1};
        copy.outputs = outputs;
        copy.bytes = count * sizeof(float);
        copy.wire = wire;
        runner.run(copy, expect_no_findings);
        for (const auto& one : memory) ASSERT_EQ(one, unpacked(wire, staging, count)) << count;
      }
    }
  }
}

TEST(PackedPass, AddsInFloat32AndRoundsOnceForTheWireAndForTheOutputsAlike) {
  for (const uint32_t helpers : {0u, 2u}) {
    PassRunner runner(helpers);
    for (const WireType wire : kAll) {
      for (const size_t count : kPackedCounts) {
        for (const bool arrives : {false, true}) {
          SCOPED_TRACE(testing::Message() << name_of(wire) << " " << count << arrives);
          Onto onto(wire, 3, count, arrives);
          onto.pass.outputs = onto.outputs;
          runner.run(onto.pass, expect_no_findings);
          ASSERT_EQ(onto.staging, packed(wire, onto.sum));
          const std::vector<float> rounded = unpacked(wire, onto.staging, count);
          for (const auto& output : onto.memory) ASSERT_EQ(output, rounded);
        }
      }
    }
  }
}

TEST(PackedPass, OutputsOfAValueThatGoesNoFurtherAreRoundedAsWell) {
  PassRunner runner(1);
  for (const WireType wire : kAll) {
    Onto onto(wire, 2, 100003, true);
    onto.pass.to = nullptr;
    onto.pass.outputs = onto.outputs;
    runner.run(onto.pass, expect_no_findings);
    const std::vector<float> rounded = unpacked(wire, packed(wire, onto.sum), onto.count);
    for (const auto& output : onto.memory) ASSERT_EQ(output, rounded);
  }
}

TEST(PackedPass, WhatGoesOnWithoutOutputsLeavesTheInputsAlone) {
  PassRunner runner(1);
  Onto onto(WireType::kInt8, 2, 100003, true);
  const auto before = onto.memory;
  runner.run(onto.pass, expect_no_findings);
  EXPECT_EQ(onto.staging, packed(WireType::kInt8, onto.sum));
  EXPECT_EQ(onto.memory, before);
}

TEST(PackedPass, WhatBecomesInfiniteByRoundingIsToldBeforeItIsWritten) {
  PassRunner runner(0);
  for (const bool stays : {true, false}) {
    Onto onto(WireType::kFloat16, 1, 100000, false);
    onto.pass.divisor = 0;
    onto.memory[0][50000] = 70000;
    if (!stays) onto.pass.to = nullptr;
    onto.pass.outputs = onto.outputs;
    uint64_t told = 0;
    runner.run(onto.pass, [&](uint64_t first, uint64_t length, const auto& found) {
      EXPECT_EQ(found.overflows, 1u);
      EXPECT_EQ(first / sizeof(float) + found.first_overflow, 50000u);
      EXPECT_LE(first + length, 100000 * sizeof(float));
      EXPECT_EQ(onto.memory[0][50000], 70000) << "untouched as yet";
      ++told;
    });
    EXPECT_EQ(told, 1u);
    EXPECT_EQ(onto.memory[0][50000], std::numeric_limits<float>::infinity());
  }
}

TEST(PackedPass, WhatRoundingTakesAwayComesTheNextTime) {
  PassRunner runner(1);
  constexpr size_t kCount = 10000;
  const std::vector<float> input = signed_values(kCount, 5);
  std::vector<float> residue(kCount, 0), total(kCount, 0), without(kCount, 0);
  constexpr int kSteps = 50;
  for (int step = 0; step < kSteps; ++step) {
    for (float* lost : {residue.data(), static_cast<float*>(nullptr)}) {
      std::vector<float> memory = input;
      std::vector<std::byte> staging(packed_bytes(WireType::kInt8, kCount));
      const std::vector<const void*> inputs = {memory.data()};
      const std::vector<std::byte*> outputs = {reinterpret_cast<std::byte*>(memory.data())};
      Pass pass;
      pass.wire = WireType::kInt8;
      pass.bytes = kCount * sizeof(float);
      pass.inputs = inputs;
      pass.outputs = outputs;
      pass.to = staging.data();
      pass.residue = lost;
      runner.run(pass, expect_no_findings);
      ASSERT_EQ(memory, unpacked(WireType::kInt8, staging, kCount));
      auto& sum = lost != nullptr ? total : without;
      for (size_t i = 0; i < kCount; ++i) sum[i] += memory[i];
    }
  }
  // With it, all steps together are off by the last rounding alone; without, by as much each time.
  double worst = 0, worst_without = 0;
  for (size_t i = 0; i < kCount; ++i) {
    worst = std::max<double>(worst, std::abs(total[i] - kSteps * input[i]));
    worst_without = std::max<double>(worst_without, std::abs(without[i] - kSteps * input[i]));
  }
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst_without, 5.0);
}

TEST(PackedPass, ANanDoesNotStayInWhatIsCarriedOver) {
  PassRunner runner(0);
  std::vector<float> memory = signed_values(1000, 1), residue(1000, 0);
  memory[3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte> staging(packed_bytes(WireType::kInt8, 1000));
  const std::vector<const void*> inputs = {memory.data()};
  Pass pass;
  pass.wire = WireType::kInt8;
  pass.bytes = 4000;
  pass.inputs = inputs;
  pass.to = staging.data();
  pass.residue = residue.data();
  runner.run(pass, [](uint64_t, uint64_t, const auto&) {});
  for (const float lost : residue) EXPECT_TRUE(std::isfinite(lost));
}

// ---- whose it is ----

core::Op op_of(uint64_t space, uint64_t count, ReduceOp reduce = ReduceOp::kSum) {
  core::Op op;
  op.key = {space, 0};
  op.signature = Signature{Collective::kAllreduce, Dtype::kFloat32, reduce, 0, count};
  return op;
}

TEST(ErrorFeedback, IsKeptByNameUntilTheSizeOrTheViewIsAnother) {
  ErrorFeedback feedback(1 << 20);
  float* const a = feedback.of(op_of(1, 100));
  ASSERT_NE(a, nullptr);
  a[7] = 3;
  EXPECT_NE(feedback.of(op_of(2, 100)), a);
  EXPECT_EQ(feedback.of(op_of(1, 100))[7], 3.f);
  EXPECT_EQ(feedback.of(op_of(1, 101))[7], 0.f);
  EXPECT_EQ(feedback.bytes(), 201 * sizeof(float));
  feedback.of(op_of(2, 100))[7] = 4;
  feedback.clear();
  EXPECT_EQ(feedback.of(op_of(2, 100))[7], 0.f);
}

TEST(ErrorFeedback, IsForNamedSumsAndAverages) {
  ErrorFeedback feedback(1 << 20);
  EXPECT_EQ(feedback.of(op_of(0, 100)), nullptr);
  EXPECT_EQ(feedback.of(op_of(1, 100, ReduceOp::kMax)), nullptr);
  EXPECT_NE(feedback.of(op_of(1, 100, ReduceOp::kAverage)), nullptr);
  core::Op blocks = op_of(2, 100);
  blocks.signature->collective = Collective::kReduceScatter;
  blocks.signature->ranks = 3;
  ASSERT_NE(feedback.of(blocks), nullptr);
  EXPECT_EQ(feedback.bytes(), 400 * sizeof(float)) << "of the whole input";
}

TEST(ErrorFeedback, EndsAtItsLimit) {
  ErrorFeedback feedback(1000 * sizeof(float));
  EXPECT_NE(feedback.of(op_of(1, 600)), nullptr);
  EXPECT_EQ(feedback.of(op_of(2, 401)), nullptr);
  EXPECT_NE(feedback.of(op_of(3, 400)), nullptr);
  EXPECT_EQ(feedback.of(op_of(2, 401)), nullptr);
  EXPECT_EQ(ErrorFeedback(0).of(op_of(1, 1)), nullptr);
}

}  // namespace
}  // namespace gradring::daemon
