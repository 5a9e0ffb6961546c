#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace gradring::core {

// Of a job: how many times the bytes of one of weight 1 it sends, while both want the same wire.
inline constexpr uint32_t kWeightLeast = 1;
inline constexpr uint32_t kWeightMost = 100;

// How many slices of a job may be under way to its successor, of the `slots` that this has for it,
// when one more begins and the weightiest job of the node weighs `most`. A wire serves in order of
// arrival: of those who always have something on it, each gets what it has there in proportion. Two
// at least, or none would begin (rule D2).
constexpr uint32_t window_of(uint32_t weight, uint32_t most, uint32_t slots) {
  if (weight >= most) return slots;
  // Who begins with two free ones has one less under way than its window; and who is not held back
  // has five eighths of its slots there in the mean (measured, tests/e2e/bench_shares.py).
  const uint64_t under_way = uint64_t{slots} * 5 * weight / (8 * uint64_t{most});
  return 1 + std::max(1u, static_cast<uint32_t>(under_way));
}

// Whether a job wants the wire, so that others are held back for it: from when it begins to send
// until nothing of it was under way from one look to the next. Between two ops in a row it does.
class WireUse {
 public:
  bool wants() const { return wants_; }
  // True: it did not want it before.
  bool begins() { return !std::exchange(wants_, true); }
  // Now and then. `sent`: bytes, ever. `under_way`: the transport has some of it.
  void look(uint64_t sent, bool under_way) {
    wants_ = sent != std::exchange(sent_, sent) || under_way;
  }

 private:
  bool wants_ = false;
  uint64_t sent_ = 0;
};

}  // namespace gradring::core
