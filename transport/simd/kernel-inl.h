// The operations and the loop that folds, once per instruction set.
#if defined(GRADRING_TRANSPORT_SIMD_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADRING_TRANSPORT_SIMD_KERNEL_INL_H_
#undef GRADRING_TRANSPORT_SIMD_KERNEL_INL_H_
#else
#define GRADRING_TRANSPORT_SIMD_KERNEL_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "transport/simd/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradring::transport {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
};

// For floats the instruction sets disagree about NaN and about zeros of different sign, so both
// orders are asked and the answers joined by OR. Equal numbers have equal bits, except that -0 wins
// from +0; with a NaN the two answers are the two operands, and NaN OR anything is a NaN.
struct Min {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
      return hn::Or(hn::IfThenElse(hn::Lt(a, b), a, b), hn::IfThenElse(hn::Lt(b, a), b, a));
    } else {
      return hn::Min(a, b);
    }
  }
};

// The same seen in a mirror: +0 wins from -0.
struct Max {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
      return hn::Neg(Min::apply(hn::Neg(a), hn::Neg(b)));
    } else {
      return hn::Max(a, b);
    }
  }
};

// What happens to a folded value before it is stored. Which NaN an instruction returns depends on
// the processor and on the order in which the compiler put its operands: all become the one quiet
// NaN with sign and payload zero.
template <class D, bool kFloat = std::is_floating_point_v<hn::TFromD<D>>>
class Finish {
 public:
  explicit Finish(uint32_t /*divisor*/) {}
  template <class V>
  HWY_INLINE V apply(V value) const {
    return value;
  }
};

template <class D>
class Finish<D, true> {
 public:
  using T = hn::TFromD<D>;
  explicit Finish(uint32_t divisor) : divide_(divisor != 0), divisor_(static_cast<T>(divisor)) {}
  template <class V>
  HWY_INLINE V apply(V value) const {
    if (divide_) value = hn::Div(value, hn::Set(D(), divisor_));
    return hn::IfThenElse(hn::Eq(value, value), value, canonical_nan());
  }

 private:
  static HWY_INLINE hn::Vec<D> canonical_nan() {
    using Bits = hwy::MakeUnsigned<T>;
    constexpr Bits kQuietNan =
        sizeof(T) == 4 ? Bits{0x7fc00000u} : Bits{0x7ff8} << (8 * sizeof(T) - 16);
    return hn::BitCast(D(), hn::Set(hn::RebindToUnsigned<D>(), kQuietNan));
  }

  bool divide_;
  T divisor_;
};

// out[i] = inputs[0][i] op inputs[1][i] op ..., for `count` elements and at least one input.
//
// Four vectors at a time hide the latency of the operation behind one another and spread the cost
// of the inner loop, so that any number of inputs is folded in one pass, in registers. All inputs
// of a group are read before it is written: therefore `out` may be any of them.
template <class Format, class Op>
void fold_all(const void* const* inputs, size_t num_inputs, void* out, size_t count,
              uint32_t divisor) {
  using Stored = typename Format::Stored;
  using D = typename Format::D;
  constexpr size_t kLanesMax = hn::MaxLanes(D());
  const size_t lanes = hn::Lanes(D());
  const Finish<D> finish(divisor);
  auto* const to = static_cast<Stored*>(out);

  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const Stored* from = static_cast<const Stored*>(inputs[0]) + i;
    auto v0 = Format::load(from);
    auto v1 = Format::load(from + lanes);
    auto v2 = Format::load(from + 2 * lanes);
    auto v3 = Format::load(from + 3 * lanes);
    for (size_t r = 1; r < num_inputs; ++r) {
      from = static_cast<const Stored*>(inputs[r]) + i;
      v0 = Op::apply(v0, Format::load(from));
      v1 = Op::apply(v1, Format::load(from + lanes));
      v2 = Op::apply(v2, Format::load(from + 2 * lanes));
      v3 = Op::apply(v3, Format::load(from + 3 * lanes));
    }
    Format::store(finish.apply(v0), to + i);
    Format::store(finish.apply(v1), to + i + lanes);
    Format::store(finish.apply(v2), to + i + 2 * lanes);
    Format::store(finish.apply(v3), to + i + 3 * lanes);
  }

  // The rest goes through a vector-sized buffer and the very same instructions, so that a value
  // does not depend on where in its buffer it stands.
  alignas(64) Stored piece[kLanesMax] = {};
  for (; i < count; i += lanes) {
    const size_t bytes = std::min(lanes, count - i) * sizeof(Stored);
    std::memcpy(piece, static_cast<const Stored*>(inputs[0]) + i, bytes);
    auto v = Format::load(piece);
    for (size_t r = 1; r < num_inputs; ++r) {
      std::memcpy(piece, static_cast<const Stored*>(inputs[r]) + i, bytes);
      v = Op::apply(v, Format::load(piece));
    }
    Format::store(finish.apply(v), piece);
    std::memcpy(to + i, piece, bytes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gradring::transport
HWY_AFTER_NAMESPACE();

#endif  // per target
