#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/status.h"
#include "proto/types.h"
#include "transport/reducer.h"

struct CUstream_st;  // what a cudaStream_t points to; said here, so that CUDA's headers are not
                     // needed

namespace gradring::transport {

// The pointers travel in the kernel's parameters, so that no table of them has to be copied to the
// GPU first, and to be kept there until the kernel has run. A node has about a rank for each GPU.
inline constexpr size_t kDeviceFoldInputsMax = 64;

// What `fold` of transport/reducer.h does, by the GPU: the same additions in the same order, and
// the same bits for every type and operation. The host-only twin is `fold` itself (transport/simd).
// This one does not count what is not finite.
//
// Enqueues the work on `stream` of the calling thread's current device (null: its default stream)
// and returns; the elements are read and written when the stream gets there. Until then `inputs[r]`
// and `out` stay the caller's to keep alive and untouched; the span itself may go at once. They are
// memory that this device can reach: of cudaMalloc, or pinned, or managed. `out` may be one of the
// inputs, or not overlap any of them. `count` elements each, aligned as the element is.
//
// Refused with kInvalidArgument before any GPU is asked: what can_reduce refuses, no input or more
// than kDeviceFoldInputsMax, a divisor or factor for what is no float, a pointer that is null or
// not aligned (a GPU that meets one fails everything else in the process too). kUnavailable: there
// is no GPU or driver to use. kInternal: CUDA would not launch. What fails later, say a pointer
// that the device cannot reach, shows when the stream is synchronised. Thread-safe.
Status device_fold(Dtype dtype, ReduceOp op, std::span<const void* const> inputs, void* out,
                   size_t count, uint32_t divisor, CUstream_st* stream, const Scale& scale = {});

}  // namespace gradring::transport
