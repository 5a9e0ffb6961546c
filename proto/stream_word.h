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
//
// What is large passes in parts, so that one can be exchanged while others are copied: the buffer
// from its beginning on, and each part has a value of its own, the last one `value`.
struct StreamWord {
  uint32_t* at = nullptr;  // null: there is none
  uint32_t value = 0;      // of this op
  uint32_t parts = 1;

  explicit operator bool() const { return at != nullptr; }
  uint32_t value_of(uint32_t part) const { return value - (parts - 1 - part); }
  // As CU_STREAM_WAIT_VALUE_GEQ has it.
  bool has_come() const { return parts_come() == parts; }
  uint32_t parts_come() const {
    const auto missing = static_cast<int32_t>(value - now());
    if (missing <= 0) return parts;
    const auto to_come = static_cast<uint32_t>(missing);
    return to_come < parts ? parts - to_come : 0;
  }
  // For an op that may end twice, once in each life of a daemon, or by whoever gave it up.
  void set() const { set_come(parts); }
  void set_come(uint32_t many) const {
    if (many <= parts_come()) return;
    std::atomic_ref(*at).store(value_of(many - 1), std::memory_order_release);
  }

 private:
  uint32_t now() const { return std::atomic_ref(*at).load(std::memory_order_acquire); }
};

// How many parts a buffer has; 0: it is one.
constexpr uint32_t parts_of(uint64_t bytes, uint64_t part_bytes) {
  if (part_bytes == 0 || bytes <= part_bytes) return 1;
  return static_cast<uint32_t>((bytes + part_bytes - 1) / part_bytes);
}
// Smaller ones would cost more than they save, and no daemon looks for them.
inline constexpr uint64_t kPartBytesLeast = uint64_t{64} << 10;

}  // namespace gradring
