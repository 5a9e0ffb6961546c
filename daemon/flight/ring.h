#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <string_view>

#include "daemon/clock.h"
#include "proto/flight.h"

namespace gradring::daemon {

// Memory of a ring of events and where its one writer is in it. Other threads, and other processes,
// may read the memory meanwhile.
class FlightSlots {
 public:
  FlightSlots() = default;
  // `count` slots, all zero.
  FlightSlots(FlightEvent* slots, uint64_t count) : slots_(slots), count_(count) {}

  bool there() const { return slots_ != nullptr; }
  uint64_t count() const { return count_; }
  // The event's sequence and time are set here. Requires there().
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

 private:
  FlightEvent* slots_ = nullptr;
  uint64_t count_ = 0;
  uint64_t next_ = 0;
  uint64_t written_ = 0;
};

// Where one thread writes down what it does: the last some thousand events, in memory that outlives
// the process, and while somebody traces also in a larger one. Some tens of nanoseconds each, no
// lock, no allocation and no system call (the clock is read in user space). For one thread.
class FlightRing {
 public:
  // Records nothing.
  FlightRing() = default;
  explicit FlightRing(const FlightSlots& always) : always_(always) { find_lap(); }

  // Whether anything is.
  bool on() const { return always_.there() || trace_ != nullptr; }

  void record(const FlightEvent& event) {
    if (on()) put(event, monotonic_now());
  }
  // For who has looked at the clock already, or for whom now() is near enough. Within the ring time
  // never goes back: an event that follows a later one gets the time of that.
  void record_at(const FlightEvent& event, core::Time at) {
    if (on()) put(event, at);
  }
  // With what people call it, and something in words. Takes further events, up to some limit.
  void record(const FlightEvent& event, std::string_view name, std::string_view words = {});
  void record_at(const FlightEvent& event, core::Time at, std::string_view name,
                 std::string_view words = {});

  // When the last event was, or when turn() was called if that is later: off by what the caller has
  // done since. A look at the clock costs as much as the rest of an event, and of a small op there
  // are several.
  core::Time now() const { return now_; }
  void turn(core::Time now) {
    if (on()) now_ = std::max(now_, now);
  }

  // From now on there as well; null: no more.
  void trace(FlightSlots* to) {
    trace_ = to;
    find_lap();
    ++lap_;
  }

  // Another number when what was told in the lap before may soon be overwritten, or is not in a
  // trace that has begun since: whoever tells a name once tells it again.
  uint64_t lap() const { return lap_; }

  // For who was given none. Shared by all: nothing is ever written to it.
  static FlightRing* off();

 private:
  void put(const FlightEvent& event, core::Time at) {
    now_ = std::max(now_, at);
    if (always_.there()) always_.put(event, now_);
    if (trace_ != nullptr) trace_->put(event, now_);
    if (++in_lap_ < lap_events_) return;
    in_lap_ = 0;
    ++lap_;
  }

  // A quarter of the shorter memory: of that, three quarters at least have all their names in it.
  void find_lap() {
    uint64_t events = always_.there() ? always_.count() : std::numeric_limits<uint64_t>::max();
    if (trace_ != nullptr) events = std::min(events, trace_->count());
    lap_events_ = std::max<uint64_t>(events / 4, 1);
  }

  FlightSlots always_;
  FlightSlots* trace_ = nullptr;
  core::Time now_ = 0;
  uint64_t lap_ = 1;
  uint64_t in_lap_ = 0;
  uint64_t lap_events_ = 0;
};

}  // namespace gradring::daemon
