#pragma once

#include <vector>

#include "tools/ctl/command.h"
#include "tools/ctl/rates.h"

namespace gradring::tools {

// A matrix of nodes, rows send and columns receive, and a row for each lane, in order of their
// nodes; of many nodes only what can be read.
Answer show_rates(std::vector<LaneRate> rates, double seconds, const Style& style);

}  // namespace gradring::tools
