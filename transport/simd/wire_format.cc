#include "transport/wire_format.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Highway compiles this file once per instruction set and chooses among them at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transport/simd/wire_format.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "transport/simd/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradring::transport {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// The first `count` elements, at most a vector of them; zeros behind.
HWY_INLINE V load_some(const float* from, size_t count) {
  if (count >= hn::Lanes(D())) return hn::LoadU(D(), from);
  alignas(64) float piece[hn::MaxLanes(D())] = {};
  std::memcpy(piece, from, count * sizeof(float));
  return hn::Load(D(), piece);
}

HWY_INLINE void store_some(V value, float* to, size_t count) {
  if (count >= hn::Lanes(D())) return hn::StoreU(value, D(), to);
  alignas(64) float piece[hn::MaxLanes(D())];
  hn::Store(value, D(), piece);
  std::memcpy(to, piece, count * sizeof(float));
}

template <class Format>
void pack_halves(const float* from, size_t count, void* packed, FoldFindings* findings) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  auto* const to = static_cast<uint16_t*>(packed);
  const V infinity = hn::Set(d, hwy::HighestValue<float>());
  alignas(64) uint16_t piece[hn::MaxLanes(d)];
  for (size_t i = 0; i < count; i += lanes) {
    const size_t here = std::min(lanes, count - i);
    const V value = load_some(from + i, here);
    const auto nonfinite = hn::Not(hn::Lt(hn::Abs(value), hn::Set(d, Format::kInfiniteFrom)));
    if (HWY_UNLIKELY(!hn::AllFalse(d, nonfinite))) {
      findings->nonfinite += hn::CountTrue(d, nonfinite);
      const auto born_here = hn::And(nonfinite, hn::Le(hn::Abs(value), infinity));
      if (!hn::AllFalse(d, born_here)) {
        if (findings->overflows == 0) {
          findings->first_overflow = i + static_cast<size_t>(hn::FindFirstTrue(d, born_here));
        }
        findings->overflows += hn::CountTrue(d, born_here);
      }
    }
    if (here == lanes) {
      Format::store(value, to + i);
    } else {
      Format::store(value, piece);
      std::memcpy(to + i, piece, here * sizeof(uint16_t));
    }
  }
}

template <class Format>
void unpack_halves(const void* packed, size_t count, float* to) {
  const size_t lanes = hn::Lanes(D());
  const auto* const from = static_cast<const uint16_t*>(packed);
  alignas(64) uint16_t piece[hn::MaxLanes(D())] = {};
  for (size_t i = 0; i < count; i += lanes) {
    const size_t here = std::min(lanes, count - i);
    const uint16_t* at = from + i;
    if (here < lanes) {
      std::memcpy(piece, at, here * sizeof(uint16_t));
      at = piece;
    }
    store_some(Format::load(at), to + i, here);
  }
}

// Of a block: its largest magnitude / 127, such that 127 times it is exact; 0: below what has room.
HWY_INLINE float scale_of(float largest) {
  constexpr float kSmallest = 0x1p-119f;  // 127 of the smallest that is not denormal
  if (largest < kSmallest) return 0;
  const float scale = largest / 127;
  uint32_t bits;
  std::memcpy(&bits, &scale, sizeof(bits));
  bits &= ~0x7fu;
  float cut;
  std::memcpy(&cut, &bits, sizeof(cut));
  return cut;
}

// What ranks that have joined give to a minimum or a maximum is infinite, and has to arrive so.
void pack_nonfinite(const float* from, size_t count, std::byte* to) {
  size_t same = 0;
  while (same < count && from[same] == from[0]) ++same;
  constexpr uint32_t kQuietNan = 0x7fc00000u;
  const bool all_same = same == count;  // not so of NaN
  std::memcpy(to, all_same ? static_cast<const void*>(from) : &kQuietNan, sizeof(kQuietNan));
  std::memset(to + sizeof(kQuietNan), all_same ? 1 : 0, count);
}

void pack_block(const float* from, size_t count, std::byte* to, FoldFindings* findings) {
  const D d;
  const hn::Rebind<int8_t, D> bytes;
  const size_t lanes = hn::Lanes(d);
  V largest = hn::Zero(d);
  size_t nonfinite = 0;
  for (size_t i = 0; i < count; i += lanes) {
    const V magnitude = hn::Abs(load_some(from + i, count - i));
    nonfinite +=
        hn::CountTrue(d, hn::Not(hn::Le(magnitude, hn::Set(d, hwy::HighestValue<float>()))));
    largest = hn::Max(largest, magnitude);
  }
  if (nonfinite != 0) {
    pack_nonfinite(from, count, to);
    findings->nonfinite += count;
    return;
  }
  const float scale = scale_of(hn::GetLane(hn::MaxOfLanes(d, largest)));
  std::memcpy(to, &scale, sizeof(scale));
  to += sizeof(scale);
  if (scale == 0) {
    std::memset(to, 0, count);
    return;
  }
  const V divisor = hn::Set(d, scale);
  alignas(64) int8_t piece[hn::MaxLanes(d)];
  for (size_t i = 0; i < count; i += lanes) {
    const V quotient = hn::Div(load_some(from + i, count - i), divisor);
    hn::StoreU(hn::DemoteTo(bytes, hn::NearestInt(quotient)), bytes, piece);
    std::memcpy(to + i, piece, std::min(lanes, count - i));
  }
}

void unpack_block(const std::byte* from, size_t count, float* to) {
  const D d;
  const hn::Rebind<int32_t, D> whole;
  const hn::Rebind<int8_t, D> bytes;
  const size_t lanes = hn::Lanes(d);
  float scale;
  std::memcpy(&scale, from, sizeof(scale));
  from += sizeof(scale);
  const V factor = hn::Set(d, scale);
  alignas(64) int8_t piece[hn::MaxLanes(d)] = {};
  for (size_t i = 0; i < count; i += lanes) {
    const size_t here = std::min(lanes, count - i);
    std::memcpy(piece, from + i, here);
    const V value = hn::ConvertTo(d, hn::PromoteTo(whole, hn::LoadU(bytes, piece)));
    store_some(hn::Mul(value, factor), to + i, here);
  }
}

void pack_blocks(const float* from, size_t count, void* packed, FoldFindings* findings) {
  auto* to = static_cast<std::byte*>(packed);
  for (size_t i = 0; i < count; i += kInt8Block) {
    const size_t here = std::min(kInt8Block, count - i);
    pack_block(from + i, here, to, findings);
    to += sizeof(float) + here;
  }
}

void unpack_blocks(const void* packed, size_t count, float* to) {
  const auto* from = static_cast<const std::byte*>(packed);
  for (size_t i = 0; i < count; i += kInt8Block) {
    const size_t here = std::min(kInt8Block, count - i);
    unpack_block(from, here, to + i);
    from += sizeof(float) + here;
  }
}

void pack_as(WireType wire, const float* from, size_t count, void* packed, FoldFindings* findings) {
  switch (wire) {
    case WireType::kFloat16:
      return pack_halves<Float16>(from, count, packed, findings);
    case WireType::kBfloat16:
      return pack_halves<Bfloat16>(from, count, packed, findings);
    case WireType::kInt8:
      return pack_blocks(from, count, packed, findings);
    case WireType::kNative:
      break;
  }
}

void unpack_as(WireType wire, const void* packed, size_t count, float* to) {
  switch (wire) {
    case WireType::kFloat16:
      return unpack_halves<Float16>(packed, count, to);
    case WireType::kBfloat16:
      return unpack_halves<Bfloat16>(packed, count, to);
    case WireType::kInt8:
      return unpack_blocks(packed, count, to);
    case WireType::kNative:
      break;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gradring::transport
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradring::transport {
namespace {

HWY_EXPORT(pack_as);
HWY_EXPORT(unpack_as);

// To go on would be to hand out wrong sums as good ones.
void must_change(WireType wire) {
  if (wire != WireType::kNative && static_cast<uint8_t>(wire) <= kWireTypeLast) return;
  std::fprintf(stderr, "gradring: nothing is packed as wire type %d\n", static_cast<int>(wire));
  std::abort();
}

}  // namespace

FoldFindings pack(WireType wire, const float* from, size_t count, void* packed) {
  must_change(wire);
  FoldFindings findings;
  HWY_DYNAMIC_DISPATCH(pack_as)(wire, from, count, packed, &findings);
  return findings;
}

void unpack(WireType wire, const void* packed, size_t count, float* to) {
  must_change(wire);
  HWY_DYNAMIC_DISPATCH(unpack_as)(wire, packed, count, to);
}

}  // namespace gradring::transport
#endif  // HWY_ONCE
