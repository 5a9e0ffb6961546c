#pragma once

#include <cstdint>
#include <vector>

#include "tests/differential/program.h"

// What gradring-gpu-check has ranks do: programs as the random ones, but chosen. All ranks of the
// world are in each, and each op is of all of them.
namespace gradring::device {

struct Extent {
  uint64_t bytes_max = 0;  // of an op's larger buffer
  uint32_t every = 1;      // of the kinds only so many are tried
};

// Every type with every operation, in sizes below and above those that GPUs sum; floats scaled too.
std::vector<differential::Program> all_kinds(uint64_t seed, uint32_t ranks, const Extent& extent);
// Every collective, with blocks that are equal and not.
std::vector<differential::Program> all_collectives(uint64_t seed, uint32_t ranks,
                                                   const Extent& extent);
// Allreduce of one element, and of four times as many from step to step; a few more of each.
std::vector<differential::Program> all_sizes(uint64_t seed, uint32_t ranks, const Extent& extent);

// What the buffers of one of them take on a rank, at most.
uint64_t bytes_of(const std::vector<differential::Program>& programs);

}  // namespace gradring::device
