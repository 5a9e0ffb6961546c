#pragma once

#include <string>

#include "tools/ctl/topology/show.h"

namespace gradring::tools {

// Writes this machine down, into a folder. Needs no daemon; the drivers are asked from this
// process.
Result record_machine(const std::string& folder);

// What gradring sees, and would choose, on a recorded machine: a report without lanes, peers and
// rings.
tl::expected<TopologyReports, Status> replay_machine(const std::string& folder);

}  // namespace gradring::tools
