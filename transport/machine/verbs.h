#pragma once

#include <cstdint>
#include <vector>

#include "transport/machine/answers.h"

namespace gradring::machine {

// Asks libibverbs, which is loaded and stays; where that is not installed, or there is no RDMA
// card, or no module of the kernel for it, there are none.
std::vector<RdmaDevice> ask_verbs();

// Bits per second of a port by the codes of ibv_port_attr: lanes, and the speed of one. By the
// names people use, that is without the overhead of the coding: 4 lanes of NDR are 400 Gbit/s. 0:
// unknown.
uint64_t rate_of_port(uint8_t active_width, uint8_t active_speed);

}  // namespace gradring::machine
