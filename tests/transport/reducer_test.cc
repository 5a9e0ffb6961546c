#include "transport/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/transport/fold_kinds.h"
#include "tests/transport/fold_reference.h"
#include "tests/transport/reducer_targets.h"

namespace gradring::transport {
namespace {

using fold_kinds::all_kinds;
using fold_kinds::describe;
using fold_kinds::fill;
using fold_kinds::Kind;

// An array of elements that begins where only the element's own alignment is kept, and whose
// neighbours must stay what they are.
class Array {
 public:
  Array(std::mt19937_64& random, size_t element, size_t count)
      : offset_(64 + element * (random() % 64)),
        bytes_(element * count),
        memory_(bytes_ + 1024, std::byte{0xa5}) {
    fill(random, element, data(), count);
    before_ = memory_;
  }
  std::byte* data() { return memory_.data() + offset_; }
  fold_reference::Bytes contents() { return {data(), data() + bytes_}; }
  bool unchanged() const { return memory_ == before_; }
  bool neighbours_unchanged() {
    std::memcpy(before_.data() + offset_, data(), bytes_);
    return unchanged();
  }

 private:
  size_t offset_;
  size_t bytes_;
  fold_reference::Bytes memory_;
  fold_reference::Bytes before_;
};

constexpr size_t kNoAlias = SIZE_MAX;

// What the fold must find in a result that is known.
FoldFindings findings_in(Dtype dtype, const fold_reference::Bytes& result,
                         const std::vector<const std::byte*>& inputs, size_t count) {
  FoldFindings findings;
  for (size_t i = 0; i < count; ++i) {
    if (fold_reference::is_finite(dtype, result.data(), i)) continue;
    ++findings.nonfinite;
    if (!std::all_of(inputs.begin(), inputs.end(), [&](const std::byte* input) {
          return fold_reference::is_finite(dtype, input, i);
        })) {
      continue;
    }
    if (findings.overflows++ == 0) findings.first_overflow = i;
  }
  return findings;
}

// Folds `num_inputs` arrays of `count` elements into a new one, or into input number `alias`, and
// compares with the reference.
void check(std::mt19937_64& random, const Kind& kind, size_t num_inputs, size_t count,
           size_t alias = kNoAlias, const Scale& scale = {}) {
  const size_t element = size_of(kind.dtype);
  std::vector<Array> arrays;
  for (size_t r = 0; r <= num_inputs; ++r) arrays.emplace_back(random, element, count);
  std::vector<const void*> inputs;
  std::vector<const std::byte*> reference_inputs;
  for (size_t r = 0; r < num_inputs; ++r) {
    inputs.push_back(arrays[r].data());
    reference_inputs.push_back(arrays[r].data());
  }
  Array& out = arrays[alias == kNoAlias ? num_inputs : alias];
  const uint32_t divisor = kind.op == ReduceOp::kAverage ? static_cast<uint32_t>(random() % 9) : 0;

  const auto expected =
      fold_reference::fold(kind.dtype, kind.op, reference_inputs, count, divisor, scale);
  const auto findings = findings_in(kind.dtype, expected, reference_inputs, count);
  EXPECT_EQ(fold(kind.dtype, kind.op, inputs, out.data(), count, divisor, scale), findings)
      << describe(kind) << ", " << num_inputs << " inputs, " << count << " elements";

  const auto got = out.contents();
  if (got != expected) {
    const auto at = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
    ADD_FAILURE() << describe(kind) << ", " << num_inputs << " inputs, " << count
                  << " elements, divisor " << divisor << ": element "
                  << static_cast<size_t>(at) / element << " differs";
  }
  EXPECT_TRUE(out.neighbours_unchanged()) << describe(kind) << ", " << count << " elements";
  for (Array& array : arrays) {
    EXPECT_TRUE(&array == &out || array.unchanged()) << describe(kind) << ": an input changed";
  }
}

class Reducer : public reducer_targets::OnEachTarget {
 protected:
  std::mt19937_64 random_{20240611};
  const std::vector<Kind> kinds_ = all_kinds();
};

GRADRING_ON_EACH_TARGET(Reducer);

TEST_P(Reducer, MatchesTheReferenceAtEveryLength) {
  for (const Kind& kind : kinds_) {
    for (size_t count = 0; count <= 130; ++count) check(random_, kind, 1 + count % 4, count);
  }
}

TEST_P(Reducer, MatchesTheReferenceForAnyNumberOfInputs) {
  for (const Kind& kind : kinds_) {
    for (size_t num_inputs = 1; num_inputs <= 9; ++num_inputs) {
      for (const size_t count : {1, 64, 257}) check(random_, kind, num_inputs, count);
    }
  }
}

TEST_P(Reducer, MatchesTheReferenceOnLongArrays) {
  for (const Kind& kind : kinds_) {
    check(random_, kind, 2, 16384);
    check(random_, kind, 5, 10007);
  }
}

TEST_P(Reducer, MayWriteOverAnyOfItsInputs) {
  for (const Kind& kind : kinds_) {
    for (const size_t num_inputs : {1, 2, 3, 4, 5, 9}) {
      for (size_t alias = 0; alias < num_inputs; ++alias) {
        for (const size_t count : {7, 333}) check(random_, kind, num_inputs, count, alias);
      }
    }
  }
}

// With a factor for each input, for some of them, and for the result.
TEST_P(Reducer, MatchesTheReferenceWhereItIsScaled) {
  const std::vector<double> factors = {0.5, 1, -3, 1e-3, 1.0 / 3};
  for (const Kind& kind : kinds_) {
    if (!is_float(kind.dtype)) continue;
    for (const size_t scaled : {0, 1, 2, 5}) {
      const Scale scale{std::span(factors).first(scaled), scaled == 1 ? 1 : 1.0 / 7};
      for (const size_t count : {1, 7, 64, 257, 5000})
        check(random_, kind, 5, count, kNoAlias, scale);
      check(random_, kind, 2, 333, 1, scale);
    }
  }
}

TEST_P(Reducer, AnElementDoesNotDependOnItsPosition) {
  constexpr size_t kCount = 101;
  for (const Kind& kind : kinds_) {
    const size_t element = size_of(kind.dtype);
    Array a(random_, element, kCount), b(random_, element, kCount), whole(random_, element, kCount),
        single(random_, element, kCount);
    fold(kind.dtype, kind.op, std::array<const void*, 2>{a.data(), b.data()}, whole.data(), kCount,
         0);
    for (size_t i = 0; i < kCount; ++i) {
      const size_t at = i * element;
      fold(kind.dtype, kind.op, std::array<const void*, 2>{a.data() + at, b.data() + at},
           single.data() + at, 1, 0);
    }
    EXPECT_EQ(whole.contents(), single.contents()) << describe(kind);
  }
}

// Every value that 16 bits can hold, divided: halves of subnormals are ties, thirds are not.
TEST_P(Reducer, RoundsEveryHalfToNearestEven) {
  std::vector<uint16_t> all(65536), got(all.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto* const bytes = reinterpret_cast<const std::byte*>(all.data());
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const uint32_t divisor : {0, 1, 2, 3, 4, 1000}) {
      const auto expected =
          fold_reference::fold(dtype, ReduceOp::kAverage, {bytes}, all.size(), divisor);
      fold(dtype, ReduceOp::kAverage, std::array<const void*, 1>{all.data()}, got.data(),
           got.size(), divisor);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), expected.size()), 0)
          << name_of(dtype) << " / " << divisor;
    }
  }
}

// Stated once without the reference, in case both are wrong in the same way.
template <typename T>
T fold_values(Dtype dtype, ReduceOp op, const std::vector<T>& values, uint32_t divisor = 0) {
  std::vector<const void*> inputs;
  for (const T& value : values) inputs.push_back(&value);
  T out{};
  fold(dtype, op, inputs, &out, 1, divisor);
  return out;
}

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

TEST_P(Reducer, AddsInTheOrderOfTheInputs) {
  const std::vector<float> values = {1.0f, 1e8f, -1e8f};
  EXPECT_EQ(fold_values(Dtype::kFloat32, ReduceOp::kSum, values), 0.0f);
  EXPECT_EQ(fold_values<float>(Dtype::kFloat32, ReduceOp::kSum, {1e8f, -1e8f, 1.0f}), 1.0f);
  EXPECT_EQ(fold_values<float>(Dtype::kFloat32, ReduceOp::kAverage, {1, 2, 4}, 3), 7.0f / 3.0f);
  EXPECT_EQ(fold_values<double>(Dtype::kFloat64, ReduceOp::kAverage, {1, 2, 4}, 3), 7.0 / 3.0);
}

TEST_P(Reducer, HalfTypesRoundOnceAtTheEnd) {
  // 1 + 2^-11 + 2^-11: each addition alone would be rounded away.
  EXPECT_EQ(fold_values<uint16_t>(Dtype::kFloat16, ReduceOp::kSum, {0x3c00, 0x1000, 0x1000}),
            0x3c01);
  // Ties: 1 + 2^-11 goes down to even, 1 + 3 * 2^-11 goes up to even.
  EXPECT_EQ(fold_values<uint16_t>(Dtype::kFloat16, ReduceOp::kSum, {0x3c00, 0x1000}), 0x3c00);
  EXPECT_EQ(fold_values<uint16_t>(Dtype::kFloat16, ReduceOp::kSum, {0x3c01, 0x1000}), 0x3c02);
  // 65504 is the largest; its last bit is worth 32, and 16 more is the tie that rounds to infinity.
  EXPECT_EQ(fold_values<uint16_t>(Dtype::kFloat16, ReduceOp::kSum, {0x7bff, 0x4bff}), 0x7bff);
  EXPECT_EQ(fold_values<uint16_t>(Dtype::kFloat16, ReduceOp::kSum, {0x7bff, 0x4c00}), 0x7c00);
  // But a sum that only passes through 2 * 65504 is not lost.
  EXPECT_EQ(fold_values<uint16_t>(Dtype::kFloat16, ReduceOp::kAverage, {0x7bff, 0x7bff}, 2),
            0x7bff);
  // bfloat16 of 1 + 3 * 2^-9: nearest is 1 + 2^-7, cutting off would give 1.
  EXPECT_EQ(fold_values<uint16_t>(Dtype::kBfloat16, ReduceOp::kSum, {0x3f80, 0x3bc0}), 0x3f81);
  EXPECT_EQ(fold_values<uint16_t>(Dtype::kBfloat16, ReduceOp::kSum, {0x3f80, 0x3b80}), 0x3f80);
  EXPECT_EQ(fold_values<uint16_t>(Dtype::kBfloat16, ReduceOp::kSum, {0x7f7f, 0x7f7f}), 0x7f80);
}

TEST_P(Reducer, AnyNanGivesTheOneQuietNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float odd_nan = std::bit_cast<float>(uint32_t{0xff812345});
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    for (const float other : {1.0f, -0.0f, infinity, -infinity, odd_nan}) {
      EXPECT_EQ(bits(fold_values<float>(Dtype::kFloat32, op, {odd_nan, other})), 0x7fc00000u);
      EXPECT_EQ(bits(fold_values<float>(Dtype::kFloat32, op, {other, odd_nan, 2})), 0x7fc00000u);
    }
    EXPECT_EQ(fold_values<uint16_t>(Dtype::kFloat16, op, {0xfc01, 0x3c00}), 0x7e00);
    EXPECT_EQ(fold_values<uint16_t>(Dtype::kBfloat16, op, {0x3f80, 0xff81}), 0x7fc0);
    EXPECT_EQ(std::bit_cast<uint64_t>(fold_values<double>(
                  Dtype::kFloat64, op, {1.0, -std::numeric_limits<double>::signaling_NaN()})),
              0x7ff8000000000000u);
  }
  EXPECT_EQ(bits(fold_values<float>(Dtype::kFloat32, ReduceOp::kSum, {infinity, -infinity})),
            0x7fc00000u);
}

TEST_P(Reducer, MinusZeroIsLessThanPlusZero) {
  for (const auto& pair : {std::vector<float>{0.0f, -0.0f}, std::vector<float>{-0.0f, 0.0f}}) {
    EXPECT_EQ(bits(fold_values(Dtype::kFloat32, ReduceOp::kMin, pair)), 0x80000000u);
    EXPECT_EQ(bits(fold_values(Dtype::kFloat32, ReduceOp::kMax, pair)), 0u);
  }
}

TEST_P(Reducer, IntegersWrap) {
  const auto sum = ReduceOp::kSum, product = ReduceOp::kProduct;
  EXPECT_EQ(fold_values<int8_t>(Dtype::kInt8, sum, {127, 1}), -128);
  EXPECT_EQ(fold_values<int8_t>(Dtype::kInt8, product, {-100, 3}), -44);
  EXPECT_EQ(fold_values<uint8_t>(Dtype::kUint8, sum, {200, 100}), 44);
  EXPECT_EQ(fold_values<uint8_t>(Dtype::kUint8, product, {16, 17}), 16);
  EXPECT_EQ(fold_values<uint8_t>(Dtype::kUint8, ReduceOp::kMax, {200, 100}), 200);
  EXPECT_EQ(fold_values<int16_t>(Dtype::kInt16, product, {-32768, -32768}), 0);
  EXPECT_EQ(fold_values<int32_t>(Dtype::kInt32, sum, {INT32_MAX, 1}), INT32_MIN);
  EXPECT_EQ(fold_values<int64_t>(Dtype::kInt64, sum, {INT64_MAX, 2}), INT64_MIN + 1);
  EXPECT_EQ(fold_values<int64_t>(Dtype::kInt64, product, {INT64_C(-3037000500), 3037000500}),
            INT64_C(9223372036709301616));
  EXPECT_EQ(fold_values<int64_t>(Dtype::kInt64, ReduceOp::kMin, {1, INT64_MIN}), INT64_MIN);
}

TEST_P(Reducer, ABoolIsTrueWhateverItsByte) {
  const auto reduce = [](ReduceOp op, const std::vector<uint8_t>& values) {
    return fold_values<uint8_t>(Dtype::kBool, op, values);
  };
  for (const ReduceOp any : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBor}) {
    EXPECT_EQ(reduce(any, {2, 0, 255}), 1);
    EXPECT_EQ(reduce(any, {0, 0, 0}), 0);
  }
  for (const ReduceOp all : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kBand}) {
    EXPECT_EQ(reduce(all, {2, 1, 255}), 1);
    EXPECT_EQ(reduce(all, {2, 0, 255}), 0);
  }
  EXPECT_EQ(reduce(ReduceOp::kBxor, {2, 1, 255}), 1);
  EXPECT_EQ(reduce(ReduceOp::kBxor, {2, 0, 255}), 0);
}

TEST_P(Reducer, RoundsTheProductBeforeItAdds) {
  // A third as a float32 is a little more than that: three of them are 1 only when rounded.
  const float three = 3, minus_one = -1;
  const std::array<const void*, 2> inputs = {&three, &minus_one};
  const std::array<double, 1> third = {1.0 / 3};
  float out = 7;
  fold(Dtype::kFloat32, ReduceOp::kSum, inputs, &out, 1, 0, {third, 0x1p30});
  EXPECT_EQ(out, 0);
}

TEST(ReducerRefusals, ACallThatMakesNoSenseEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  int32_t value = 1;
  const std::array<const void*, 1> one = {&value};
  EXPECT_DEATH(fold(Dtype::kInt32, ReduceOp::kAverage, one, &value, 1, 2), "makes no sense");
  EXPECT_DEATH(fold(Dtype::kInt32, ReduceOp::kSum, one, &value, 1, 2), "divisor 2");
  EXPECT_DEATH(fold(Dtype::kFloat32, ReduceOp::kSum, {}, &value, 1, 0), "0 inputs");
  const std::array<double, 1> half = {0.5};
  EXPECT_DEATH(fold(Dtype::kInt32, ReduceOp::kSum, one, &value, 1, 0, {half, 1}), "scaled");
  EXPECT_DEATH(fold(Dtype::kFloat8E4m3, ReduceOp::kMax, one, &value, 1, 0), "makes no sense");
}

}  // namespace
}  // namespace gradring::transport
