#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/cuda/elements.h"
#include "transport/cuda/fold_arguments.h"

#ifdef __CUDA_ARCH__
#define GRADRING_NOT_UNROLLED _Pragma("unroll 1")
#else
#define GRADRING_NOT_UNROLLED
#endif

// How kernels note what is not finite. Nearly always nothing is, and then a fold costs a test more
// of each result; so what is here may take its time, but for a gradient that is NaN throughout.
namespace gradring::transport::cuda {

// On the host by one thread after another.
inline __host__ __device__ void add_to(FoldTrace::Number* sum, FoldTrace::Number more) {
#ifdef __CUDA_ARCH__
  atomicAdd(sum, more);
#else
  *sum += more;
#endif
}

// What it was before. Most are no greater, which is seen without an atomic operation: what is read
// may be of before, but then it is too small.
inline __host__ __device__ FoldTrace::Number raise_to(FoldTrace::Number* most,
                                                      FoldTrace::Number value) {
  const FoldTrace::Number before = *most;
  if (before >= value) return before;
#ifdef __CUDA_ARCH__
  return atomicMax(most, value);
#else
  *most = value;
  return before;
#endif
}

// Of the elements from `first` on, those whose bit is set in `spoilt` have a result that is not
// finite. Before it is written: that may be over inputs. Element after element, and not unrolled:
// so it needs no more registers than the fold itself, of which more would leave room for fewer
// threads.
template <class Format>
inline __host__ __device__ void trace(const FoldArguments& a, size_t first, uint32_t spoilt) {
  using Stored = typename Format::Stored;
  GRADRING_NOT_UNROLLED
  for (; spoilt != 0; spoilt >>= 1, ++first) {
    if ((spoilt & 1) == 0) continue;
    const FoldTrace::Number element = a.element + first;
    if (raise_to(&a.trace->first, ~element) == 0) *a.raised = 1;
    GRADRING_NOT_UNROLLED
    for (uint32_t r = 0; r < a.num_traced; ++r) {
      const Stored stored = static_cast<const Stored*>(a.inputs[r])[first];
      if (is_finite<Format>(stored)) continue;
      add_to(&a.trace->many[a.numbers[r]], 1);
      raise_to(&a.trace->first_of[a.numbers[r]],
               ~(2 * element + (is_infinite<Format>(stored) ? 1 : 0)));
    }
  }
}

}  // namespace gradring::transport::cuda
