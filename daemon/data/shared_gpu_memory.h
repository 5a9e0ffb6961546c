#pragma once

#include <cstdint>
#include <memory>

#include "daemon/core/membership.h"
#include "transport/gpus.h"
#include "transport/shm/segment.h"

namespace gradring::daemon {

// Memory of a GPU that is open here, and the segment that stands for it, made ready for GPUs.
struct SharedGpuMemory {
  std::shared_ptr<const transport::Segment> segment;
  std::shared_ptr<const transport::OpenGpuMemory> open;
  std::unique_ptr<transport::Registration> ready;
};

// To the control thread: what became of a trainer's ShareGpuMemory.
struct GpuMemoryOpened {
  core::SessionId session = 0;
  uint64_t request = 0;
  uint64_t segment = 0;
  std::shared_ptr<const SharedGpuMemory> memory;  // null: refused
  Status refused;
};
// Likewise, when the memory of a segment is free, and that of a GPU closed for which it stood.
struct SegmentFreed {
  core::SessionId session = 0;
  uint64_t request = 0;  // of FreeSegment
};

}  // namespace gradring::daemon
