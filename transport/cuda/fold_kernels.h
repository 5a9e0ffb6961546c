#pragma once

#include <cstddef>
#include <span>

namespace gradring::transport {

// The kernels of transport/cuda/fold_kernels.cu, for cuModuleLoadData: code for several kinds of
// GPUs, of which the driver takes what fits. Empty where this was built without GRADRING_CUDA.
std::span<const std::byte> fold_kernels();

}  // namespace gradring::transport
