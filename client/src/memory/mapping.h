#pragma once

#include <cstddef>
#include <cstdint>
#include <tl/expected.hpp>
#include <utility>

#include "client/src/session/unique_fd.h"
#include "proto/status.h"

namespace gradring::client {

// Our view of a segment that the daemon made. Moves, does not copy; unmaps at the end.
//
// A forked child keeps the mapping: data that lies in it can be read there, as with any other
// memory. It is shared, though, so what the child writes the parent sees.
class Mapping {
 public:
  // Believes nothing about the descriptor: it must be a memfd of exactly `bytes`, sealed against
  // any change of size, so that touching the memory cannot fault later. Pages are made present at
  // once, charged to this process, where the kernel can (5.14).
  static tl::expected<Mapping, Status> of(const UniqueFd& memfd, uint64_t bytes);

  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_;
  size_t bytes_;
};

}  // namespace gradring::client
