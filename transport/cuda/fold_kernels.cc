#include "transport/cuda/fold_kernels.h"

#ifdef GRADRING_FOLD_KERNELS  // the file that nvcc made
// The driver wants it at a boundary of 8 bytes.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".global gradring_fold_kernels_begin\n"
    ".hidden gradring_fold_kernels_begin\n"
    "gradring_fold_kernels_begin:\n"
    ".incbin \"" GRADRING_FOLD_KERNELS
    "\"\n"
    ".global gradring_fold_kernels_end\n"
    ".hidden gradring_fold_kernels_end\n"
    "gradring_fold_kernels_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" const std::byte gradring_fold_kernels_begin[];
extern "C" const std::byte gradring_fold_kernels_end[];

namespace gradring::transport {
std::span<const std::byte> fold_kernels() {
  return {gradring_fold_kernels_begin, gradring_fold_kernels_end};
}
}  // namespace gradring::transport
#else
namespace gradring::transport {
std::span<const std::byte> fold_kernels() { return {}; }
}  // namespace gradring::transport
#endif
