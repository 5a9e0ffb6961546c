#pragma once

#include "transport/machine/answers.h"
#include "transport/machine/machine.h"
#include "transport/machine/tree.h"

namespace gradring::machine {

// Pure: joins what hwloc drew with what the drivers said, by PCI address. NVIDIA's GPUs are there
// even where NVML is not, and network cards even where they have no RDMA; whatever a driver tells
// of a device that is not in the tree stands by itself, with a note.
Machine assemble(const Tree& tree, const Answers& answers);

}  // namespace gradring::machine
