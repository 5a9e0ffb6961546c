#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "transport/cuda/device_fold.h"

namespace gradring::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What is refused before any GPU is asked for.
Status refused(Dtype dtype, ReduceOp op, size_t num_inputs, uint32_t divisor, size_t offset = 0) {
  alignas(16) static std::array<std::byte, 64> memory{};
  const std::vector<const void*> inputs(num_inputs, memory.data() + offset);
  const Status status = device_fold(dtype, op, inputs, memory.data(), 4, divisor, nullptr);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  return status;
}

TEST(DeviceFoldRefusals, WhatTheReducerRefuses) {
  EXPECT_THAT(refused(Dtype::kInt32, ReduceOp::kAverage, 2, 0).message(),
              HasSubstr("reduce with sum"));
  EXPECT_THAT(refused(static_cast<Dtype>(77), ReduceOp::kSum, 2, 0).message(), HasSubstr("77"));
  EXPECT_THAT(refused(Dtype::kFloat32, ReduceOp::kNone, 2, 0).message(), HasSubstr("number 0"));
  EXPECT_THAT(refused(Dtype::kInt32, ReduceOp::kSum, 2, 3).message(), HasSubstr("divide int32"));
  int32_t value = 1;
  const std::array<const void*, 1> inputs = {&value};
  const Status scaled =
      device_fold(Dtype::kInt32, ReduceOp::kSum, inputs, &value, 1, 0, nullptr, {{}, 0.5});
  EXPECT_THAT(scaled.message(), HasSubstr("multiply int32"));
}

TEST(DeviceFoldRefusals, NoInputAndTooMany) {
  EXPECT_THAT(refused(Dtype::kFloat32, ReduceOp::kSum, 0, 0).message(), HasSubstr("no input"));
  EXPECT_THAT(refused(Dtype::kFloat32, ReduceOp::kSum, 65, 0).message(),
              AllOf(HasSubstr("65 inputs"), HasSubstr("the most is 64")));
}

TEST(DeviceFoldRefusals, PointersThatWouldFailOnTheGpu) {
  EXPECT_THAT(refused(Dtype::kFloat32, ReduceOp::kSum, 2, 0, 2).message(),
              HasSubstr("an input that is null or not aligned to 4 bytes"));
  const float value = 1;
  const std::array<const void*, 1> inputs = {&value};
  const Status status =
      device_fold(Dtype::kFloat32, ReduceOp::kSum, inputs, nullptr, 1, 0, nullptr);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("an output that is null"));
}

TEST(DeviceFoldRefusals, NoElementsNeedNoGpu) {
  const std::array<const void*, 1> inputs = {nullptr};
  EXPECT_TRUE(device_fold(Dtype::kFloat32, ReduceOp::kSum, inputs, nullptr, 0, 0, nullptr).ok());
}

TEST(DeviceFoldRefusals, WithoutAGpuItSaysSo) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) GTEST_SKIP() << "there is a GPU";
  float value = 1;
  const std::array<const void*, 1> inputs = {&value};
  const Status status = device_fold(Dtype::kFloat32, ReduceOp::kSum, inputs, &value, 1, 0, nullptr);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("no GPU"), HasSubstr("fold on the host")));
}

}  // namespace
}  // namespace gradring::transport
