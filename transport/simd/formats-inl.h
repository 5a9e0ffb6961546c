// How elements lie in memory, and what they are while they are folded. Included once per
// instruction set by transport/simd/fold.cc, hence Highway's toggled guard.
#if defined(GRADRING_TRANSPORT_SIMD_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADRING_TRANSPORT_SIMD_FORMATS_INL_H_
#undef GRADRING_TRANSPORT_SIMD_FORMATS_INL_H_
#else
#define GRADRING_TRANSPORT_SIMD_FORMATS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace gradring::transport {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A format has
//   Stored   the type of an element in memory,
//   D        the vector of values it is folded in: Lanes(D()) elements of Stored at a time,
//   load     from element-aligned memory,
//   store    to it; a NaN that comes here is the canonical one (kernel-inl.h),
// and, of floats,
//   kInfiniteFrom  the least magnitude of a value that is stored as infinity.

// Folded as it is stored.
template <typename T>
struct Native {
  using Stored = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr T kInfiniteFrom = std::numeric_limits<T>::infinity();  // integers: 0, and unused

  static HWY_INLINE V load(const Stored* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void store(V value, Stored* to) { hn::StoreU(value, D(), to); }
};

// Bytes folded in 16 bits, whose lower half is the wrapped result: no instruction set multiplies
// bytes.
struct WideByte {
  using Stored = uint8_t;
  using D = hn::ScalableTag<uint16_t>;
  using V = hn::Vec<D>;
  using Narrow = hn::Rebind<uint8_t, D>;

  static HWY_INLINE V load(const Stored* from) {
    return hn::PromoteTo(D(), hn::LoadU(Narrow(), from));
  }
  static HWY_INLINE void store(V value, Stored* to) {
    hn::StoreU(hn::TruncateTo(Narrow(), value), Narrow(), to);
  }
};

// A byte that is not 0 is 1.
struct Bool {
  using Stored = uint8_t;
  using D = hn::ScalableTag<uint8_t>;
  using V = hn::Vec<D>;

  static HWY_INLINE V load(const Stored* from) {
    return hn::Min(hn::LoadU(D(), from), hn::Set(D(), uint8_t{1}));
  }
  static HWY_INLINE void store(V value, Stored* to) { hn::StoreU(value, D(), to); }
};

// The half types share: 16 bits in memory, float32 while folded, integers on the way between.
struct Half {
  using Stored = uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Bits = hn::Rebind<uint32_t, D>;
  using Narrow = hn::Rebind<uint16_t, D>;

  static HWY_INLINE hn::Vec<Bits> load_bits(const Stored* from) {
    return hn::PromoteTo(Bits(), hn::LoadU(Narrow(), from));
  }
  static HWY_INLINE void store_bits(hn::Vec<Bits> bits, Stored* to) {
    hn::StoreU(hn::TruncateTo(Narrow(), bits), Narrow(), to);
  }
  // Drops the lower kDrop bits, rounding to nearest and a tie to even. A carry out of the mantissa
  // goes into the exponent, which is just what the next larger number is, up to infinity.
  template <int kDrop>
  static HWY_INLINE hn::Vec<Bits> round_off(hn::Vec<Bits> bits) {
    const auto odd = hn::And(hn::ShiftRight<kDrop>(bits), hn::Set(Bits(), 1u));
    const auto half = hn::Set(Bits(), (1u << (kDrop - 1)) - 1);
    return hn::ShiftRight<kDrop>(hn::Add(hn::Add(bits, half), odd));
  }
};

// The upper half of a float32. Highway 1.0.3 would cut the rest off (GOTCHAS.md).
struct Bfloat16 : Half {
  static constexpr float kInfiniteFrom = 0x1.ffp127f;  // the tie above the largest, which is odd

  static HWY_INLINE V load(const Stored* from) {
    return hn::BitCast(D(), hn::ShiftLeft<16>(load_bits(from)));
  }
  static HWY_INLINE void store(V value, Stored* to) {
    store_bits(round_off<16>(hn::BitCast(Bits(), value)), to);
  }
};

// What both ways to float16 have in common.
struct AnyFloat16 : Half {
  static constexpr float kInfiniteFrom = 65520;  // the tie above 65504, which is odd
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

// F16C, present wherever Highway chooses AVX2 or better, rounds to nearest even by itself.
struct Float16 : AnyFloat16 {
  using Halves = hn::Rebind<hwy::float16_t, D>;

  static HWY_INLINE V load(const Stored* from) {
    return hn::PromoteTo(D(), hn::BitCast(Halves(), hn::LoadU(Narrow(), from)));
  }
  static HWY_INLINE void store(V value, Stored* to) {
    hn::StoreU(hn::BitCast(Narrow(), hn::DemoteTo(Halves(), value)), Narrow(), to);
  }
};

#else

// The same in integers. float16 has 5 bits of exponent and 10 of mantissa, float32 8 and 23: so the
// mantissa moves by 13 bits and the exponent's bias by 127 - 15 = 112.
struct Float16 : AnyFloat16 {
  static constexpr uint32_t kRebias = 112u << 23;
  static constexpr uint32_t kSmallestNormal = 113u << 23;  // 2^-14, of float16, as a float32

  static HWY_INLINE V load(const Stored* from) {
    const Bits bits;
    const auto stored = load_bits(from);
    const auto magnitude = hn::ShiftLeft<13>(hn::And(stored, hn::Set(bits, 0x7fffu)));
    const auto sign = hn::ShiftLeft<16>(hn::And(stored, hn::Set(bits, 0x8000u)));
    const auto normal = hn::Add(magnitude, hn::Set(bits, kRebias));
    // Infinity and NaN: the largest exponent there is the largest here.
    const auto special = hn::Add(normal, hn::Set(bits, kRebias));
    // A subnormal is m * 2^-24: the mantissa of 2^-14 * (1 + m / 1024), less 2^-14, exactly.
    const auto smallest = hn::Set(bits, kSmallestNormal);
    const auto subnormal = hn::BitCast(
        bits, hn::Sub(hn::BitCast(D(), hn::Add(magnitude, smallest)), hn::BitCast(D(), smallest)));

    auto result = hn::IfThenElse(hn::Gt(hn::Set(bits, 0x400u << 13), magnitude), subnormal, normal);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits, 0x7bffu << 13)), special, result);
    return hn::BitCast(D(), hn::Or(result, sign));
  }

  static HWY_INLINE void store(V value, Stored* to) {
    const Bits bits;
    const auto all = hn::BitCast(bits, value);
    const auto magnitude = hn::And(all, hn::Set(bits, 0x7fffffffu));
    const auto sign = hn::ShiftRight<16>(hn::Xor(all, magnitude));
    const auto normal = round_off<13>(hn::Sub(magnitude, hn::Set(bits, kRebias)));
    // In [0.5, 1) the last bit of a float32 is worth 2^-24, as is the last of a subnormal float16:
    // the addition rounds there, and leaves the result in the lower bits.
    const auto one_half = hn::Set(bits, 126u << 23);
    const auto subnormal =
        hn::Sub(hn::BitCast(bits, hn::Add(hn::BitCast(D(), magnitude), hn::BitCast(D(), one_half))),
                one_half);
    const auto infinity = hn::Set(bits, 0x7c00u);
    const auto nan = hn::Set(bits, 0x7e00u);

    auto result =
        hn::IfThenElse(hn::Gt(hn::Set(bits, kSmallestNormal), magnitude), subnormal, normal);
    // From 2^16 on; what rounds up from below is infinity already.
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits, (143u << 23) - 1)), infinity, result);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits, 255u << 23)), nan, result);
    store_bits(hn::Or(result, sign), to);
  }
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace gradring::transport
HWY_AFTER_NAMESPACE();

#endif  // per target
