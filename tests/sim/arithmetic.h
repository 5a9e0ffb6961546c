#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/types.h"

namespace gradring::sim {

// Plain arithmetic, one element at a time, that shares nothing with the daemon's reducer.

// Element `index` of what `rank` contributes: of every size and sign, so that the order of
// summation shows in the last bits.
void fill(Dtype dtype, uint64_t seed, uint32_t rank, size_t count, std::byte* out);

struct Input {
  const std::byte* at = nullptr;
  double factor = 1;
};

// What becomes of a sum where it is final.
struct Ending {
  uint32_t divisor = 0;  // 0: none
  double factor = 1;
};

// accumulator (op)= each of `inputs` in order, in one pass: half types are widened once, folded,
// and rounded once. `fresh`: the accumulator's old value does not count.
void fold(Dtype dtype, ReduceOp op, bool fresh, const std::vector<Input>& inputs, size_t count,
          Ending ending, std::byte* accumulator);

// What a rank's input is multiplied by where an op is scaled; never 1.
double prescale_of(uint32_t rank);

// float32 as it travels (proto/types.h, WireType): bfloat16 and int8 are known here.
void pack(WireType wire, const std::byte* from, size_t count, std::byte* to);
void unpack(WireType wire, const std::byte* from, size_t count, std::byte* to);

// Stands for the daemon's CRC32C: any change of one byte shows.
uint32_t checksum(const std::byte* bytes, size_t count);

}  // namespace gradring::sim
