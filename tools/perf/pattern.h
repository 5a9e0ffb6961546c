#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/perf/plan.h"

namespace gradring::tools {

// What a rank puts in and what must come out, for one case. All values, and all partial results in
// whatever order, are integers that every element type holds exactly: so an answer is right or
// wrong, and no tolerance hides a mistake. For the float types that is true up to 112 ranks, for
// the others always.
//
// The values repeat after kPeriod elements. The period is a prime: data that ends up in another
// place is noticed, since slices and chunks are no multiples of it.
class Pattern {
 public:
  static constexpr size_t kPeriod = 1'000'003;

  Pattern(const Case& of, int rank, int ranks);

  // `first`: which element of the whole the buffer begins with.
  void fill(std::span<std::byte> buffer, uint64_t first = 0) const;
  // With values that are not what must come out; only where nothing is reduced.
  void fill_otherwise(std::span<std::byte> buffer) const;
  // How many elements are not what they must be after the op, to the bit.
  uint64_t wrong_elements(std::span<const std::byte> buffer, uint64_t first = 0) const;

 private:
  size_t element_;  // bytes
  std::vector<std::byte> input_;
  std::vector<std::byte> expected_;
  std::vector<std::byte> otherwise_;
};

// The values behind the bytes, for the tests: of element i at `rank`, and of the result.
int input_value(const Case& of, int rank, int ranks, uint64_t i);
int expected_value(const Case& of, int ranks, uint64_t i);

}  // namespace gradring::tools
