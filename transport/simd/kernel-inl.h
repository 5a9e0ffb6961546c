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

#include "transport/reducer.h"
#include "transport/simd/finish-inl.h"
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

struct And {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(a, b);
  }
};

struct Or {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(a, b);
  }
};

struct Xor {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(a, b);
  }
};

// Elements of input `r`, as they are folded.
template <class Format, bool kScaled>
class Load {
 public:
  Load(const Scale& scale, size_t r) {
    if constexpr (kScaled) {
      factor_ = static_cast<T>(r < scale.inputs.size() ? scale.inputs[r] : 1);
    }
  }
  HWY_INLINE typename Format::V operator()(const typename Format::Stored* from) const {
    if constexpr (kScaled) {
      return hn::Mul(Format::load(from), hn::Set(typename Format::D(), factor_));
    } else {
      return Format::load(from);
    }
  }

 private:
  using T = hn::TFromD<typename Format::D>;
  T factor_ = 1;
};

// out[i] = inputs[0][i] op inputs[1][i] op ..., for `count` elements and at least one input.
//
// Four vectors at a time hide the latency of the operation behind one another and spread the cost
// of the inner loop, so that any number of inputs is folded in one pass, in registers. All inputs
// of a group are read before it is written: therefore `out` may be any of them.
//
// Returns how many were folded: all of them, unless nothing that is not finite is to be stored,
// which `findings` being null says.
template <class Format, class Op, bool kScaled = false>
size_t fold_all(const void* const* inputs, size_t num_inputs, void* out, size_t count,
                uint32_t divisor, const Scale& scale, FoldFindings* findings) {
  using Stored = typename Format::Stored;
  using D = typename Format::D;
  constexpr size_t kLanesMax = hn::MaxLanes(D());
  const size_t lanes = hn::Lanes(D());
  Finish<Format> finish(inputs, num_inputs, divisor, scale.result, findings);
  auto* const to = static_cast<Stored*>(out);

  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const Stored* from = static_cast<const Stored*>(inputs[0]) + i;
    const Load<Format, kScaled> first(scale, 0);
    auto v0 = first(from);
    auto v1 = first(from + lanes);
    auto v2 = first(from + 2 * lanes);
    auto v3 = first(from + 3 * lanes);
    for (size_t r = 1; r < num_inputs; ++r) {
      from = static_cast<const Stored*>(inputs[r]) + i;
      const Load<Format, kScaled> load(scale, r);
      v0 = Op::apply(v0, load(from));
      v1 = Op::apply(v1, load(from + lanes));
      v2 = Op::apply(v2, load(from + 2 * lanes));
      v3 = Op::apply(v3, load(from + 3 * lanes));
    }
    if (!finish.apply(i, v0, v1, v2, v3)) return i;
    Format::store(v0, to + i);
    Format::store(v1, to + i + lanes);
    Format::store(v2, to + i + 2 * lanes);
    Format::store(v3, to + i + 3 * lanes);
  }

  // The rest goes through a vector-sized buffer and the very same instructions, so that a value
  // does not depend on where in its buffer it stands.
  alignas(64) Stored piece[kLanesMax] = {};
  for (; i < count; i += lanes) {
    const size_t left = std::min(lanes, count - i);
    const size_t bytes = left * sizeof(Stored);
    std::memcpy(piece, static_cast<const Stored*>(inputs[0]) + i, bytes);
    auto v = Load<Format, kScaled>(scale, 0)(piece);
    for (size_t r = 1; r < num_inputs; ++r) {
      std::memcpy(piece, static_cast<const Stored*>(inputs[r]) + i, bytes);
      v = Op::apply(v, Load<Format, kScaled>(scale, r)(piece));
    }
    if (!finish.apply(i, left, v)) return i;
    Format::store(v, piece);
    std::memcpy(to + i, piece, bytes);
  }
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace gradring::transport
HWY_AFTER_NAMESPACE();

#endif  // per target
