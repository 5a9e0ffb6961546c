#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/topology.pb.h"

namespace gradring::daemon {

// The card of a lane, "mlx5_0:1 (RDMA)", by its index in the report; -1: no card of the machine.
int32_t nic_of(const wire::MachineReport& machine, const std::string& lane);

// For each of these GPUs the lanes that are nearest to it, by their numbers: those of the first of
// the cards that the look at the machine has chosen for it and that a lane goes by. None: nothing
// is known, or no lane goes by one of them.
std::vector<std::vector<uint8_t>> lanes_near(const wire::MachineReport& machine,
                                             std::span<const std::array<std::byte, 16>> gpus,
                                             std::span<const std::string> lanes);

}  // namespace gradring::daemon
