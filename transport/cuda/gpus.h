#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tl/expected.hpp>

#include "proto/status.h"
#include "transport/gpus.h"

namespace gradring::transport {

// Who adds what lies on several GPUs. The order of additions of floats depends on it.
enum class GpuSumsBy : uint8_t {
  kKernels,   // of the daemon's own, which read other GPUs' memory: that of the reducer
  kNccl,      // what lies on one GPU by kernels, and their sums by NCCL, whose order is its own
  kMeasured,  // whichever of these is faster when the daemon starts
};

struct GpuSums {
  GpuSumsBy by = GpuSumsBy::kKernels;
  // For what NCCL has begun: a GPU that is gone lets the others wait for it, and tells nobody. A
  // trainer's kernels take turns with it, so that it takes milliseconds, or hundreds of them.
  std::chrono::milliseconds patience{30'000};
};

// What NCCL is to find in the environment, unless the user has said it: its ranks are in this
// process and meet over no network, and a call that is the first of its kind connects nobody, since
// whoever makes it cannot wait. Before there are other threads.
void set_nccl_environment(GpuSumsBy by);

// The GPUs of this machine, by NVIDIA's driver. `kernels`: fold_kernels(). Nothing is taken of a
// GPU before start(), or before memory of it is opened; then for as long as this, or what it has
// opened or made ready, lives. kUnavailable, in words: there is no driver, no GPU, or no kernel for
// any of them.
//
// Memory of several GPUs is summed by one of them after another, each of which must be able to read
// the memory of all others (NVLink, or PCIe where the machine allows it); else the sum is refused.
// By NCCL is summed what is on all GPUs, of types and operations that it has as the reducer has
// them, if start() found it there: how it went is in way().
tl::expected<std::shared_ptr<Gpus>, Status> open_gpus(std::span<const std::byte> kernels,
                                                      const GpuSums& sums = {});

}  // namespace gradring::transport
