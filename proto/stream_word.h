#pragma once

#include <atomic>
#include <cstdint>

namespace gradring {

// A word in memory that a trainer, its GPU's streams and its daemon see, by which work on a stream
// and an op are put into an order without a processor waiting: the stream writes how far it has
// come, or waits for what the daemon writes (CUDA's stream memory operations). It only grows, round
// the end of the numbers, so that whoever looks late sees what has been.
//
//   reached   the stream writes, the daemon looks: the op's input is there
//   ended     the daemon writes, the stream waits: the op's output is there
struct StreamWord {
  uint32_t* at = nullptr;  // null: there is none
  uint32_t value = 0;      // of this op

  explicit operator bool() const { return at != nullptr; }
  // As CU_STREAM_WAIT_VALUE_GEQ has it.
  bool has_come() const {
    const uint32_t now = std::atomic_ref(*at).load(std::memory_order_acquire);
    return static_cast<int32_t>(now - value) >= 0;
  }
  // For an op that may end twice, once in each life of a daemon, or by whoever gave it up.
  void set() const {
    if (!has_come()) std::atomic_ref(*at).store(value, std::memory_order_release);
  }
};

}  // namespace gradring
