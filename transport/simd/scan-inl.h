// Counts what is not finite in an array, once per instruction set.
#if defined(GRADRING_TRANSPORT_SIMD_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADRING_TRANSPORT_SIMD_SCAN_INL_H_
#undef GRADRING_TRANSPORT_SIMD_SCAN_INL_H_
#else
#define GRADRING_TRANSPORT_SIMD_SCAN_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace gradring::transport {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Of floats whose bits are `Bits` and whose infinity is `infinity`: what has all bits of the
// exponent set is an infinity or a NaN.
template <typename Bits>
size_t count_exponents(const void* data, size_t count, Bits infinity, size_t* first) {
  const hn::ScalableTag<Bits> d;
  const size_t lanes = hn::Lanes(d);
  const auto exponent = hn::Set(d, infinity);
  const auto* const from = static_cast<const Bits*>(data);
  alignas(64) Bits piece[hn::MaxLanes(d)] = {};
  size_t found = 0;
  *first = count;
  for (size_t i = 0; i < count; i += lanes) {
    const Bits* at = from + i;
    if (i + lanes > count) {  // zeros behind the last are finite
      std::fill_n(piece, lanes, Bits{0});
      std::memcpy(piece, at, (count - i) * sizeof(Bits));
      at = piece;
    }
    const auto nonfinite = hn::Eq(hn::And(hn::LoadU(d, at), exponent), exponent);
    const size_t here = hn::CountTrue(d, nonfinite);
    if (here != 0 && found == 0) {
      *first = i + static_cast<size_t>(hn::FindFirstTrue(d, nonfinite));
    }
    found += here;
  }
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace gradring::transport
HWY_AFTER_NAMESPACE();

#endif  // per target
