#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/types.h"

namespace gradring::sim {

// The input of a rank.
using InputOf = std::function<const std::vector<std::byte>&(uint32_t rank)>;

// What an op that needs all of its ranks must leave in the output of one of them, told from the
// definition of the collective alone: empty, or a sentence. Sums of floating numbers are left out,
// since their order counts (Oracle::note_final). `ranks`: ascending.
std::string fault_of_blocks(const Signature& signature, uint32_t rank,
                            const std::vector<uint32_t>& ranks, const InputOf& input,
                            const std::byte* output);

}  // namespace gradring::sim
