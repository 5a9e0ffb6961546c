#pragma once

#include "transport/cuda/gpu.h"
#include "transport/gpus.h"

// What a sum and a spread are for the stream of one GPU. In its context; checked before (check.h).
namespace gradring::transport::cuda {

// It reaches the GPUs of all inputs, and of all outputs.
Driver::Result enqueue(const Gpu& gpu, const Gpus::Sum& sum, const Watch& watch);
Driver::Result enqueue(const Gpu& gpu, const Gpus::Allreduce& allreduce, const Watch& watch);
// It has one of the outputs.
Driver::Result enqueue(const Gpu& gpu, const Gpus::Spread& spread);

}  // namespace gradring::transport::cuda
