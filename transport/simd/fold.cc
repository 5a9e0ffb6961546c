#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "proto/reduction.h"
#include "transport/reducer.h"

// Highway compiles this file once per instruction set and chooses among them at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transport/simd/fold.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "transport/simd/formats-inl.h"
#include "transport/simd/kernel-inl.h"
#include "transport/simd/scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradring::transport {
namespace HWY_NAMESPACE {

using Kernel = size_t (*)(const void* const* inputs, size_t num_inputs, void* out, size_t count,
                          uint32_t divisor, const Scale& scale, FoldFindings* findings);

// Only an order sees the sign. Sums and products wrap, which C++ defines for unsigned types alone,
// and the bits are the same.
template <class Op, typename T>
using Integer = Native<std::conditional_t<std::is_same_v<Op, Min> || std::is_same_v<Op, Max>, T,
                                          std::make_unsigned_t<T>>>;
template <class Op, typename T>
using Byte = std::conditional_t<std::is_same_v<Op, Product>, WideByte, Integer<Op, T>>;

template <class Op, bool kScaled>
Kernel kernel_of_floats(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return &fold_all<Native<float>, Op, kScaled>;
    case Dtype::kFloat64:
      return &fold_all<Native<double>, Op, kScaled>;
    case Dtype::kFloat16:
      return &fold_all<Float16, Op, kScaled>;
    case Dtype::kBfloat16:
      return &fold_all<Bfloat16, Op, kScaled>;
    default:
      return nullptr;
  }
}

template <class Op>
Kernel kernel_of_integers(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt8:
      return &fold_all<Byte<Op, int8_t>, Op>;
    case Dtype::kInt16:
      return &fold_all<Integer<Op, int16_t>, Op>;
    case Dtype::kInt32:
      return &fold_all<Integer<Op, int32_t>, Op>;
    case Dtype::kInt64:
      return &fold_all<Integer<Op, int64_t>, Op>;
    case Dtype::kUint8:
      return &fold_all<Byte<Op, uint8_t>, Op>;
    case Dtype::kUint16:
      return &fold_all<Integer<Op, uint16_t>, Op>;
    case Dtype::kUint32:
      return &fold_all<Integer<Op, uint32_t>, Op>;
    case Dtype::kUint64:
      return &fold_all<Integer<Op, uint64_t>, Op>;
    default:
      return nullptr;
  }
}

template <class Op>
Kernel kernel_of(Dtype dtype, bool scaled) {
  if (is_integer(dtype)) return kernel_of_integers<Op>(dtype);
  return scaled ? kernel_of_floats<Op, true>(dtype) : kernel_of_floats<Op, false>(dtype);
}

Kernel kernel_of_bools(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return &fold_all<Bool, And>;
    case ReduceOp::kBxor:
      return &fold_all<Bool, Xor>;
    default:
      return &fold_all<Bool, Or>;
  }
}

Kernel kernel_for(Dtype dtype, ReduceOp op, bool scaled) {
  if (dtype == Dtype::kBool) return kernel_of_bools(op);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return kernel_of<Sum>(dtype, scaled);
    case ReduceOp::kMin:
      return kernel_of<Min>(dtype, scaled);
    case ReduceOp::kMax:
      return kernel_of<Max>(dtype, scaled);
    case ReduceOp::kProduct:
      return kernel_of<Product>(dtype, scaled);
    case ReduceOp::kBand:
      return kernel_of_integers<And>(dtype);
    case ReduceOp::kBor:
      return kernel_of_integers<Or>(dtype);
    case ReduceOp::kBxor:
      return kernel_of_integers<Xor>(dtype);
    case ReduceOp::kNone:
      break;
  }
  return nullptr;
}

size_t count_by_size(size_t element, uint64_t infinity, const void* data, size_t count,
                     size_t* first) {
  switch (element) {
    case 2:
      return count_exponents(data, count, static_cast<uint16_t>(infinity), first);
    case 4:
      return count_exponents(data, count, static_cast<uint32_t>(infinity), first);
    default:
      return count_exponents(data, count, infinity, first);
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace gradring::transport
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradring::transport {
namespace {

HWY_EXPORT(kernel_for);
HWY_EXPORT(count_by_size);
HWY_EXPORT(target_name);

// The bits of a float type's infinity: all of the exponent and no other. 0 for integers.
uint64_t infinity_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return 0x7f800000;
    case Dtype::kFloat64:
      return 0x7ff0000000000000;
    case Dtype::kFloat16:
      return 0x7c00;
    case Dtype::kBfloat16:
      return 0x7f80;
    default:
      return 0;
  }
}

template <typename Bits>
uint64_t magnitude_of(const void* element) {
  Bits bits;
  std::memcpy(&bits, element, sizeof(bits));
  return bits & (std::numeric_limits<Bits>::max() >> 1);
}

size_t fold_by_kernel(Dtype dtype, ReduceOp op, std::span<const void* const> inputs, void* out,
                      size_t count, uint32_t divisor, const Scale& scale, FoldFindings* findings) {
  const auto is_one = [](double factor) { return factor == 1; };
  const bool scales_inputs = !std::all_of(scale.inputs.begin(), scale.inputs.end(), is_one);
  const bool changes = divisor != 0 || scales_inputs || scale.result != 1;
  // Each of these is a bug of the caller; to go on would be to hand out wrong sums as good ones.
  if (!can_reduce(dtype, op).ok() || inputs.empty() || (changes && !is_float(dtype))) {
    std::fprintf(stderr, "gradring: fold(%s of %s, %zu inputs, divisor %u, %s) makes no sense\n",
                 std::string(name_of(op)).c_str(), std::string(name_of(dtype)).c_str(),
                 inputs.size(), divisor, scales_inputs ? "scaled" : "not scaled");
    std::abort();
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(kernel_for)(dtype, op, scales_inputs);
  return kernel(inputs.data(), inputs.size(), out, count, divisor, scale, findings);
}

}  // namespace

FoldFindings fold(Dtype dtype, ReduceOp op, std::span<const void* const> inputs, void* out,
                  size_t count, uint32_t divisor, const Scale& scale) {
  FoldFindings findings;
  fold_by_kernel(dtype, op, inputs, out, count, divisor, scale, &findings);
  return findings;
}

size_t fold_while_finite(Dtype dtype, ReduceOp op, std::span<const void* const> inputs, void* out,
                         size_t count, uint32_t divisor, const Scale& scale) {
  return fold_by_kernel(dtype, op, inputs, out, count, divisor, scale, nullptr);
}

size_t count_nonfinite(Dtype dtype, const void* data, size_t count, size_t* first) {
  if (const uint64_t infinity = infinity_of(dtype); infinity != 0) {
    return HWY_DYNAMIC_DISPATCH(count_by_size)(size_of(dtype), infinity, data, count, first);
  }
  *first = count;
  return 0;
}

bool is_nan(Dtype dtype, const void* element) {
  const uint64_t infinity = infinity_of(dtype);
  if (infinity == 0) return false;
  switch (size_of(dtype)) {
    case 2:
      return magnitude_of<uint16_t>(element) > infinity;
    case 4:
      return magnitude_of<uint32_t>(element) > infinity;
    default:
      return magnitude_of<uint64_t>(element) > infinity;
  }
}

const char* reducer_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace gradring::transport
#endif  // HWY_ONCE
