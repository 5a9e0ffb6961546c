#pragma once

#include <cstddef>

#include "proto/types.h"
#include "transport/reducer.h"

namespace gradring::transport {

// float32 as it travels between nodes (proto/types.h, WireType).
//
//   kFloat16, kBfloat16   2 bytes an element, rounded to nearest even
//   kInt8                 for each block of kInt8Block elements, the last one perhaps shorter,
//   first
//                         its scale s as a float32 and then a signed byte q for each: the element
//                         is q * s. s is the block's largest magnitude / 127, cut to 17 bits of
//                         mantissa, so that every q * s is exact; q is rounded to nearest even. A
//                         block whose largest magnitude is below 1.5e-36 becomes zeros; one that
//                         is the same infinity throughout stays so (s is that, and q is 1), and
//                         any other that has a NaN or an infinity becomes NaN throughout
//
// Whatever was unpacked packs into the same bytes again: a value that went through once is the same
// for everybody from then on. Both are thread-safe; `packed` has packed_bytes(wire, count) bytes
// and needs no alignment but of float16 and bfloat16 to 2; it overlaps nothing. kNative is a bug of
// the caller and ends the process.

// The findings are about what went in and was rounded: an element that was finite and is not any
// more counts as an overflow (float16 ends at 65,504). A NaN has to be the one that fold() makes.
FoldFindings pack(WireType wire, const float* from, size_t count, void* packed);
void unpack(WireType wire, const void* packed, size_t count, float* to);

}  // namespace gradring::transport
