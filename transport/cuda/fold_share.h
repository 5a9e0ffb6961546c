#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "proto/types.h"
#include "transport/cuda/elements.h"
#include "transport/cuda/fold_arguments.h"
#include "transport/cuda/fold_trace.h"

// The fold as many threads do it, each its share: by CUDA's (device_fold.cu, fold_kernels.cu), or
// in the tests by a loop on the host.
namespace gradring::transport::cuda {

template <class Format, class Load>
inline __host__ __device__ Load load_lanes(const FoldArguments& a, uint32_t input, size_t first) {
  const auto* const from = static_cast<const typename Format::Stored*>(a.inputs[input]) + first;
  return *reinterpret_cast<const Load*>(from);
}

// What was loaded of an input becomes a part of what is folded of those before.
template <class Format, class Op, bool kScaled, class Load, size_t kLanes>
inline __host__ __device__ void fold_in(const FoldArguments& a, uint32_t input, const Load& loaded,
                                        typename Format::Value (&folded)[kLanes]) {
  typename Format::Stored lanes[kLanes];
  std::memcpy(lanes, &loaded, sizeof(loaded));
  for (size_t i = 0; i < kLanes; ++i) {
    auto value = Format::load(lanes[i]);
    if constexpr (kScaled) value *= static_cast<typename Format::Value>(a.factors[input]);
    folded[i] = input == 0 ? value : Op::apply(folded[i], value);
  }
}

// Elements first to first + kLanes - 1, read with one load an input and written with one store.
// All inputs are read before anything is written: therefore outs may be any of them.
template <class Format, class Op, bool kScaled, class Load, size_t kLanes>
inline __host__ __device__ void fold_lanes(const FoldArguments& a, size_t first) {
  using Stored = typename Format::Stored;
  static_assert(sizeof(Load) == kLanes * sizeof(Stored));
  typename Format::Value folded[kLanes] = {};
  // Two loads at a time, of which none waits for the other.
  uint32_t input = 0;
  for (; input + 1 < a.num_inputs; input += 2) {
    const Load one = load_lanes<Format, Load>(a, input, first);
    const Load other = load_lanes<Format, Load>(a, input + 1, first);
    fold_in<Format, Op, kScaled>(a, input, one, folded);
    fold_in<Format, Op, kScaled>(a, input + 1, other, folded);
  }
  if (input < a.num_inputs) {
    const Load last = load_lanes<Format, Load>(a, input, first);
    fold_in<Format, Op, kScaled>(a, input, last, folded);
  }
  Stored lanes[kLanes];
  uint32_t spoilt = 0;  // bits of lanes
  for (size_t i = 0; i < kLanes; ++i) {
    lanes[i] = finish<Format, kScaled>(folded[i], a.divisor, a.factor);
    if constexpr (std::is_floating_point_v<typename Format::Value>) {
      spoilt |= is_finite<Format>(lanes[i]) ? 0 : 1u << i;
    }
  }
  if constexpr (std::is_floating_point_v<typename Format::Value>) {
    if (spoilt != 0 && a.trace != nullptr) trace<Format>(a, first, spoilt);
  }
  Load result;
  std::memcpy(&result, lanes, sizeof(result));
  GRADRING_NOT_UNROLLED
  for (uint32_t r = 0; r < a.num_outs; ++r) {
    // Counted in elements, the compilers of CUDA 13.0 and before take it apart for sm_80 and sm_90,
    // and store a pack in pieces. Test: fold_ptx.
    auto* const to = static_cast<char*>(a.outs[r]) + first * sizeof(Stored);
    *reinterpret_cast<Load*>(to) = result;
  }
}

// The share of thread number `thread` of `threads`. Neighbouring threads take neighbouring packs,
// and all take a stride over everybody's: any number of threads does any number of elements.
// `kScaled`: of floats, as the arguments say.
template <class Format, class Op, bool kScaled = false>
inline __host__ __device__ void fold_share(const FoldArguments& a, size_t thread, size_t threads) {
  using Stored = typename Format::Stored;
  constexpr size_t kLanes = kWideBytes / sizeof(Stored);
  for (size_t pack = thread; pack < a.packs; pack += threads) {
    fold_lanes<Format, Op, kScaled, uint4, kLanes>(a, a.head + pack * kLanes);
  }
  for (size_t i = thread; i < a.loose; i += threads) {
    fold_lanes<Format, Op, kScaled, Stored, 1>(a, i < a.head ? i : i + a.packs * kLanes);
  }
}

template <class Op, class Visit>
auto with_integers(Dtype dtype, Visit visit) -> decltype(visit(Float32(), Sum())) {
  switch (dtype) {
    case Dtype::kInt8:
      return visit(Integer<int8_t>(), Op());
    case Dtype::kInt16:
      return visit(Integer<int16_t>(), Op());
    case Dtype::kInt32:
      return visit(Integer<int32_t>(), Op());
    case Dtype::kInt64:
      return visit(Integer<int64_t>(), Op());
    case Dtype::kUint8:
      return visit(Integer<uint8_t>(), Op());
    case Dtype::kUint16:
      return visit(Integer<uint16_t>(), Op());
    case Dtype::kUint32:
      return visit(Integer<uint32_t>(), Op());
    case Dtype::kUint64:
      return visit(Integer<uint64_t>(), Op());
    default:
      return {};
  }
}

template <class Op, class Visit>
auto with_numbers(Dtype dtype, Visit visit) -> decltype(visit(Float32(), Sum())) {
  switch (dtype) {
    case Dtype::kFloat32:
      return visit(Float32(), Op());
    case Dtype::kFloat64:
      return visit(Float64(), Op());
    case Dtype::kFloat16:
      return visit(Float16(), Op());
    case Dtype::kBfloat16:
      return visit(Bfloat16(), Op());
    default:
      return with_integers<Op>(dtype, visit);
  }
}

template <class Visit>
auto with_bools(ReduceOp op, Visit visit) -> decltype(visit(Float32(), Sum())) {
  switch (op) {
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return visit(Bool(), And());
    case ReduceOp::kBxor:
      return visit(Bool(), Xor());
    default:
      return visit(Bool(), Or());
  }
}

// visit(format, operation) of what dtype and op stand for. Requires can_reduce(dtype, op).ok().
template <class Visit>
auto with_kind(Dtype dtype, ReduceOp op, Visit visit) -> decltype(visit(Float32(), Sum())) {
  if (dtype == Dtype::kBool) return with_bools(op, visit);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return with_numbers<Sum>(dtype, visit);
    case ReduceOp::kMin:
      return with_numbers<Min>(dtype, visit);
    case ReduceOp::kMax:
      return with_numbers<Max>(dtype, visit);
    case ReduceOp::kProduct:
      return with_numbers<Product>(dtype, visit);
    case ReduceOp::kBand:
      return with_integers<And>(dtype, visit);
    case ReduceOp::kBor:
      return with_integers<Or>(dtype, visit);
    case ReduceOp::kBxor:
      return with_integers<Xor>(dtype, visit);
    case ReduceOp::kNone:
      break;
  }
  return {};
}

}  // namespace gradring::transport::cuda
