#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "proto/types.h"
#include "transport/reducer.h"

// The fold once more, one element at a time and by arithmetic instead of bit tricks: what the
// engines must match bit for bit. Shares no code with them.
namespace gradring::fold_reference {

using Bytes = std::vector<std::byte>;

template <typename T>
T quiet_nan() {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(uint32_t{0x7fc00000});
  } else {
    return std::bit_cast<T>(uint64_t{0x7ff8000000000000});
  }
}

// One of IEEE's smaller formats: a sign, then an exponent, then this many bits of mantissa.
struct SmallFloat {
  int mantissa_bits;
  int exponent_min;  // of the smallest normal number
  uint16_t infinity;
};
inline constexpr SmallFloat kHalf = {10, -14, 0x7c00};
inline constexpr SmallFloat kBrain = {7, -126, 0x7f80};

inline float widen(uint16_t bits, const SmallFloat& format) {
  const int magnitude = bits & 0x7fff;
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  float value;
  if (magnitude > format.infinity) {
    value = quiet_nan<float>();
  } else if (magnitude == format.infinity) {
    value = std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), format.exponent_min - format.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + (1 << format.mantissa_bits)),
                       exponent - 1 + format.exponent_min - format.mantissa_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// To nearest, ties to even: nearbyint on the multiple of the last bit's worth, which double holds.
inline uint16_t narrow(float value, const SmallFloat& format) {
  if (std::isnan(value)) {
    return static_cast<uint16_t>(format.infinity | 1 << (format.mantissa_bits - 1));
  }
  const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  uint32_t bits = format.infinity;
  if (!std::isinf(value)) {
    const int exponent =
        magnitude == 0 ? format.exponent_min : std::max(std::ilogb(magnitude), format.exponent_min);
    const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
    bits = (static_cast<uint32_t>(exponent - format.exponent_min) << format.mantissa_bits) +
           static_cast<uint32_t>(units);
    bits = std::min<uint32_t>(bits, format.infinity);
  }
  return static_cast<uint16_t>(sign | bits);
}

template <typename T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool min = op == ReduceOp::kMin;
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return a + b;
    if (op == ReduceOp::kProduct) return a * b;
    if (std::isnan(a) || std::isnan(b)) return quiet_nan<T>();
    if (a == b) return std::signbit(a) == min ? a : b;  // -0 is less than +0
    return (a < b) == min ? a : b;
  } else {
    if (op == ReduceOp::kMin) return a < b ? a : b;
    if (op == ReduceOp::kMax) return a > b ? a : b;
    if (op == ReduceOp::kBand) return static_cast<T>(a & b);
    if (op == ReduceOp::kBor) return static_cast<T>(a | b);
    if (op == ReduceOp::kBxor) return static_cast<T>(a ^ b);
    // Whichever bits are in front of it, the low ones of the result are the same.
    const uint64_t x = static_cast<std::make_unsigned_t<T>>(a);
    const uint64_t y = static_cast<std::make_unsigned_t<T>>(b);
    return static_cast<T>(op == ReduceOp::kProduct ? x * y : x + y);
  }
}

// One element in memory as T, folded as Acc.
template <typename T, typename Acc, Acc (*kLoad)(T), T (*kStore)(Acc)>
Bytes fold_as(ReduceOp op, const std::vector<const std::byte*>& inputs, size_t count,
              uint32_t divisor, const transport::Scale& scale) {
  Bytes result(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    Acc folded{};
    for (size_t r = 0; r < inputs.size(); ++r) {
      T element;
      std::memcpy(&element, inputs[r] + i * sizeof(T), sizeof(T));
      Acc value = kLoad(element);
      if constexpr (std::is_floating_point_v<Acc>) {
        if (r < scale.inputs.size()) value *= static_cast<Acc>(scale.inputs[r]);
      }
      folded = r == 0 ? value : combine(op, folded, value);
    }
    if constexpr (std::is_floating_point_v<Acc>) {
      if (divisor != 0) folded /= static_cast<Acc>(divisor);
      folded *= static_cast<Acc>(scale.result);
      if (std::isnan(folded)) folded = quiet_nan<Acc>();
    }
    const T element = kStore(folded);
    std::memcpy(result.data() + i * sizeof(T), &element, sizeof(T));
  }
  return result;
}

template <typename T>
T same(T value) {
  return value;
}
inline float widen_half(uint16_t bits) { return widen(bits, kHalf); }
inline float widen_brain(uint16_t bits) { return widen(bits, kBrain); }
inline uint16_t narrow_half(float value) { return narrow(value, kHalf); }
inline uint16_t narrow_brain(float value) { return narrow(value, kBrain); }
inline uint8_t truth(uint8_t byte) { return byte != 0 ? 1 : 0; }

inline ReduceOp of_bools(ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kMax) return ReduceOp::kBor;
  return op == ReduceOp::kProduct || op == ReduceOp::kMin ? ReduceOp::kBand : op;
}

template <typename T>
constexpr auto kNative = &fold_as<T, T, same<T>, same<T>>;

inline Bytes fold(Dtype dtype, ReduceOp op, const std::vector<const std::byte*>& inputs,
                  size_t count, uint32_t divisor, const transport::Scale& scale = {}) {
  switch (dtype) {
    case Dtype::kFloat32:
      return kNative<float>(op, inputs, count, divisor, scale);
    case Dtype::kFloat64:
      return kNative<double>(op, inputs, count, divisor, scale);
    case Dtype::kFloat16:
      return fold_as<uint16_t, float, widen_half, narrow_half>(op, inputs, count, divisor, scale);
    case Dtype::kBfloat16:
      return fold_as<uint16_t, float, widen_brain, narrow_brain>(op, inputs, count, divisor, scale);
    case Dtype::kInt8:
      return kNative<int8_t>(op, inputs, count, divisor, scale);
    case Dtype::kInt16:
      return kNative<int16_t>(op, inputs, count, divisor, scale);
    case Dtype::kInt32:
      return kNative<int32_t>(op, inputs, count, divisor, scale);
    case Dtype::kInt64:
      return kNative<int64_t>(op, inputs, count, divisor, scale);
    case Dtype::kUint8:
      return kNative<uint8_t>(op, inputs, count, divisor, scale);
    case Dtype::kUint16:
      return kNative<uint16_t>(op, inputs, count, divisor, scale);
    case Dtype::kUint32:
      return kNative<uint32_t>(op, inputs, count, divisor, scale);
    case Dtype::kUint64:
      return kNative<uint64_t>(op, inputs, count, divisor, scale);
    case Dtype::kBool:
      return fold_as<uint8_t, uint8_t, truth, same<uint8_t>>(of_bools(op), inputs, count, divisor,
                                                             scale);
    default:
      break;
  }
  return {};
}

// Whether element `index` of `data` is a number.
inline bool is_finite(Dtype dtype, const std::byte* data, size_t index) {
  const std::byte* const at = data + index * size_of(dtype);
  const auto as = [at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (dtype) {
    case Dtype::kFloat32:
      return std::isfinite(as(float{}));
    case Dtype::kFloat64:
      return std::isfinite(as(double{}));
    case Dtype::kFloat16:
      return std::isfinite(widen(as(uint16_t{}), kHalf));
    case Dtype::kBfloat16:
      return std::isfinite(widen(as(uint16_t{}), kBrain));
    default:
      return true;
  }
}

}  // namespace gradring::fold_reference
