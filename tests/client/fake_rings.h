#pragma once

#include <array>

#include "proto/ring.h"

namespace gradring::test {

// The fake daemon's end of the rings of one session. What is submitted through them it never sees.
class FakeRings {
 public:
  FakeRings();
  ~FakeRings();
  FakeRings(const FakeRings&) = delete;
  FakeRings& operator=(const FakeRings&) = delete;

  // For the trainer, as the answer to MakeRings has them: the memory, and the two bells.
  const std::array<int, 3>& descriptors() const { return descriptors_; }
  void put(const RingEnd& end);

 private:
  std::array<int, 3> descriptors_;
  RingPair* pair_;
  RingWriter<RingEnd> ends_;
};

}  // namespace gradring::test
