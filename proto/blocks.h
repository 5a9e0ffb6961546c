#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gradring {

// How many elements the blocks of a collective have where they are not all equal. Cheap to copy:
// the counts are shared and never change. Two are equal when their digests are, and whoever hears
// of an op from others knows no more than that. Thread-safe as any value.
class Blocks {
 public:
  // More counts do not fit into the message that tells them.
  static constexpr size_t kCountsMax = 16384;

  // All are as long as the signature says.
  Blocks() = default;
  // One count for each rank. None where there are too many, or more elements than kCountMax.
  static std::optional<Blocks> of_ranks(std::vector<uint64_t> counts);
  // One for each pair, ranks x ranks of them: at [i * ranks + j] what rank i gives to rank j. None
  // as above, or where that is not how many there are.
  static std::optional<Blocks> of_pairs(std::vector<uint64_t> counts, uint32_t ranks);
  // Those that somebody else has, who told their digest alone. 0: all are equal.
  static Blocks told(uint64_t digest);

  bool uneven() const { return digest_ != 0; }
  uint64_t digest() const { return digest_; }
  // Everything below requires it.
  bool known() const { return table_ != nullptr; }

  uint32_t ranks() const;
  bool pairs() const;
  std::span<const uint64_t> counts() const;
  uint64_t longest() const;
  uint64_t total() const;

  // Of one count for each rank.
  uint64_t count(uint32_t rank) const { return count(0, rank); }
  uint64_t before(uint32_t rank) const { return before(0, rank); }

  // Of pairs. What `giver` gives to all who come before `taker`, and what `taker` takes from all
  // who come before `giver`: where the block lies at either end. With as many as there are ranks it
  // is what it gives, or takes, in all.
  uint64_t count(uint32_t giver, uint32_t taker) const;
  uint64_t before(uint32_t giver, uint32_t taker) const;
  uint64_t taken_before(uint32_t giver, uint32_t taker) const;

  // By the counts themselves where both are known: others' digests may be made to agree.
  bool operator==(const Blocks& other) const;

 private:
  struct Table;
  static std::optional<Blocks> make(std::vector<uint64_t> counts, uint32_t ranks, bool pairs);

  uint64_t digest_ = 0;
  std::shared_ptr<const Table> table_;
};

}  // namespace gradring
