#pragma once

#include "proto/status.h"
#include "transport/gpus.h"

namespace gradring::transport::cuda {

// Whatever would be a bug of the caller, or make a kernel fail when it runs: that would leave the
// whole process without its GPUs. kInvalidArgument.
Status check(const Gpus::Sum& sum);
Status check(const Gpus::Allreduce& allreduce);
Status check(const Gpus::Spread& spread);

}  // namespace gradring::transport::cuda
