#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <tl/expected.hpp>

#include "proto/status.h"
#include "transport/gpus.h"

namespace gradring::transport {

// The GPUs of this machine, by NVIDIA's driver. `kernels`: fold_kernels(). Nothing is taken of a
// GPU before start(), or before memory of it is opened; then for as long as this, or what it has
// opened or made ready, lives. kUnavailable, in words: there is no driver, no GPU, or no kernel for
// any of them.
//
// Memory of several GPUs is summed by one of them after another, each of which must be able to read
// the memory of all others (NVLink, or PCIe where the machine allows it); else the sum is refused.
tl::expected<std::shared_ptr<Gpus>, Status> open_gpus(std::span<const std::byte> kernels);

}  // namespace gradring::transport
