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

// accumulator (op)= each of `inputs` in order, in one pass: half types are widened once, folded,
// and rounded once. `fresh`: the accumulator's old value does not count.
void fold(Dtype dtype, ReduceOp op, bool fresh, const std::vector<const std::byte*>& inputs,
          size_t count, uint32_t divisor, std::byte* accumulator);

// float32 as it travels (proto/types.h, WireType): bfloat16 and int8 are known here.
void pack(WireType wire, const std::byte* from, size_t count, std::byte* to);
void unpack(WireType wire, const std::byte* from, size_t count, std::byte* to);

// Stands for the daemon's CRC32C: any change of one byte shows.
uint32_t checksum(const std::byte* bytes, size_t count);

}  // namespace gradring::sim
