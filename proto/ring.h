#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/types.h"

namespace gradring {

// The fast way of a submission and its end: two rings in memory that a trainer and its daemon share
// (one segment for each session, made by the daemon), each written by one side and read by the
// other. The same submissions and ends as messages on the control channel (proto/client.proto),
// without a system call as long as the reader is awake.
//
//            slots of the ring, by number modulo kRingSlots
//   read  -> | taken | taken | new | new | new | free ... |  <- written
//
// Whoever is about to sleep says so, and is woken by its bell. Neither side believes the other's
// numbers: each keeps its own, and writes it down for the other to see.
inline constexpr uint64_t kRingSlots = 1024;
// kRingLayout (proto/version.h) changes with anything below.

// Operation.on_gpu and .stays_on_gpu.
inline constexpr uint32_t kOnGpu = 1;
inline constexpr uint32_t kStaysOnGpu = 2;

// A named op comes this way only from its second use on: the name itself is told in a message.
struct RingSubmission {
  uint64_t ticket = 0;
  OpKey key;
  uint64_t count = 0;
  uint64_t input_segment = 0;
  uint64_t input_offset = 0;
  uint64_t output_segment = 0;
  uint64_t output_offset = 0;
  uint32_t root = 0;
  uint32_t ranks = 0;
  uint32_t position = 0;
  int32_t priority = 0;
  uint8_t collective = 0;  // numbers of proto/types.h, to be checked
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint8_t wire = 0;
  uint32_t part_kib = 0;  // client.proto has it in bytes; as unknown to who knows no parts
  double prescale = 1;
  double postscale = 1;
  // Of buffers on a GPU: words in the input's or the output's segment, and in the output's; 0:
  // none.
  uint64_t reached_segment = 0;
  uint64_t reached_offset = 0;
  uint64_t ended_offset = 0;
  uint32_t reached_value = 0;
  uint32_t ended_value = 0;
  // Of what lies in memory that was named in ShareGpuMemory: kOnGpu, kStaysOnGpu.
  uint32_t on_gpu = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(RingSubmission) == 144 && std::is_trivially_copyable_v<RingSubmission>);

// What failed is told in a message, which has room for the reason.
struct RingEnd {
  uint64_t ticket = 0;
  uint64_t epoch = 0;
  uint32_t ranks_min = 0;
  uint32_t ranks_max = 0;
  uint32_t verdict = 0;  // OK or OK_SHRUNK
  uint32_t reserved = 0;
};
static_assert(sizeof(RingEnd) == 32 && std::is_trivially_copyable_v<RingEnd>);

template <typename Entry>
struct Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::atomic<uint32_t> asleep{0};  // 1: the reader is, or is about to be
  alignas(64) std::array<Entry, kRingSlots> entries{};
};

// What the trainer tells of itself, whenever it likes; believed as far as it matters to itself
// alone.
struct TrainerWords {
  alignas(64) std::atomic<uint64_t> input_wait_ns{0};  // it has waited for input, ever
};

// Zeroed memory is two empty rings. Earlier releases know no words, but their whole pages have room
// for them.
struct RingPair {
  Ring<RingSubmission> submissions;  // the trainer writes
  Ring<RingEnd> ends;                // the daemon writes
  TrainerWords words;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The writing end. One thread at a time.
template <typename Entry>
class RingWriter {
 public:
  explicit RingWriter(Ring<Entry>* ring) : ring_(ring) {}

  // For how many entries; none until the reader has taken something, or if it says that it has
  // taken more than there was.
  uint64_t room() const {
    const uint64_t waiting = written_ - ring_->read.load(std::memory_order_acquire);
    return waiting < kRingSlots ? kRingSlots - waiting : 0;
  }
  // False: no room.
  bool put(const Entry& entry) {
    if (room() == 0) return false;
    ring_->entries[written_ % kRingSlots] = entry;
    // Sequentially consistent, as are the look at `asleep` and the reader's looks in rest(): either
    // it sees the entry, or we see that it sleeps.
    ring_->written.store(++written_);
    return true;
  }
  // Whether the reader has to be woken for what was put; true once for each of its sleeps.
  bool must_wake() { return ring_->asleep.load() != 0 && ring_->asleep.exchange(0) != 0; }
  // How many the reader says it has taken.
  uint64_t taken() const { return ring_->read.load(std::memory_order_acquire); }
  uint64_t written() const { return written_; }

 private:
  Ring<Entry>* ring_;
  uint64_t written_ = 0;
};

// The reading end. One thread at a time, but that any() and rest() may be asked by one while
// another takes.
template <typename Entry>
class RingReader {
 public:
  explicit RingReader(Ring<Entry>* ring) : ring_(ring) {}

  bool any() const { return waiting() != 0; }
  // The number of entries that wait is one that no writer of ours can have written.
  bool broken() const { return waiting() > kRingSlots; }
  // Requires any() and not broken(). A copy: the writer may be up to no good.
  Entry take() {
    const uint64_t read = read_.load(std::memory_order_relaxed);
    const Entry entry = ring_->entries[read % kRingSlots];
    read_.store(read + 1, std::memory_order_release);
    ring_->read.store(read + 1, std::memory_order_release);
    return entry;
  }
  // To be called before going to sleep. False: there is something after all.
  bool rest() {
    ring_->asleep.store(1);
    if (ring_->written.load() == read_.load(std::memory_order_relaxed)) return true;
    ring_->asleep.store(0);
    return false;
  }
  void rise() { ring_->asleep.store(0, std::memory_order_relaxed); }

 private:
  uint64_t waiting() const {
    const uint64_t read = read_.load(std::memory_order_acquire);  // first: it never gets ahead
    return ring_->written.load(std::memory_order_acquire) - read;
  }

  Ring<Entry>* ring_;
  std::atomic<uint64_t> read_{0};
};

}  // namespace gradring
