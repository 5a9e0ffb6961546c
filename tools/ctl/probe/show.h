#pragma once

#include <string>

#include "tools/ctl/command.h"
#include "tools/ctl/probe/cells.h"

namespace gradring::tools {

// A matrix for each lane, rows send and columns receive; what is least, most and in the middle; and
// a problem for each way that has no figures or is much slower than most.
Answer show_probes(const ProbeMatrix& matrix, const Style& style);

// The same as a heat map, for a slide.
std::string draw_probes(const ProbeMatrix& matrix);

// "0.941 Gbit/s", "48.2 us"
std::string value_text(const ProbeMatrix& matrix, double value);
// What was measured, in one line.
std::string probes_title(const ProbeMatrix& matrix);

}  // namespace gradring::tools
