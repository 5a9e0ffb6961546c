#pragma once

#include <span>

#include "transport/cuda/communicators.h"
#include "transport/gpus.h"

// What a sum and a spread are for all GPUs of the daemon at once, by NCCL: each adds what lies on
// it, NCCL scatters the sum of these over the GPUs, and each brings its share to the host, or NCCL
// gathers the shares again. So each has an equal part of the way to the host. Each looks for what
// is not finite in its inputs, while it adds them, and in the sum. Checked before (check.h).
namespace gradring::transport::cuda {

// Whether it is something for all of them: each has a part in it.
bool takes(const Communicators& all, const Gpus::Sum& sum);
bool takes(const Communicators& all, const Gpus::Allreduce& allreduce);
bool takes(const Communicators& all, const Gpus::Spread& spread);

// An error is in words; some of it may have begun.
// `watches`: by GPU.
Status enqueue_jointly(Communicators& all, const Gpus::Sum& sum, std::span<const Watch> watches);
Status enqueue_jointly(Communicators& all, const Gpus::Allreduce& allreduce,
                       std::span<const Watch> watches);
Status enqueue_jointly(Communicators& all, const Gpus::Spread& spread);

}  // namespace gradring::transport::cuda
