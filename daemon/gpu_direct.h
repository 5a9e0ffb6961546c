#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/data/outbox.h"
#include "transport/gpus.h"

namespace gradring::daemon {

// Whether slices of what is summed on GPUs go to other nodes from there.
struct GpuDirect {
  bool on = false;
  std::string how;  // "from the host's memory: gpu-direct is off"; empty: no GPU sums here
  std::vector<std::array<std::byte, 16>> gpus;  // their UUIDs, where it is on
};
// Where it is wished for it is tried with a little memory of the first GPU that works (`gpus`: null
// where none sums). Logs what came of it. On a thread that may use the lanes.
GpuDirect gpu_direct_of(const Config& config, transport::Gpus* gpus, const Lanes& lanes);

}  // namespace gradring::daemon
