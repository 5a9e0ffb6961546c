#pragma once

#include <gradring/gradring.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/differential/values.h"

namespace gradring::differential {

// Memory that the ops of a communicator's family may name, dealt out from front to back: the
// daemon's, or a trainer's own that is copied in and out.
class Arena {
 public:
  enum class Kind : uint8_t { kAllocated, kRegistered };

  // Throws Error.
  Arena(gradring_comm* comm, uint64_t bytes, Kind kind);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned to a cache line. Stops the program where there is no more.
  std::byte* take(uint64_t bytes);
  void take_back_all() { used_ = 0; }

 private:
  gradring_comm* const comm_;
  const uint64_t bytes_;
  std::unique_ptr<std::byte[]> own_;
  std::byte* memory_ = nullptr;
  uint64_t used_ = 0;
};

// A buffer with a margin in front and behind it, of which every byte that is not known to be
// overwritten must stay as it is.
class Buffer {
 public:
  Buffer(Arena& arena, uint64_t bytes, uint64_t shift);

  std::byte* data() const { return data_; }
  // Puts an input into it.
  void fill(uint64_t at, uint64_t bytes, const Bytes& cycle);
  // Whatever lies there now may lie there.
  void accept(uint64_t at, uint64_t bytes);
  // What has changed, in words; empty if nothing has.
  std::string fault() const;

 private:
  uint64_t bytes_;
  std::byte* data_;
  Bytes image_;  // with the margins
};

}  // namespace gradring::differential
