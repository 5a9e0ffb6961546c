#pragma once

#include <atomic>
#include <cstring>
#include <string_view>

#include "daemon/clock.h"
#include "proto/flight.h"

namespace gradring::daemon {

// Where one thread writes down what it does: the last some thousand events, in memory that outlives
// the process. Some tens of nanoseconds each, no lock, no allocation and no system call (the clock
// is read in user space). For one thread; others, and other processes, may read meanwhile.
class FlightRing {
 public:
  // Records nothing.
  FlightRing() = default;
  // `count` slots, all zero.
  FlightRing(FlightEvent* slots, uint64_t count) : slots_(slots), count_(count) {}

  // The event's sequence and time are set here.
  void record(const FlightEvent& event) {
    if (slots_ != nullptr) put(event, monotonic_now());
  }
  // With what people call it, and something in words. Takes further events, up to some limit.
  void record(const FlightEvent& event, std::string_view name, std::string_view words = {});

  // For who was given none. Shared by all: nothing is ever written to it.
  static FlightRing* off();

 private:
  void put(const FlightEvent& event, core::Time now) {
    FlightEvent& slot = slots_[next_];
    const std::atomic_ref<uint64_t> sequence(slot.sequence);
    sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    slot.time = now;
    constexpr size_t kRest = offsetof(FlightEvent, kind);
    std::memcpy(reinterpret_cast<std::byte*>(&slot) + kRest,
                reinterpret_cast<const std::byte*>(&event) + kRest, kFlightEventBytes - kRest);
    sequence.store(++written_, std::memory_order_release);
    next_ = next_ + 1 == count_ ? 0 : next_ + 1;
  }

  FlightEvent* slots_ = nullptr;
  uint64_t count_ = 0;
  uint64_t next_ = 0;
  uint64_t written_ = 0;
};

}  // namespace gradring::daemon
