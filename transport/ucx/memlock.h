#pragma once

#include <cstdint>

#include "proto/status.h"
#include "transport/ucx/devices.h"

namespace gradring::transport {

// How much memory a process may lock, and so how much an RDMA device may move for it.
struct LockableMemory {
  bool privileged = false;  // CAP_IPC_LOCK: no limit holds
  uint64_t limit_bytes = 0;
};
LockableMemory lockable_memory();

// Pure: refuses an RDMA device, chosen by name or by us, that could not pin what it moves.
Status check_memlock(const DeviceChoice& choice, const LockableMemory& memory);

}  // namespace gradring::transport
