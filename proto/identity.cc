#include "proto/identity.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace gradring {
namespace {

// Of the floats that have no type of their own in C++, as their bits.
struct HalfBits {
  uint16_t one;
  uint16_t infinity;
};
constexpr HalfBits kFloat16{0x3c00, 0x7c00};
constexpr HalfBits kBfloat16{0x3f80, 0x7f80};
constexpr uint16_t kHalfSign = 0x8000;

using Element = std::array<std::byte, 8>;

template <class T>
Element element_of(T value) {
  Element bytes{};
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

template <class T>
Element number(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::kProduct:
      return element_of(T{1});
    case ReduceOp::kMin:
      return element_of(Limits::has_infinity ? Limits::infinity() : Limits::max());
    case ReduceOp::kMax:
      return element_of(Limits::has_infinity ? static_cast<T>(-Limits::infinity())
                                             : Limits::lowest());
    default:
      return {};
  }
}

Element half(const HalfBits& bits, ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct:
      return element_of(bits.one);
    case ReduceOp::kMin:
      return element_of(bits.infinity);
    case ReduceOp::kMax:
      return element_of(static_cast<uint16_t>(bits.infinity | kHalfSign));
    default:
      return {};
  }
}

Element identity_of(Dtype dtype, ReduceOp op) {
  if (op == ReduceOp::kBand) return element_of(~uint64_t{0});
  switch (dtype) {
    case Dtype::kFloat32:
      return number<float>(op);
    case Dtype::kFloat64:
      return number<double>(op);
    case Dtype::kFloat16:
      return half(kFloat16, op);
    case Dtype::kBfloat16:
      return half(kBfloat16, op);
    case Dtype::kInt8:
      return number<int8_t>(op);
    case Dtype::kInt16:
      return number<int16_t>(op);
    case Dtype::kInt32:
      return number<int32_t>(op);
    case Dtype::kInt64:
      return number<int64_t>(op);
    case Dtype::kUint8:
      return number<uint8_t>(op);
    case Dtype::kUint16:
      return number<uint16_t>(op);
    case Dtype::kUint32:
      return number<uint32_t>(op);
    case Dtype::kUint64:
      return number<uint64_t>(op);
    case Dtype::kBool:
      return element_of(static_cast<uint8_t>(op == ReduceOp::kMin || op == ReduceOp::kProduct));
    case Dtype::kFloat8E4m3:
    case Dtype::kFloat8E5m2:
      break;  // these are not reduced
  }
  return {};
}

}  // namespace

void fill_identity(Dtype dtype, ReduceOp op, std::byte* to, uint64_t count) {
  const Element element = identity_of(dtype, op);
  const size_t size = size_of(dtype);
  if (element == Element{}) {
    std::memset(to, 0, count * size);
    return;
  }
  for (uint64_t i = 0; i < count; ++i) std::memcpy(to + i * size, element.data(), size);
}

}  // namespace gradring
