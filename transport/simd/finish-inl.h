// What happens to a folded value before it is stored, once per instruction set: division and
// factor, the one NaN, and the search for what is not finite.
#if defined(GRADRING_TRANSPORT_SIMD_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADRING_TRANSPORT_SIMD_FINISH_INL_H_
#undef GRADRING_TRANSPORT_SIMD_FINISH_INL_H_
#else
#define GRADRING_TRANSPORT_SIMD_FINISH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "transport/reducer.h"
#include "transport/simd/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradring::transport {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// apply() takes the values of the elements from `at` on, before they are stored: `out` may be an
// input, and then the inputs are still there to be looked at. False: they are not to be stored,
// and that was the last that is wanted.
template <class Format, bool kFloat = std::is_floating_point_v<hn::TFromD<typename Format::D>>>
class Finish {
 public:
  using V = typename Format::V;
  Finish(const void* const*, size_t, uint32_t /*divisor*/, double /*factor*/, FoldFindings*) {}
  HWY_INLINE bool apply(size_t /*at*/, V&, V&, V&, V&) { return true; }
  HWY_INLINE bool apply(size_t /*at*/, size_t /*count*/, V&) { return true; }
};

template <class Format>
class Finish<Format, true> {
 public:
  using D = typename Format::D;
  using V = typename Format::V;

  // `findings` null: nothing that is not finite is to be stored.
  Finish(const void* const* inputs, size_t num_inputs, uint32_t divisor, double factor,
         FoldFindings* findings)
      : inputs_(inputs),
        num_inputs_(num_inputs),
        divide_(divisor != 0),
        divisor_(static_cast<T>(divisor)),
        scale_(factor != 1),
        factor_(static_cast<T>(factor)),
        findings_(findings) {}

  // Four whole vectors. Nearly always all is finite, and then one test of four costs no more than
  // to replace NaN after NaN would.
  HWY_INLINE bool apply(size_t at, V& v0, V& v1, V& v2, V& v3) {
    divide_and_scale(v0);
    divide_and_scale(v1);
    divide_and_scale(v2);
    divide_and_scale(v3);
    const auto finite =
        hn::And(hn::And(is_finite(v0), is_finite(v1)), hn::And(is_finite(v2), is_finite(v3)));
    if (HWY_LIKELY(hn::AllTrue(D(), finite))) return true;
    if (findings_ == nullptr) return false;
    const size_t lanes = hn::Lanes(D());
    settle(at, lanes, v0);
    settle(at + lanes, lanes, v1);
    settle(at + 2 * lanes, lanes, v2);
    settle(at + 3 * lanes, lanes, v3);
    return true;
  }

  // The first `count` elements of a vector.
  HWY_INLINE bool apply(size_t at, size_t count, V& value) {
    divide_and_scale(value);
    const Mask nonfinite = hn::AndNot(is_finite(value), hn::FirstN(D(), count));
    if (HWY_LIKELY(hn::AllFalse(D(), nonfinite))) return true;
    if (findings_ == nullptr) return false;
    settle(at, count, value);
    return true;
  }

 private:
  using T = hn::TFromD<D>;
  using Mask = hn::Mask<D>;
  using Stored = typename Format::Stored;

  HWY_INLINE void divide_and_scale(V& value) const {
    if (divide_) value = hn::Div(value, hn::Set(D(), divisor_));
    if (scale_) value = hn::Mul(value, hn::Set(D(), factor_));
  }

  // As it will be stored, and as it was loaded as well: between the largest number of the format
  // and kInfiniteFrom there is none that could be loaded.
  static HWY_INLINE Mask is_finite(V value) {
    return hn::Lt(hn::Abs(value), hn::Set(D(), Format::kInfiniteFrom));
  }

  // Counts what is not finite. Which NaN an instruction returns depends on the processor and on the
  // order in which the compiler put its operands: all become the one quiet NaN with sign and
  // payload zero.
  void settle(size_t at, size_t count, V& value) {
    const D d;
    const Mask nonfinite = hn::AndNot(is_finite(value), hn::FirstN(d, count));
    if (hn::AllFalse(d, nonfinite)) return;
    findings_->nonfinite += hn::CountTrue(d, nonfinite);
    value = hn::IfThenElse(hn::Eq(value, value), value, canonical_nan());

    Mask born_here = nonfinite;
    for (size_t r = 0; r < num_inputs_; ++r) {
      const V input = load(static_cast<const Stored*>(inputs_[r]) + at, count);
      born_here = hn::And(born_here, is_finite(input));
    }
    if (hn::AllFalse(d, born_here)) return;
    if (findings_->overflows == 0) {
      findings_->first_overflow = at + static_cast<size_t>(hn::FindFirstTrue(d, born_here));
    }
    findings_->overflows += hn::CountTrue(d, born_here);
  }

  static V load(const Stored* from, size_t count) {
    if (count == hn::Lanes(D())) return Format::load(from);
    alignas(64) Stored piece[hn::MaxLanes(D())] = {};
    std::memcpy(piece, from, count * sizeof(Stored));
    return Format::load(piece);
  }

  static HWY_INLINE V canonical_nan() {
    using Bits = hwy::MakeUnsigned<T>;
    constexpr Bits kQuietNan =
        sizeof(T) == 4 ? Bits{0x7fc00000u} : Bits{0x7ff8} << (8 * sizeof(T) - 16);
    return hn::BitCast(D(), hn::Set(hn::RebindToUnsigned<D>(), kQuietNan));
  }

  const void* const* const inputs_;
  const size_t num_inputs_;
  const bool divide_;
  const T divisor_;
  const bool scale_;
  const T factor_;
  FoldFindings* const findings_;
};

}  // namespace HWY_NAMESPACE
}  // namespace gradring::transport
HWY_AFTER_NAMESPACE();

#endif  // per target
