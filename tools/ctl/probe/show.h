#pragma once

#include <string>
#include <string_view>

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
// Of the values of the cells, which are medians where it is latency that was measured.
std::string spread_text(const ProbeMatrix& matrix, const ProbeSpread& spread);
// What was measured, in one line. `latencies`: which of them each cell shows.
std::string probes_title(const ProbeMatrix& matrix, std::string_view latencies);

}  // namespace gradring::tools
