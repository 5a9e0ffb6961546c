#pragma once

#include "client.pb.h"
#include "tools/ctl/topology/picture.h"

namespace gradring::tools {

// Sockets side by side, in each its PCIe tree as nested boxes, GPUs on top and network cards below;
// the NVLinks above all; and which card each GPU uses. A machine that makes sense (nonsense_in).
Picture draw_machine(const wire::MachineReport& machine, const std::string& node);

// The nodes of a job in a ring, an arrow for each lane to the next one. `lanes` are the devices'
// names at the node that was asked.
Picture draw_ring(const wire::RingReport& ring, const std::vector<std::string>& lanes);
// Where no job runs: who would be in it.
Picture draw_nodes(const wire::TopologyReport& report);

}  // namespace gradring::tools
