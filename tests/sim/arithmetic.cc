#include "tests/sim/arithmetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "daemon/core/random.h"

namespace gradring::sim {
namespace {

// bfloat16 as the upper half of a float32, rounded to nearest even.
struct Bfloat16 {
  uint16_t bits;
};
float widen(Bfloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
Bfloat16 narrow(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

template <typename Element>
struct Wide {
  using Type = Element;
  static Type from(Element e) { return e; }
  static Element to(Type t) { return t; }
};
template <>
struct Wide<Bfloat16> {
  using Type = float;
  static float from(Bfloat16 e) { return widen(e); }
  static Bfloat16 to(float t) { return narrow(t); }
};
template <>
struct Wide<int32_t> {  // wraps
  using Type = uint32_t;
  static uint32_t from(int32_t e) { return static_cast<uint32_t>(e); }
  static int32_t to(uint32_t t) { return static_cast<int32_t>(t); }
};

template <typename T>
T combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kMin:
      return b < a ? b : a;
    case ReduceOp::kMax:
      return a < b ? b : a;
    case ReduceOp::kProduct:
      return a * b;
    default:
      return a + b;
  }
}
template <>
uint32_t combine(ReduceOp op, uint32_t a, uint32_t b) {
  const auto x = static_cast<int32_t>(a);
  const auto y = static_cast<int32_t>(b);
  switch (op) {
    case ReduceOp::kMin:
      return y < x ? b : a;
    case ReduceOp::kMax:
      return x < y ? b : a;
    case ReduceOp::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

template <typename Element>
void fold_as(ReduceOp op, bool fresh, const std::vector<Input>& inputs, size_t count, Ending ending,
             std::byte* accumulator) {
  using W = Wide<Element>;
  using Number = typename W::Type;
  for (size_t i = 0; i < count; ++i) {
    const auto load = [i](const Input& input) {
      Element element;
      std::memcpy(&element, input.at + i * sizeof(Element), sizeof element);
      const Number number = W::from(element);
      return input.factor == 1 ? number : number * static_cast<Number>(input.factor);
    };
    Number value = load(inputs[0]);
    for (size_t k = 1; k < inputs.size(); ++k) value = combine(op, value, load(inputs[k]));
    if (!fresh) value = combine(op, value, load({accumulator}));
    if (ending.divisor != 0) value = value / static_cast<Number>(ending.divisor);
    if (ending.factor != 1) value = value * static_cast<Number>(ending.factor);
    const Element result = W::to(value);
    std::memcpy(accumulator + i * sizeof(Element), &result, sizeof result);
  }
}

}  // namespace

void fill(Dtype dtype, uint64_t seed, uint32_t rank, size_t count, std::byte* out) {
  static constexpr double kPowers[] = {1. / 16, 1. / 8, 1. / 4, 1. / 2, 1, 2, 4, 8, 16};
  core::Random random(seed * 1000003 + rank);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random.next();
    const double value = (static_cast<double>(bits >> 11) / (1ull << 53) - 0.5) * kPowers[bits % 9];
    const auto put = [&](auto element) {
      std::memcpy(out + i * sizeof element, &element, sizeof element);
    };
    switch (dtype) {
      case Dtype::kFloat32:
        put(static_cast<float>(value));
        break;
      case Dtype::kFloat64:
        put(value);
        break;
      case Dtype::kBfloat16:
        put(narrow(static_cast<float>(value)));
        break;
      default:
        put(static_cast<int32_t>(bits));
        break;
    }
  }
}

namespace {

float float_at(const std::byte* from, size_t index) {
  float value;
  std::memcpy(&value, from + index * sizeof value, sizeof value);
  return value;
}

void put_float(float value, std::byte* to, size_t index) {
  std::memcpy(to + index * sizeof value, &value, sizeof value);
}

// A scale of which 127 is exact, and that many bytes.
void pack_block(const std::byte* from, size_t count, std::byte* to) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(float_at(from, i)));
  const float scale = std::bit_cast<float>(std::bit_cast<uint32_t>(largest / 127) & ~0x7fu);
  put_float(scale, to, 0);
  for (size_t i = 0; i < count; ++i) {
    const float steps = scale == 0 ? 0 : std::nearbyint(float_at(from, i) / scale);
    to[sizeof(float) + i] = static_cast<std::byte>(static_cast<int8_t>(steps));
  }
}

void unpack_block(const std::byte* from, size_t count, std::byte* to) {
  const float scale = float_at(from, 0);
  for (size_t i = 0; i < count; ++i) {
    put_float(static_cast<float>(static_cast<int8_t>(from[sizeof(float) + i])) * scale, to, i);
  }
}

}  // namespace

void pack(WireType wire, const std::byte* from, size_t count, std::byte* to) {
  if (wire == WireType::kBfloat16) {
    for (size_t i = 0; i < count; ++i) {
      const Bfloat16 half = narrow(float_at(from, i));
      std::memcpy(to + i * sizeof half, &half, sizeof half);
    }
    return;
  }
  for (size_t i = 0; i < count; i += kInt8Block) {
    const size_t here = std::min(kInt8Block, count - i);
    pack_block(from + i * sizeof(float), here, to);
    to += sizeof(float) + here;
  }
}

void unpack(WireType wire, const std::byte* from, size_t count, std::byte* to) {
  if (wire == WireType::kBfloat16) {
    for (size_t i = 0; i < count; ++i) {
      Bfloat16 half;
      std::memcpy(&half, from + i * sizeof half, sizeof half);
      put_float(widen(half), to, i);
    }
    return;
  }
  for (size_t i = 0; i < count; i += kInt8Block) {
    const size_t here = std::min(kInt8Block, count - i);
    unpack_block(from, here, to + i * sizeof(float));
    from += sizeof(float) + here;
  }
}

uint32_t checksum(const std::byte* bytes, size_t count) {
  uint32_t sum = 2166136261u;
  for (size_t i = 0; i < count; ++i) sum = (sum ^ static_cast<uint8_t>(bytes[i])) * 16777619u;
  return sum;
}

double prescale_of(uint32_t rank) {
  static constexpr double kFactors[] = {0.5, -0.75, 0.3, 1.25};
  return kFactors[rank % 4];
}

void fold(Dtype dtype, ReduceOp op, bool fresh, const std::vector<Input>& inputs, size_t count,
          Ending ending, std::byte* accumulator) {
  switch (dtype) {
    case Dtype::kFloat32:
      return fold_as<float>(op, fresh, inputs, count, ending, accumulator);
    case Dtype::kFloat64:
      return fold_as<double>(op, fresh, inputs, count, ending, accumulator);
    case Dtype::kBfloat16:
      return fold_as<Bfloat16>(op, fresh, inputs, count, ending, accumulator);
    default:
      return fold_as<int32_t>(op, fresh, inputs, count, ending, accumulator);
  }
}

}  // namespace gradring::sim
