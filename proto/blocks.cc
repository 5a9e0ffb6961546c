#include "proto/blocks.h"

#include <algorithm>
#include <utility>

#include "proto/hash.h"
#include "proto/types.h"

namespace gradring {

// Counts in rows: one of all ranks, or one for each rank that gives. `before` and `taken` have one
// entry more in each row and column, their sum.
struct Blocks::Table {
  uint32_t ranks = 0;
  bool pairs = false;
  uint64_t longest = 0;
  uint64_t total = 0;
  std::vector<uint64_t> counts;
  std::vector<uint64_t> before;
  std::vector<uint64_t> taken;
};

std::optional<Blocks> Blocks::of_ranks(std::vector<uint64_t> counts) {
  const auto ranks = static_cast<uint32_t>(std::min(counts.size(), kCountsMax));
  return make(std::move(counts), ranks, false);
}

std::optional<Blocks> Blocks::of_pairs(std::vector<uint64_t> counts, uint32_t ranks) {
  return make(std::move(counts), ranks, true);
}

bool Blocks::operator==(const Blocks& other) const {
  if (digest_ != other.digest_ || table_ == other.table_) return digest_ == other.digest_;
  if (!known() || !other.known()) return true;
  return pairs() == other.pairs() && std::ranges::equal(counts(), other.counts());
}

Blocks Blocks::told(uint64_t digest) {
  Blocks blocks;
  blocks.digest_ = digest;
  return blocks;
}

std::optional<Blocks> Blocks::make(std::vector<uint64_t> counts, uint32_t ranks, bool pairs) {
  const uint64_t rows = pairs ? ranks : 1;
  if (counts.empty() || counts.size() > kCountsMax || counts.size() != rows * ranks) {
    return std::nullopt;
  }
  auto table = std::make_shared<Table>();
  table->ranks = ranks;
  table->pairs = pairs;
  for (const uint64_t count : counts) {
    if (count > kCountMax - table->total) return std::nullopt;
    table->total += count;
    table->longest = std::max(table->longest, count);
  }
  table->counts = std::move(counts);
  for (uint64_t row = 0; row < rows; ++row) {
    uint64_t sum = 0;
    table->before.push_back(0);
    for (uint64_t i = 0; i < ranks; ++i) {
      table->before.push_back(sum += table->counts[row * ranks + i]);
    }
  }
  for (uint64_t column = 0; pairs && column < ranks; ++column) {
    uint64_t sum = 0;
    table->taken.push_back(0);
    for (uint64_t i = 0; i < ranks; ++i) {
      table->taken.push_back(sum += table->counts[i * ranks + column]);
    }
  }
  Blocks blocks;
  blocks.digest_ = fnv1a(std::as_bytes(std::span(table->counts)));
  blocks.table_ = std::move(table);
  return blocks;
}

uint32_t Blocks::ranks() const { return table_->ranks; }
bool Blocks::pairs() const { return table_->pairs; }
std::span<const uint64_t> Blocks::counts() const { return table_->counts; }
uint64_t Blocks::longest() const { return table_->longest; }
uint64_t Blocks::total() const { return table_->total; }

uint64_t Blocks::count(uint32_t giver, uint32_t taker) const {
  return table_->counts[uint64_t{giver} * table_->ranks + taker];
}

uint64_t Blocks::before(uint32_t giver, uint32_t taker) const {
  return table_->before[giver * (uint64_t{table_->ranks} + 1) + taker];
}

uint64_t Blocks::taken_before(uint32_t giver, uint32_t taker) const {
  return table_->taken[taker * (uint64_t{table_->ranks} + 1) + giver];
}

}  // namespace gradring
