#pragma once

#include "proto/types.h"

namespace gradring::tools {

// What nccl-tests multiply algorithm bandwidth by, so that it can be compared with the speed of a
// link: 2(n-1)/n for an allreduce, whose ring sends each byte so many times, (n-1)/n for
// collectives in blocks, of which the own one goes nowhere, 1 for broadcast and reduce.
double bus_factor(Collective collective, int ranks);

}  // namespace gradring::tools
