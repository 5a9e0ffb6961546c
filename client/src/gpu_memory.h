#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tl/expected.hpp>

#include "client/src/gpu_context.h"
#include "client/src/mapping.h"
#include "proto/status.h"

namespace gradring::client {

// Registered memory of a GPU: what copies it to the segment that follows it, and back. Copies are
// made by the GPU, out of and into pages that are pinned where the system allows it. Thread-safe.
class GpuMemory {
 public:
  // Null: the memory is the host's. An error says why a GPU's cannot be used.
  static tl::expected<std::shared_ptr<const GpuMemory>, Status> of(
      const void* memory, std::shared_ptr<const Mapping> shadow);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // Waits until the GPU has done what was put on `stream` until now. Refused where the stream is
  // being captured into a graph: nothing is done then that could be waited for.
  Status reach(CudaDriver::Stream stream) const;
  // Behind what was put on `stream` until now, and waits for it as well.
  Status fetch(std::byte* host, const std::byte* device, uint64_t bytes,
               CudaDriver::Stream stream) const;
  // Waits until it is there.
  Status deliver(std::byte* device, const std::byte* host, uint64_t bytes) const;

 private:
  GpuMemory(std::shared_ptr<const GpuContext> context, std::shared_ptr<const Mapping> shadow);

  const std::shared_ptr<const GpuContext> context_;
  const std::shared_ptr<const Mapping> shadow_;
  bool pinned_ = false;
};

}  // namespace gradring::client
