#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "client/src/gpu/gpu_context.h"
#include "client/src/gpu/gpu_pages.h"

namespace gradring::client {

// Memory of ours on a GPU, which the daemon can open: what it sums there of memory that it cannot
// open, or that nobody let it open, passes through. Thread-safe.
class GpuBlock {
 public:
  // On the GPU that `memory` is of. Null where the driver has so much no more, and where this
  // process would have more than `most` bytes of such blocks: then everything goes by the host.
  static std::shared_ptr<const GpuBlock> beside(const void* memory, uint64_t bytes, uint64_t most);
  // No stream has anything to do with it any more, and the daemon must have closed it.
  ~GpuBlock();
  GpuBlock(const GpuBlock&) = delete;
  GpuBlock& operator=(const GpuBlock&) = delete;

  std::byte* data() const { return pages_->data(); }
  const GpuPages& pages() const { return *pages_; }

 private:
  GpuBlock(std::shared_ptr<const GpuContext> context, std::unique_ptr<const GpuPages> pages,
           uint64_t bytes)
      : context_(std::move(context)), pages_(std::move(pages)), bytes_(bytes) {}

  const std::shared_ptr<const GpuContext> context_;
  std::unique_ptr<const GpuPages> pages_;
  const uint64_t bytes_;
};

}  // namespace gradring::client
