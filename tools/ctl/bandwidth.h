#pragma once

#include <vector>

#include "tools/ctl/command.h"
#include "tools/ctl/rates.h"

namespace gradring::tools {

// A matrix of nodes, rows send and columns receive, and a row for each lane.
Answer show_rates(const std::vector<LaneRate>& rates, double seconds, const Style& style);

}  // namespace gradring::tools
