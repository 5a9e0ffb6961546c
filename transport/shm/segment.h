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

  // One that create() made in an earlier process, with what is in it. Owns `fd` from now on, even
  // if it is refused because it is no such thing: a memfd of whole pages, sealed as above.
  static tl::expected<Segment, Status> adopt(int fd);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  int fd() const { return fd_; }
  std::span<std::byte> memory() const { return memory_; }

 private:
  Segment(int fd, std::span<std::byte> memory) : fd_(fd), memory_(memory) {}
  bool map(uint64_t size);

  int fd_ = -1;
  std::span<std::byte> memory_;
};

}  // namespace gradring::transport
