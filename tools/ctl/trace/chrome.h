#pragma once

#include <ostream>

#include "tools/ctl/trace/timeline.h"

namespace gradring::tools {

// Writes the timeline as the JSON that chrome://tracing and Perfetto (ui.perfetto.dev) read: the
// "Trace Event Format", times in microseconds since the first event.
//
// A process for each job on each node, in which each rank and each lane has a track, and a second
// one where ops or slices overlap. An op is as wide as from its submission to its end, with the
// phases that Horovod's timeline has: NEGOTIATE_ALLREDUCE until every rank was ready, ALLREDUCE
// from then on. Arrows lead from a rank's submission to the op's slices on its node and on to the
// rank's end.
void write_chrome(const Timeline& timeline, std::ostream& to);

}  // namespace gradring::tools
