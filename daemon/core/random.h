#pragma once

#include <cstdint>

namespace gradring::core {

// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough for names that must not
// collide by accident. Secrets are drawn elsewhere, from the kernel. The seed is handed in, so runs
// can be replayed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform enough in [0, bound); bound > 0.
  uint64_t below(uint64_t bound) { return next() % bound; }

 private:
  uint64_t state_;
};

}  // namespace gradring::core
