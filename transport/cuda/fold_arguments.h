#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/types.h"
#include "transport/cuda/device_fold.h"
#include "transport/reducer.h"

// What a kernel that folds is told. Without any header of CUDA's, so that whoever launches it by
// the driver needs no toolkit.
namespace gradring::transport::cuda {

// The widest load a thread has. 2,000 threads of two such loads on each multiprocessor have the
// memory of an H100 at 2.85 of the 2.95 TB/s that its own copies attain (docs/gpu-notes.md).
inline constexpr size_t kWideBytes = 16;

inline constexpr unsigned kBlockThreads = 256;
// What a GPU holds at once, so many times: the shorter a block's work, the sooner all are through
// together: a twentieth of the time on an H100. A longer array is strided over.
inline constexpr unsigned kWaves = 8;
// The 2048 threads that a data-centre GPU's multiprocessor holds at the most.
inline constexpr unsigned kBlocksPerMultiprocessor = 8;

// What kernels leave, in the memory of the GPU, of results that are not finite; all 0 if there are
// none. Elements are kept as their complement: so the first one is the greatest.
struct FoldTrace {
  using Number = unsigned long long;  // the widest that atomic operations take
  Number first;                       // ~element of the result
  // By input: how many of its elements are not finite where the result isn't either, and the first
  // of them, ~(2 * element + whether it is infinite, and no NaN).
  Number many[kDeviceFoldInputsMax];
  Number first_of[kDeviceFoldInputsMax];
};

// Elements come in three parts: a head up to the first 16-byte boundary, packs of 16 bytes, a tail.
// Where the pointers have no such boundaries in common, everything is head.
struct FoldArguments {
  const void* inputs[kDeviceFoldInputsMax];
  void* outs[kDeviceFoldInputsMax];  // the same result for each
  size_t head;                       // elements before the first pack
  size_t packs;                      // of kWideBytes
  size_t loose;                      // elements before and behind the packs
  uint32_t num_inputs;
  uint32_t num_outs;
  uint32_t divisor;  // 0: none
  // What floats are multiplied by, as Scale has it. Where `scaled` is 0 nothing is, and the kernel
  // is another one.
  uint32_t scaled;
  double factor;
  double factors[kDeviceFoldInputsMax];
  FoldTrace* trace;     // null: nobody looks for what is not finite
  uint32_t* raised;     // of the host: set to 1 when there is something in the trace
  uint64_t element;     // what the first element is to the trace
  uint32_t num_traced;  // inputs: all, or none where those are sums themselves
  uint8_t numbers[kDeviceFoldInputsMax];  // what they are to the trace
};

inline bool scales(const Scale& scale) {
  return scale.result != 1 || std::any_of(scale.inputs.begin(), scale.inputs.end(),
                                          [](double factor) { return factor != 1; });
}

// At least one input and one out, and kDeviceFoldInputsMax of each at the most.
inline FoldArguments fold_arguments(Dtype dtype, std::span<const void* const> inputs,
                                    std::span<void* const> outs, size_t count, uint32_t divisor,
                                    const Scale& scale = {}) {
  FoldArguments a = {};
  a.num_inputs = static_cast<uint32_t>(inputs.size());
  a.num_outs = static_cast<uint32_t>(outs.size());
  a.divisor = divisor;
  a.scaled = scales(scale) ? 1 : 0;
  a.factor = scale.result;
  for (size_t r = 0; r < inputs.size(); ++r) {
    a.factors[r] = r < scale.inputs.size() ? scale.inputs[r] : 1;
  }
  const size_t misaligned = reinterpret_cast<uintptr_t>(outs[0]) % kWideBytes;
  bool in_step = true;
  const auto keeps_step = [&in_step, misaligned](const void* pointer) {
    in_step = in_step && reinterpret_cast<uintptr_t>(pointer) % kWideBytes == misaligned;
  };
  for (size_t r = 0; r < inputs.size(); ++r) keeps_step(a.inputs[r] = inputs[r]);
  for (size_t r = 0; r < outs.size(); ++r) keeps_step(a.outs[r] = outs[r]);
  const size_t element = size_of(dtype);
  a.head = (kWideBytes - misaligned) % kWideBytes / element;
  if (!in_step || a.head > count) a.head = count;
  a.packs = (count - a.head) / (kWideBytes / element);
  a.loose = count - a.packs * (kWideBytes / element);
  return a;
}

// How many blocks of kBlockThreads have something to do, of kWaves times what the GPU holds; at
// least one element is folded.
inline unsigned fold_blocks(const FoldArguments& arguments, unsigned at_once) {
  const size_t useful = std::max(arguments.packs, arguments.loose);  // threads
  return static_cast<unsigned>(std::min((useful + kBlockThreads - 1) / kBlockThreads,
                                        size_t{kWaves} * std::max(at_once, 1U)));
}

}  // namespace gradring::transport::cuda
