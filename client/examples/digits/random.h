#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace digits {

// Random numbers that are the same with every standard library: the engine is specified to the bit,
// the distributions of <random> are not.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // 0 <= x < 1, all 24 bits of a float's fraction.
  float uniform() { return static_cast<float>(engine_() >> 40) * 0x1p-24f; }

  // Fisher and Yates. The bias of the remainder is far below one part in a billion here.
  template <typename T>
  void shuffle(std::span<T> values) {
    for (size_t left = values.size(); left > 1; --left) {
      std::swap(values[left - 1], values[engine_() % left]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace digits
