#include "proto/reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <string>

namespace gradring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kIntegers = {Dtype::kInt8,  Dtype::kInt16,  Dtype::kInt32,  Dtype::kInt64,
                            Dtype::kUint8, Dtype::kUint16, Dtype::kUint32, Dtype::kUint64};
constexpr auto kFloats = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kFloat16, Dtype::kBfloat16};
constexpr auto kBitwise = {ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor};
constexpr auto kNumeric = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

TEST(Reduction, NumbersAndBoolsHaveWhatMeansSomething) {
  for (const ReduceOp op : kNumeric) {
    for (const Dtype dtype : kIntegers) EXPECT_TRUE(can_reduce(dtype, op).ok());
    for (const Dtype dtype : kFloats) EXPECT_TRUE(can_reduce(dtype, op).ok());
    EXPECT_TRUE(can_reduce(Dtype::kBool, op).ok());
  }
  for (const ReduceOp op : kBitwise) {
    for (const Dtype dtype : kIntegers) EXPECT_TRUE(can_reduce(dtype, op).ok());
    EXPECT_TRUE(can_reduce(Dtype::kBool, op).ok());
  }
  for (const Dtype dtype : kFloats) EXPECT_TRUE(can_reduce(dtype, ReduceOp::kAverage).ok());
}

TEST(Reduction, TheAverageOfWhatHasNoFractionsIsRefusedInWords) {
  for (const Dtype dtype : kIntegers) {
    const Status status = can_reduce(dtype, ReduceOp::kAverage);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(std::string(name_of(dtype))), HasSubstr("reduce with sum")));
  }
  EXPECT_THAT(can_reduce(Dtype::kBool, ReduceOp::kAverage).message(), HasSubstr("average of bool"));
}

TEST(Reduction, TheBitsOfNumbersWithFractionsAreNotMixed) {
  for (const Dtype dtype : kFloats) {
    for (const ReduceOp op : kBitwise) {
      EXPECT_THAT(can_reduce(dtype, op).message(), HasSubstr("as integers"));
    }
  }
}

TEST(Reduction, Float8IsMovedOnly) {
  for (const Dtype dtype : {Dtype::kFloat8E4m3, Dtype::kFloat8E5m2}) {
    for (uint8_t op = 1; op <= kReduceOpLast; ++op) {
      EXPECT_THAT(can_reduce(dtype, static_cast<ReduceOp>(op)).message(),
                  AllOf(HasSubstr("float8_e"), HasSubstr("in a wider type")));
    }
  }
}

TEST(Reduction, ValuesOutsideTheEnumerationsAreRefused) {
  EXPECT_THAT(can_reduce(static_cast<Dtype>(77), ReduceOp::kSum).message(), HasSubstr("77"));
  EXPECT_THAT(can_reduce(static_cast<Dtype>(0), ReduceOp::kSum).message(),
              HasSubstr("type number 0"));
  EXPECT_THAT(can_reduce(Dtype::kFloat32, ReduceOp::kNone).message(),
              HasSubstr("reduction number 0"));
  EXPECT_THAT(can_reduce(Dtype::kFloat32, static_cast<ReduceOp>(9)).message(), HasSubstr("9"));
}

TEST(Reduction, FactorsAreOfWhatReducesNumbersWithFractions) {
  for (const Dtype dtype : kFloats) {
    EXPECT_TRUE(can_scale(Collective::kReduceScatter, dtype, -1.0 / 3).ok());
    EXPECT_FALSE(can_scale(Collective::kBroadcast, dtype, 2).ok());
    EXPECT_TRUE(can_scale(Collective::kBroadcast, dtype, 1).ok());
    for (const double factor : {0.0, std::nan(""), HUGE_VAL, 1e-310}) {
      EXPECT_FALSE(can_scale(Collective::kAllreduce, dtype, factor).ok()) << factor;
    }
  }
  EXPECT_TRUE(can_scale(Collective::kAllreduce, Dtype::kFloat64, 1e300).ok());
  EXPECT_THAT(can_scale(Collective::kAllreduce, Dtype::kFloat16, -1e300).message(),
              AllOf(HasSubstr("-1e+300"), HasSubstr("as float32"), HasSubstr("3.4e+38")));
  EXPECT_THAT(can_scale(Collective::kAllreduce, Dtype::kInt32, 2).message(),
              HasSubstr("allreduce of int32 cannot be scaled"));
  EXPECT_TRUE(can_scale(Collective::kAllreduce, Dtype::kInt32, 1).ok());
}

TEST(Reduction, OnlySumsOfFloat32TravelPacked) {
  EXPECT_TRUE(may_pack(Collective::kAllreduce, Dtype::kFloat32));
  EXPECT_FALSE(may_pack(Collective::kAllreduce, Dtype::kFloat16));
  EXPECT_FALSE(may_pack(Collective::kAllgather, Dtype::kFloat32));
}

}  // namespace
}  // namespace gradring
