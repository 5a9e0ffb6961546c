// The fold as functions that the driver finds by their names: gradring_fold_TYPE_OPERATION, in the
// numbers of proto/types.h; gradring_scaled_fold_... where factors have a part in it, which the
// others need not ask for at each element. An average is a sum here. They travel in the program as
// an image (fold_kernels.h), and are what device_fold.cu launches by CUDA's runtime.
#include "transport/cuda/fold_arguments.h"
#include "transport/cuda/fold_share.h"

using namespace gradring::transport::cuda;  // NOLINT: this file is of that

// An A100 or H100 holds all the blocks that are launched at once, if a thread needs no more than 32
// registers. The compiler would give it some more, for what a fold of floats hardly ever does.
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900
#define GRADRING_BLOCKS_AT_ONCE kBlocksPerMultiprocessor
#else
#define GRADRING_BLOCKS_AT_ONCE 1
#endif

// __grid_constant__: the pointers are read where the launch put them.
#define GRADRING_KERNEL(name, at_once, Format, Operation, scaled)        \
  extern "C" __global__ void __launch_bounds__(kBlockThreads, at_once)   \
      gradring_##name(const __grid_constant__ FoldArguments arguments) { \
    const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x; \
    const size_t threads = size_t{gridDim.x} * blockDim.x;               \
    fold_share<Format, Operation, scaled>(arguments, thread, threads);   \
  }
#define GRADRING_FOLD(dtype, op, Format, Operation) \
  GRADRING_KERNEL(fold_##dtype##_##op, 1, Format, Operation, false)
#define GRADRING_FOLD_OF_FLOATS(dtype, op, Format, Operation)                             \
  GRADRING_KERNEL(fold_##dtype##_##op, GRADRING_BLOCKS_AT_ONCE, Format, Operation, false) \
  GRADRING_KERNEL(scaled_fold_##dtype##_##op, GRADRING_BLOCKS_AT_ONCE, Format, Operation, true)
#define GRADRING_FOLDS_OF_FLOATS(dtype, Format)  \
  GRADRING_FOLD_OF_FLOATS(dtype, 1, Format, Sum) \
  GRADRING_FOLD_OF_FLOATS(dtype, 3, Format, Min) \
  GRADRING_FOLD_OF_FLOATS(dtype, 4, Format, Max) \
  GRADRING_FOLD_OF_FLOATS(dtype, 5, Format, Product)
#define GRADRING_FOLDS_OF_INTEGERS(dtype, Format) \
  GRADRING_FOLD(dtype, 1, Format, Sum)            \
  GRADRING_FOLD(dtype, 3, Format, Min)            \
  GRADRING_FOLD(dtype, 4, Format, Max)            \
  GRADRING_FOLD(dtype, 5, Format, Product)        \
  GRADRING_FOLD(dtype, 6, Format, And)            \
  GRADRING_FOLD(dtype, 7, Format, Or)             \
  GRADRING_FOLD(dtype, 8, Format, Xor)

GRADRING_FOLDS_OF_FLOATS(1, Float32)
GRADRING_FOLDS_OF_FLOATS(2, Float64)
GRADRING_FOLDS_OF_FLOATS(3, Float16)
GRADRING_FOLDS_OF_FLOATS(4, Bfloat16)
GRADRING_FOLDS_OF_INTEGERS(5, Integer<int8_t>)
GRADRING_FOLDS_OF_INTEGERS(6, Integer<int16_t>)
GRADRING_FOLDS_OF_INTEGERS(7, Integer<int32_t>)
GRADRING_FOLDS_OF_INTEGERS(8, Integer<int64_t>)
GRADRING_FOLDS_OF_INTEGERS(9, Integer<uint8_t>)
GRADRING_FOLDS_OF_INTEGERS(10, Integer<uint16_t>)
GRADRING_FOLDS_OF_INTEGERS(11, Integer<uint32_t>)
GRADRING_FOLDS_OF_INTEGERS(12, Integer<uint64_t>)
// As with_bools() has it.
GRADRING_FOLD(13, 1, Bool, Or)
GRADRING_FOLD(13, 3, Bool, And)
GRADRING_FOLD(13, 4, Bool, Or)
GRADRING_FOLD(13, 5, Bool, And)
GRADRING_FOLD(13, 6, Bool, And)
GRADRING_FOLD(13, 7, Bool, Or)
GRADRING_FOLD(13, 8, Bool, Xor)
