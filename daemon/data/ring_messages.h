#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/core/membership.h"
#include "daemon/data/shared_gpu_memory.h"
#include "daemon/fd.h"
#include "transport/shm/segment.h"

// What crosses between the two threads for the sake of trainers' rings (proto/ring.h).
namespace gradring::daemon {

using core::SessionId;

// ---- to the data thread ----

// Memory and bells of a trainer's rings.
struct SharedRing {
  transport::Segment memory;
  Fd submitted;  // an eventfd, rung by the trainer
  Fd ended;      // our end of a pair of sockets, rung by us
};
// From now on this session may name this segment in its rings. Stays mapped until it is taken back,
// or the ring is closed. Once more, when its trainer has shared what it stands for.
struct LendSegment {
  SessionId session = 0;
  uint64_t segment = 0;
  std::span<std::byte> memory;
  std::shared_ptr<const SharedGpuMemory> gpu = {};  // null: it stands for none
};
// From now on this session of the job may submit through its rings, naming these segments.
struct OpenRing {
  SessionId session = 0;
  JobId job{};
  uint32_t rank = 0;
  std::shared_ptr<const SharedRing> shared;
  std::vector<LendSegment> segments;
};
// SegmentTakenBack is the answer.
struct TakeBackSegment {
  SessionId session = 0;
  uint64_t segment = 0;
  uint64_t request = 0;  // of the trainer
};
// This memory is to be closed: rings name it no more, but in ops under way. GpuMemoryLetGo is the
// answer.
struct LetGoOfGpuMemory {
  SessionId session = 0;
  uint64_t request = 0;
  const SharedGpuMemory* memory = nullptr;  // to be compared with alone
  size_t gpu = 0;
};
// The session has left or is gone: RingClosed follows when none of its submissions is open.
struct CloseRing {
  SessionId session = 0;
  Failure why = {};  // with a device: that is lost, and what waits for it is told so
};

// ---- to the control thread ----

struct SegmentTakenBack {
  SessionId session = 0;
  uint64_t segment = 0;
  uint64_t request = 0;
  bool free = false;  // no open op uses it
};
struct GpuMemoryLetGo {
  SessionId session = 0;
  uint64_t request = 0;  // of FreeSegment
  size_t gpu = 0;
};
struct RingClosed {
  SessionId session = 0;
};
// Its trainer writes what no library of ours would, or does not read.
struct RingBroken {
  SessionId session = 0;
  std::string why;  // what its trainer does
};

}  // namespace gradring::daemon
