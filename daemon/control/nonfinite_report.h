#pragma once

#include <string>

#include "daemon/data/messages.h"
#include "proto/wire.h"

// What people are told of a job's first NaN, infinity or overflow on this node.
namespace gradring::daemon {

// "first NaN of this node's ranks: rank 3 (pid 4711), op "grad.7" use 12 element 12034". For the
// log; a name from outside cannot break its lines.
std::string describe(const NonfiniteOrigin& origin);

// `node` is ours, `now` of the same clock as the origin's time.
wire::NonfiniteReport report_of(const NonfiniteOrigin& origin, const std::string& node,
                                core::Time now);

}  // namespace gradring::daemon
