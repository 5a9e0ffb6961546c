#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

// What the ranks sum, and what a sum says about who is in it.
//
// Elements take turns: at even places stands a power of two for each rank, times a small factor of
// the op, so that a sum names its contributors; at odd places stands a fraction, the sum of which
// depends on the order of additions, so that another order has other bits.
namespace gradring::chaos {

// Sums of distinct powers of two, times the factor, are exact in float32 up to this rank.
inline constexpr uint32_t kRankMax = 19;

// `count` is even here and below, and not 0.
void fill(uint32_t rank, uint64_t op, size_t count, float* buffer);

// The sets of ranks that the elements are sums of, a bit a rank, one set for each kind of element;
// empty if some element is no such sum, or its neighbour is not the sum of the same ranks, but for
// `rounding`.
std::set<uint32_t> contributors(uint64_t op, size_t count, const float* buffer, double rounding);

// Of up to 20 fractions below 1, added in float32 in any order.
inline constexpr double kRounding = 2e-5;
// Of 8 of them that are rounded to float16 at each of 4 nodes. Whole numbers are exact there, too,
// up to that many ranks.
inline constexpr double kRoundingOfFloat16 = 0.01;

// Of whole words of 8 bytes.
uint64_t hash_of(const void* memory, size_t bytes, uint64_t hash);
inline constexpr uint64_t kHashOfNothing = 0xcbf29ce484222325u;

}  // namespace gradring::chaos
