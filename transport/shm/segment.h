#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>

#include "proto/status.h"

namespace gradring::transport {

// A piece of shared memory made by the daemon: a memfd of fixed size, sealed against shrinking and
// growing, so that no trainer can make the daemon fault. Has no name, so nothing is left behind
// after any death. Moves, does not copy; unmaps and closes at the end.
class Segment {
 public:
  // Rounds `bytes` up to whole pages. The pages are populated by whoever touches them first.
  static tl::expected<Segment, Status> create(uint64_t bytes);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  int fd() const { return fd_; }
  std::span<std::byte> memory() const { return memory_; }

 private:
  Segment(int fd, std::span<std::byte> memory) : fd_(fd), memory_(memory) {}

  int fd_ = -1;
  std::span<std::byte> memory_;
};

}  // namespace gradring::transport
