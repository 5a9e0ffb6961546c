#include "tests/differential/values.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "tests/transport/fold_kinds.h"

namespace gradring::differential {
namespace {

// Of bools anything but 0 is true.
constexpr std::array<uint8_t, 4> kTruths = {0, 1, 0, 0xfe};

void put(Dtype dtype, double value, std::byte* to) {
  const auto as = [to](auto element) { std::memcpy(to, &element, sizeof element); };
  if (dtype == Dtype::kFloat64) return as(value);
  const auto narrower = static_cast<float>(value);
  if (dtype == Dtype::kFloat32) return as(narrower);
  as(dtype == Dtype::kFloat16 ? fold_reference::narrow_half(narrower)
                              : fold_reference::narrow_brain(narrower));
}

// Of every size, so that the order of additions can be told from the last bits of a sum.
double fraction(uint64_t bits) {
  static constexpr std::array<double, 5> kPowers = {1. / 16, 1. / 4, 1. / 2, 1, 1};
  return (static_cast<double>(bits >> 11) / (uint64_t{1} << 53) - 0.5) * kPowers[bits % 5];
}

}  // namespace

// Each element comes after the other, so that a longer one begins like a shorter one.
Bytes cycle_of(uint64_t seed, const Op& op, uint32_t rank, uint64_t elements) {
  const size_t element = size_of(op.dtype);
  const uint64_t count = std::min(elements, kPeriod);
  Bytes cycle(count * element);
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15 + uint64_t{op.number} * 1009 + rank);
  if (is_reduction(op.collective) && is_float(op.dtype) && op.values != Values::kBits) {
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t bits = random();
      const double whole = static_cast<double>(bits % 17) - 8;
      put(op.dtype, op.values == Values::kWhole ? whole : fraction(bits), &cycle[i * element]);
    }
  } else if (op.dtype == Dtype::kBool) {
    for (std::byte& byte : cycle) byte = static_cast<std::byte>(kTruths[random() % kTruths.size()]);
  } else {
    fold_kinds::fill(random, element, cycle.data(), count);
  }
  return cycle;
}

void repeat(const Bytes& cycle, std::byte* to, uint64_t bytes) {
  if (cycle.empty()) return;
  for (uint64_t at = 0; at < bytes; at += cycle.size()) {
    std::memcpy(to + at, cycle.data(), std::min<uint64_t>(cycle.size(), bytes - at));
  }
}

}  // namespace gradring::differential
