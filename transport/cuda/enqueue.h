#pragma once

#include "transport/cuda/gpu.h"
#include "transport/gpus.h"

// What a sum and a spread are for the stream of one GPU. In its context; checked before (check.h).
namespace gradring::transport::cuda {

// It reaches all inputs, and all outputs.
Driver::Result enqueue(const Gpu& gpu, const Gpus::Sum& sum, const Watch& watch);
Driver::Result enqueue(const Gpu& gpu, const Gpus::Allreduce& allreduce, const Watch& watch);
// How many of its inputs a Watch is for; 0: it does not look for what is not finite.
size_t traced(const Gpus::Sum& sum);
size_t traced(const Gpus::Allreduce& allreduce);
// Calls of the driver that one of these takes, about.
size_t calls_of(const Gpus::Sum& sum);
size_t calls_of(const Gpus::Allreduce& allreduce);
size_t calls_of(const Gpus::Spread& spread);
// It reaches all outputs, and has one of them.
Driver::Result enqueue(const Gpu& gpu, const Gpus::Spread& spread);

}  // namespace gradring::transport::cuda
