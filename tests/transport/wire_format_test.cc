#include "transport/wire_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/transport/reducer_targets.h"

namespace gradring::transport {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr WireType kAll[] = {WireType::kFloat16, WireType::kBfloat16, WireType::kInt8};
// Around the lengths of vectors and of blocks.
constexpr size_t kCounts[] = {0, 1, 2, 7, 8, 15, 16, 17, 255, 256, 257, 511, 512, 1000, 4096};

std::vector<std::byte> packed(WireType wire, const std::vector<float>& from,
                              FoldFindings* findings = nullptr) {
  std::vector<std::byte> to(packed_bytes(wire, from.size()) + 1, std::byte{0x5a});
  const FoldFindings found = pack(wire, from.data(), from.size(), to.data());
  if (findings != nullptr) *findings = found;
  EXPECT_EQ(to.back(), std::byte{0x5a}) << "wrote beyond the end";
  to.pop_back();
  return to;
}

std::vector<float> unpacked(WireType wire, const std::vector<std::byte>& from, size_t count) {
  std::vector<float> to(count + 1, 42.f);
  unpack(wire, from.data(), count, to.data());
  EXPECT_EQ(to.back(), 42.f) << "wrote beyond the end";
  to.pop_back();
  return to;
}

std::vector<float> through(WireType wire, const std::vector<float>& from) {
  return unpacked(wire, packed(wire, from), from.size());
}

// Of every size that a float32 has, or of some few powers of two.
std::vector<float> numbers(size_t count, bool wild, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const int exponent =
        wild ? static_cast<int>(random() % 250) - 125 : static_cast<int>(random() % 12);
    value = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), exponent - 31);
  }
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class WireFormat : public reducer_targets::OnEachTarget {};
GRADRING_ON_EACH_TARGET(WireFormat);

TEST_P(WireFormat, WhatWentThroughOnceIsTheSameFromThenOn) {
  for (const WireType wire : kAll) {
    for (const size_t count : kCounts) {
      for (const bool wild : {false, true}) {
        const std::vector<float> once = through(wire, numbers(count, wild, 7));
        EXPECT_TRUE(same_bits(through(wire, once), once)) << name_of(wire) << " " << count;
        EXPECT_EQ(packed(wire, once), packed(wire, numbers(count, wild, 7)));
      }
    }
  }
}

TEST_P(WireFormat, ManyDrawnBlocksPackIntoTheSameBytesAgain) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    const std::vector<float> values = numbers(kInt8Block, seed % 2 == 0, seed);
    const std::vector<float> once = through(WireType::kInt8, values);
    ASSERT_EQ(packed(WireType::kInt8, once), packed(WireType::kInt8, values)) << seed;
  }
}

TEST_P(WireFormat, HalvesRoundToTheNearest) {
  const std::vector<float> values = numbers(4099, false, 1);
  for (const auto& [wire, bits] :
       {std::pair(WireType::kFloat16, 11), std::pair(WireType::kBfloat16, 8)}) {
    const std::vector<float> got = through(wire, values);
    for (size_t i = 0; i < values.size(); ++i) {
      int exponent = 0;
      std::frexp(values[i], &exponent);
      EXPECT_LE(std::abs(got[i] - values[i]), std::ldexp(0.5f, std::max(exponent, -13) - bits))
          << values[i];
    }
  }
  EXPECT_EQ(through(WireType::kBfloat16, {1.00390625f, 1.01171875f}),
            (std::vector<float>{1.f, 1.015625f}));  // ties, to even
}

TEST_P(WireFormat, BytesAreWithinHalfAStepOfTheLargestOfTheirBlock) {
  std::vector<float> values = numbers(1000, false, 2);
  for (size_t i = 256; i < 512; ++i)
    values[i] *= 1e-10f;  // a block of its own has a scale of its own
  const std::vector<float> got = through(WireType::kInt8, values);
  for (size_t block = 0; block < values.size(); block += kInt8Block) {
    const size_t end = std::min(values.size(), block + kInt8Block);
    float largest = 0;
    for (size_t i = block; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
    for (size_t i = block; i < end; ++i) {
      EXPECT_LE(std::abs(got[i] - values[i]), largest / 253) << i;
    }
  }
}

TEST_P(WireFormat, ZerosAndWhatIsTooSmallBecomeZero) {
  EXPECT_EQ(through(WireType::kInt8, {0.f, -0.f, 0x1p-149f, -0x1p-120f}),
            (std::vector<float>{0, 0, 0, 0}));
  EXPECT_NE(through(WireType::kInt8, {0x1p-119f})[0], 0.f);
}

TEST_P(WireFormat, LargestNumbersStayFinite) {
  const std::vector<float> got = through(WireType::kInt8, {kMax, -kMax, 1.f});
  EXPECT_TRUE(std::isfinite(got[0]));
  EXPECT_GT(got[0], 0.999f * kMax);
  EXPECT_EQ(got[1], -got[0]);
}

TEST_P(WireFormat, SaysWhatBecameInfiniteByRounding) {
  for (const size_t at : {0, 3, 30}) {
    std::vector<float> values(33, 1.f);
    values[at] = 65520;
    values[32] = -70000;
    FoldFindings findings;
    const auto bytes = packed(WireType::kFloat16, values, &findings);
    EXPECT_EQ(findings.nonfinite, 2u);
    EXPECT_EQ(findings.overflows, 2u);
    EXPECT_EQ(findings.first_overflow, at);
    EXPECT_EQ(unpacked(WireType::kFloat16, bytes, 33)[at], kInf);
  }
  FoldFindings findings;
  packed(WireType::kFloat16, {65519, -65519}, &findings);
  EXPECT_EQ(findings, FoldFindings{});
  packed(WireType::kBfloat16, {70000, 3e38f}, &findings);
  EXPECT_EQ(findings, FoldFindings{});
  packed(WireType::kBfloat16, {kMax}, &findings);
  EXPECT_EQ(findings.overflows, 1u);
}

TEST_P(WireFormat, WhatIsNotFiniteStaysSo) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const WireType wire : kAll) {
    FoldFindings findings;
    std::vector<float> values(300, 1.f);
    values[5] = nan;
    values[6] = -kInf;
    const std::vector<float> got = unpacked(wire, packed(wire, values, &findings), 300);
    const bool block = wire == WireType::kInt8;
    EXPECT_EQ(findings.nonfinite, block ? kInt8Block : 2) << name_of(wire);
    EXPECT_EQ(findings.overflows, 0u);
    EXPECT_TRUE(std::isnan(got[5]));
    EXPECT_TRUE(block ? std::isnan(got[6]) : got[6] == -kInf);
    EXPECT_EQ(std::isnan(got[0]), block);
    EXPECT_NEAR(got[299], 1.f, 1e-4);
  }
}

// As what ranks that have joined give to a minimum or a maximum.
TEST_P(WireFormat, OneInfinityThroughoutABlockStaysSo) {
  for (const float infinity : {kInf, -kInf}) {
    for (const size_t count : {size_t{1}, size_t{7}, kInt8Block, kInt8Block + 3}) {
      const std::vector<float> values(count, infinity);
      FoldFindings findings;
      const auto bytes = packed(WireType::kInt8, values, &findings);
      EXPECT_EQ(findings.nonfinite, count);
      const std::vector<float> got = unpacked(WireType::kInt8, bytes, count);
      EXPECT_EQ(got, values);
      EXPECT_EQ(packed(WireType::kInt8, got, &findings), bytes);
    }
  }
  FoldFindings findings;
  const std::vector<float> both = {kInf, -kInf};
  EXPECT_TRUE(std::isnan(
      unpacked(WireType::kInt8, packed(WireType::kInt8, both, &findings), both.size())[0]));
}

TEST(WireFormatDeath, NothingIsPackedAsItIs) {
  float value = 1;
  EXPECT_DEATH(pack(WireType::kNative, &value, 1, &value), "nothing is packed as wire type 0");
  EXPECT_DEATH(unpack(static_cast<WireType>(9), &value, 1, &value), "wire type 9");
}

}  // namespace
}  // namespace gradring::transport
