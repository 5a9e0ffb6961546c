// Inputs and results that are multiplied by factors, where GPUs sum.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/daemon/data_gpu.h"

namespace gradring::daemon {
namespace {

using testing::Contains;
using testing::Each;

using DataGpuScale = DataGpu;
using DataGpuScaleAlone = DataGpuAlone;

TEST_F(DataGpuScaleAlone, WhatIsScaledIsScaledThere) {
  begin();
  op_ = ReduceOp::kAverage;
  prescale_ = {0.5, 3};
  postscale_ = -4;
  submit(0, x_);
  submit(1, y_);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(x_.gpu, numbers(kFloats, -13)) << "(1 / 2 + 2 * 3) / 2 * -4";
  EXPECT_EQ(y_.gpu, x_.gpu);
  EXPECT_THAT(x_.host, Each(kUntouched));
  EXPECT_THAT(gpus_->allreduces(), Each(2));
}

// The ring has the sum of what was multiplied, and multiplies it no more.
TEST_F(DataGpuScale, EachRankIsMultipliedOnceWhereTheyGoAsOne) {
  prescale_ = {0.5, 3};
  submit_all();
  for (DataNode* node : {&a_, &a_, &b_}) EXPECT_EQ(end_on(*node), Verdict::kOk);
  EXPECT_THAT(gpus_->sums(), Each(2));
  EXPECT_EQ(z_, numbers(kFloats, 9.5)) << "1 / 2 + 2 * 3 + 3";
  EXPECT_EQ(x_.gpu, z_);
  EXPECT_EQ(y_.gpu, z_);
}

TEST_F(DataGpuScale, AndOnceWhereEachIsCopiedForItself) {
  prescale_ = {0.5, 3};
  postscale_ = 2;
  gpus_->cannot_sum_together();
  submit(0, x_);
  submit(1, y_);
  core::Submission elsewhere = submission(0, 0);
  elsewhere.rank = 2;
  elsewhere.prescale = 1;
  auto* const bytes = reinterpret_cast<std::byte*>(z_.data());
  b_.post(Submit{1002, view_.incarnation, elsewhere, bytes, bytes});
  for (DataNode* node : {&a_, &a_, &b_}) EXPECT_EQ(end_on(*node), Verdict::kOk);
  EXPECT_EQ(z_, numbers(kFloats, 19));
  EXPECT_EQ(x_.gpu, z_);
}

// It comes to the host as it is, and has the bits of the host: nothing is rounded on its way there.
TEST_F(DataGpuScale, WhatOneRankHasAloneIsMultipliedWhereItIsFolded) {
  view_ = view_of({{"a", 1}, {"b", 1}}, 5);
  a_.install(view_);
  b_.install(view_);
  prescale_[0] = 1.25;
  // Of bfloat16: 1 and 1.0078125.
  const auto halves = [](uint16_t half) {
    std::vector<float> pairs(kFloats);
    const uint32_t pair = half * 0x10001u;
    for (float& two : pairs) std::memcpy(&two, &pair, sizeof pair);
    return pairs;
  };
  x_.gpu = halves(0x3f81);
  z_ = halves(0x3f80);
  core::Submission one = submission(0, 0);
  one.signature.dtype = Dtype::kBfloat16;
  one.signature.count = 2 * kFloats;
  auto* const host = reinterpret_cast<std::byte*>(x_.host.data());
  Submit here{1000, view_.incarnation, one, host, host};
  here.part_bytes = kPartBytes;
  here.gpu_input = here.gpu_output = {&x_.memory, 0};
  a_.post(here);
  one.rank = 1;
  one.prescale = 1;
  auto* const bytes = reinterpret_cast<std::byte*>(z_.data());
  b_.post(Submit{1001, view_.incarnation, one, bytes, bytes});
  for (DataNode* node : {&a_, &b_}) EXPECT_EQ(end_on(*node), Verdict::kOk);
  EXPECT_THAT(gpus_->sums(), Each(1));
  // 1.259765625 + 1 is nearest to 2.265625 (0x4011). Rounded to 1.2578125 first, as slices are that
  // end at the other node, it is a tie, and becomes 2.25.
  EXPECT_THAT(x_.gpu, Contains(halves(0x4011)[0]));
  EXPECT_EQ(x_.gpu, z_);
}

}  // namespace
}  // namespace gradring::daemon
