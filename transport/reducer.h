#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/types.h"

namespace gradring::transport {

// What a fold saw in its result while it wrote it; all 0 for integers.
struct FoldFindings {
  size_t nonfinite = 0;  // elements that are NaN or infinite, as stored
  // Those of them whose inputs are all finite: the sum outgrew its type here. Where the type is a
  // half, so may the rounding.
  size_t overflows = 0;
  size_t first_overflow = 0;  // the first such element, if there is one

  bool operator==(const FoldFindings&) const = default;
};

// What floats are multiplied by, rounded to what they are computed in; 1: not at all. Each product
// is rounded before anything is done with it.
struct Scale {
  std::span<const double> inputs;  // of each input from the first on; those behind have none
  double result = 1;               // after the division
};

// out[i] = inputs[0][i] (op) inputs[1][i] (op) ... in exactly this order, then divided by `divisor`
// if it is not 0. float16 and bfloat16 are computed in float32 throughout and rounded to nearest
// even once, at the end. float32 and float64 add in their own type; integers wrap. min and max give
// NaN if any input is NaN, and hold -0 to be less than +0. Every NaN in the result is the quiet one
// with sign and payload zero. A bool that is not 0 is 1. kAverage folds as kSum: only the caller
// knows the divisor.
//
// `out` may be one of the inputs, or not overlap any of them. `count` elements each; pointers need
// the alignment of the element. Requires can_reduce(dtype, op).ok() (proto/reduction.h), at least
// one input, and neither divisor nor scale for what is no float; anything else is a bug and ends
// the process. Thread-safe.
//
// The bits of the result depend on the inputs and their order alone: not on the processor's vector
// width, the alignment or the position within a larger buffer.
FoldFindings fold(Dtype dtype, ReduceOp op, std::span<const void* const> inputs, void* out,
                  size_t count, uint32_t divisor, const Scale& scale = {});

// The same, as far as the result is finite: returns how many elements were folded, which is `count`
// if all are finite. Those behind, of which the first few may be finite, are as they were in `out`.
size_t fold_while_finite(Dtype dtype, ReduceOp op, std::span<const void* const> inputs, void* out,
                         size_t count, uint32_t divisor, const Scale& scale = {});

// How many of `count` elements are NaN or infinite, and in `first` the index of the first of them
// (`count` if there is none). 0 for integers. As aligned as the element is. Thread-safe.
size_t count_nonfinite(Dtype dtype, const void* data, size_t count, size_t* first);
// Whether this one element is NaN; false for integers.
bool is_nan(Dtype dtype, const void* element);

// The instruction set chosen at run time, e.g. "AVX2".
const char* reducer_target();

}  // namespace gradring::transport
