// What the reducer says about NaN and infinity, for values and positions that are written out here.
// That it agrees with the reference everywhere is part of reducer_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/transport/fold_kinds.h"
#include "tests/transport/reducer_targets.h"
#include "transport/reducer.h"

namespace gradring::transport {
namespace {

// The bits of some values of a float type.
struct Values {
  Dtype dtype;
  uint64_t one, largest, infinity, nan, negative_nan;
};
constexpr std::array<Values, 4> kFloats = {{
    {Dtype::kFloat32, 0x3f800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0xffc00000},
    {Dtype::kFloat64, 0x3ff0000000000000, 0x7fefffffffffffff, 0x7ff0000000000000,
     0x7ff0000000000001, 0xfff8000000000000},
    {Dtype::kFloat16, 0x3c00, 0x7bff, 0x7c00, 0x7c01, 0xfe00},
    {Dtype::kBfloat16, 0x3f80, 0x7f7f, 0x7f80, 0x7f81, 0xffc0},
}};
constexpr std::array<Dtype, 5> kIntegers = {Dtype::kInt8, Dtype::kInt16, Dtype::kInt32,
                                            Dtype::kInt64, Dtype::kUint8};

class Elements {
 public:
  Elements(Dtype dtype, size_t count, uint64_t value) : element_(size_of(dtype)) {
    bytes_.resize(element_ * count);
    for (size_t i = 0; i < count; ++i) set(i, value);
  }
  void set(size_t i, uint64_t value) { std::memcpy(at(i), &value, element_); }
  std::byte* at(size_t i) { return bytes_.data() + i * element_; }
  std::byte* data() { return bytes_.data(); }

 private:
  size_t element_;
  std::vector<std::byte> bytes_;
};

// Blocks of four vectors and a rest, whatever the instruction set.
constexpr size_t kCount = 357;
constexpr std::array<size_t, 8> kPlaces = {0, 1, 31, 64, 200, 351, 355, 356};

FoldFindings sum(Dtype dtype, Elements& a, Elements& b, Elements& out, uint32_t divisor = 0) {
  const auto op = divisor == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
  return fold(dtype, op, std::array<const void*, 2>{a.data(), b.data()}, out.data(), kCount,
              divisor);
}

class Nonfinite : public reducer_targets::OnEachTarget {};
GRADRING_ON_EACH_TARGET(Nonfinite);

TEST_P(Nonfinite, OneInAnyInputAtAnyPlaceIsFoundByEveryOperation) {
  for (const Values& v : kFloats) {
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      for (const size_t place : kPlaces) {
        for (size_t guilty = 0; guilty < 3; ++guilty) {
          std::vector<Elements> inputs(3, Elements(v.dtype, kCount, v.one));
          inputs[guilty].set(place, v.nan);
          const auto findings =
              fold(v.dtype, op,
                   std::array<const void*, 3>{inputs[0].data(), inputs[1].data(), inputs[2].data()},
                   inputs[0].data(), kCount, op == ReduceOp::kAverage ? 3 : 0);
          ASSERT_EQ(findings, (FoldFindings{1, 0, 0}))
              << name_of(op) << " of " << name_of(v.dtype) << " at " << place;
        }
      }
    }
  }
}

TEST_P(Nonfinite, ASumThatOutgrowsItsTypeIsAnOverflowAtItsFirstElement) {
  for (const Values& v : kFloats) {
    for (const size_t place : kPlaces) {
      const Elements ones(v.dtype, kCount, v.one);
      Elements a = ones, b(v.dtype, kCount, v.largest), out = ones;
      a.set(place, v.largest);
      a.set(kCount - 1, v.largest);
      const size_t many = place == kCount - 1 ? 1 : 2;
      // Into memory of its own, and over the value that arrived: that must be asked before it goes.
      ASSERT_EQ(sum(v.dtype, a, b, out), (FoldFindings{many, many, place})) << name_of(v.dtype);
      ASSERT_EQ(sum(v.dtype, a, b, a), (FoldFindings{many, many, place})) << name_of(v.dtype);
      // The sum is infinite now. What arrives so did not overflow here.
      b = ones;
      ASSERT_EQ(sum(v.dtype, a, b, a), (FoldFindings{many, 0, 0})) << name_of(v.dtype);
    }
  }
}

TEST_P(Nonfinite, ValuesThatCameInfiniteAndSumsThatBecomeSoAreToldApart) {
  for (const Values& v : kFloats) {
    Elements a(v.dtype, kCount, v.largest), b(v.dtype, kCount, v.one);
    a.set(10, v.infinity);
    b.set(12, v.negative_nan);
    b.set(11, v.largest);
    b.set(300, v.largest);
    EXPECT_EQ(sum(v.dtype, a, b, a), (FoldFindings{4, 2, 11})) << name_of(v.dtype);
  }
}

TEST_P(Nonfinite, HalfTypesOverflowWhereTheyAreRounded) {
  // 65504 + 16 is the tie that rounds to infinity; a little less does not.
  Elements a(Dtype::kFloat16, kCount, 0x7bff), b(Dtype::kFloat16, kCount, 0x4bff);
  Elements out = a;
  EXPECT_EQ(sum(Dtype::kFloat16, a, b, out), FoldFindings());
  b.set(7, 0x4c00);
  EXPECT_EQ(sum(Dtype::kFloat16, a, b, out), (FoldFindings{1, 1, 7}));
  // An average that only passes through twice the largest is not lost.
  EXPECT_EQ(sum(Dtype::kFloat16, a, a, out, 2), FoldFindings());
  EXPECT_EQ(sum(Dtype::kFloat16, a, a, out), (FoldFindings{kCount, kCount, 0}));
  // The largest bfloat16, and half of what its last bit is worth: 2^119.
  Elements c(Dtype::kBfloat16, kCount, 0x7f7f), d(Dtype::kBfloat16, kCount, 0x7afe);
  EXPECT_EQ(sum(Dtype::kBfloat16, c, d, out), FoldFindings());
  d.set(355, 0x7b00);
  EXPECT_EQ(sum(Dtype::kBfloat16, c, d, out), (FoldFindings{1, 1, 355}));
}

TEST_P(Nonfinite, IntegersAreAlwaysFinite) {
  for (const Dtype dtype : kIntegers) {
    Elements a(dtype, kCount, ~uint64_t{0}), b = a;
    EXPECT_EQ(sum(dtype, a, b, a), FoldFindings()) << name_of(dtype);
    size_t first = 0;
    EXPECT_EQ(count_nonfinite(dtype, a.data(), kCount, &first), 0u);
    EXPECT_EQ(first, kCount);
    EXPECT_FALSE(is_nan(dtype, a.data()));
  }
}

TEST_P(Nonfinite, AFoldWhileFiniteWritesUpToThereAndNothingBehind) {
  for (const Values& v : kFloats) {
    for (const size_t place : kPlaces) {
      Elements a(v.dtype, kCount, v.one), b(v.dtype, kCount, v.one), sum_there(v.dtype, kCount, 0);
      const std::array<const void*, 2> inputs{a.data(), b.data()};
      sum(v.dtype, a, b, sum_there);
      b.set(place, v.infinity);
      Elements before = a;
      const size_t folded = fold_while_finite(v.dtype, ReduceOp::kSum, inputs, a.data(), kCount, 0);
      ASSERT_LE(folded, place);
      ASSERT_GE(folded + 4 * 64 / size_of(v.dtype), place) << "four vectors of 512 bits at most";
      const size_t bytes = folded * size_of(v.dtype);
      EXPECT_EQ(std::memcmp(a.data(), sum_there.data(), bytes), 0);
      EXPECT_EQ(std::memcmp(a.at(folded), before.at(folded), kCount * size_of(v.dtype) - bytes), 0);
    }
    Elements a(v.dtype, kCount, v.one);
    const std::array<const void*, 2> inputs{a.data(), a.data()};
    EXPECT_EQ(fold_while_finite(v.dtype, ReduceOp::kSum, inputs, a.data(), kCount, 0), kCount);
  }
  Elements a(Dtype::kInt32, kCount, 0x7f800000);  // no number that could be infinite
  const std::array<const void*, 2> inputs{a.data(), a.data()};
  EXPECT_EQ(fold_while_finite(Dtype::kInt32, ReduceOp::kSum, inputs, a.data(), kCount, 0), kCount);
}

TEST_P(Nonfinite, AScanCountsThemAndFindsTheFirst) {
  for (const Values& v : kFloats) {
    for (size_t count = 0; count <= 130; ++count) {
      Elements a(v.dtype, count, v.largest);
      size_t first = 7;
      ASSERT_EQ(count_nonfinite(v.dtype, a.data(), count, &first), 0u) << count;
      ASSERT_EQ(first, count);
      for (size_t i = 0; i < count; ++i) {
        a.set(count - 1 - i, i % 2 == 0 ? v.infinity : v.negative_nan);
        ASSERT_EQ(count_nonfinite(v.dtype, a.data(), count, &first), i + 1) << count;
        ASSERT_EQ(first, count - 1 - i);
      }
    }
  }
}

TEST_P(Nonfinite, AScanKnowsEveryHalf) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  size_t first = 0;
  EXPECT_EQ(count_nonfinite(Dtype::kFloat16, all.data(), all.size(), &first), 2u << 10);
  EXPECT_EQ(first, 0x7c00u);
  EXPECT_EQ(count_nonfinite(Dtype::kBfloat16, all.data(), all.size(), &first), 2u << 7);
  EXPECT_EQ(first, 0x7f80u);
}

TEST(NonfiniteElement, NanIsToldFromInfinity) {
  for (const Values& v : kFloats) {
    const uint64_t minus = uint64_t{1} << (8 * size_of(v.dtype) - 1);
    for (const uint64_t nan : {v.nan, v.nan | minus, v.negative_nan}) {
      EXPECT_TRUE(is_nan(v.dtype, &nan)) << name_of(v.dtype);
    }
    for (const uint64_t other : {v.infinity, v.infinity | minus, v.largest, v.one, minus}) {
      EXPECT_FALSE(is_nan(v.dtype, &other)) << name_of(v.dtype);
    }
  }
}

}  // namespace
}  // namespace gradring::transport
