#include "tests/chaos/arithmetic.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace gradring::chaos {
namespace {

// Each rank's fractions are taken from a table of its own, from another place for each op.
constexpr size_t kTableSize = 4096;

using Table = std::array<float, kTableSize>;

Table make_table(uint32_t rank) {
  Table table{};
  uint64_t state = rank + 1;
  for (float& value : table) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<double>(state >> 40) / (1 << 24)) - 0.5f;
  }
  return table;
}

const Table& table_of(uint32_t rank) {
  static const std::array<Table, kRankMax + 1> kTables = [] {
    std::array<Table, kRankMax + 1> all{};
    for (uint32_t i = 0; i <= kRankMax; ++i) all[i] = make_table(i);
    return all;
  }();
  return kTables[rank];
}

size_t place_in_table(uint64_t op, size_t element) { return (op * 1031 + element) % kTableSize; }

uint32_t factor_of(uint64_t op) { return static_cast<uint32_t>(op % 7 + 1); }

bool is_sum(float value, uint32_t ranks, uint64_t op, size_t element, double rounding) {
  double sum = 0;
  for (uint32_t left = ranks; left != 0; left &= left - 1) {
    sum += table_of(static_cast<uint32_t>(std::countr_zero(left)))[place_in_table(op, element)];
  }
  return std::abs(static_cast<double>(value) - sum) <= rounding;
}

}  // namespace

void fill(uint32_t rank, uint64_t op, size_t count, float* buffer) {
  const Table& table = table_of(rank);
  const float whole = static_cast<float>((1u << rank) * factor_of(op));
  for (size_t i = 0; i < count; ++i) {
    buffer[i] = i % 2 == 0 ? whole : table[place_in_table(op, i)];
  }
}

std::set<uint32_t> contributors(uint64_t op, size_t count, const float* buffer, double rounding) {
  std::set<uint32_t> sets;
  uint32_t before = 0;
  for (size_t i = 0; i < count; i += 2) {
    const float value = buffer[i] / static_cast<float>(factor_of(op));
    if (!(value >= 1 && value < static_cast<float>(2u << kRankMax)) || value != std::floor(value)) {
      return {};
    }
    const uint32_t ranks = static_cast<uint32_t>(value);
    // A slice may end between two neighbours, so the fraction is of the one before or behind it.
    if (i > 0 && !is_sum(buffer[i - 1], before, op, i - 1, rounding) &&
        !is_sum(buffer[i - 1], ranks, op, i - 1, rounding)) {
      return {};
    }
    before = ranks;
    sets.insert(ranks);
  }
  if (!is_sum(buffer[count - 1], before, op, count - 1, rounding)) return {};
  return sets;
}

uint64_t hash_of(const void* memory, size_t bytes, uint64_t hash) {
  const auto* at = static_cast<const unsigned char*>(memory);
  uint64_t word = 0;
  for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
    std::memcpy(&word, at + i, sizeof word);
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace gradring::chaos
