#pragma once

#include <cstdint>
#include <optional>

#include "daemon/core/time.h"
#include "proto/frame.h"

namespace gradring::core {

// The receiver's side of probes: which one may send here, and how much of it came. One at a time,
// or each would measure what the other leaves. Pure; one thread.
class ProbeReceiver {
 public:
  // Why a probe that asks may not send; kNone: it may. `peer`: who asks.
  ProbeRefusal asked(uint32_t peer, const ProbeBody& ask, bool jobs_here, bool draining,
                     bool probes_itself, Time now) {
    if (draining) return ProbeRefusal::kDraining;
    if (jobs_here && !ask.forced) return ProbeRefusal::kJobs;
    if (probes_itself || (busy(now) && (taken_->peer != peer || taken_->probe != ask.probe))) {
      return ProbeRefusal::kBusy;
    }
    taken_ = Taken{peer, ask.probe, 0, now};
    ++serial_;
    return ProbeRefusal::kNone;
  }
  bool takes(uint32_t peer, uint64_t probe) const {
    return taken_ && taken_->peer == peer && taken_->probe == probe;
  }
  // Of the one that it takes; none: there is none.
  std::optional<uint32_t> peer() const {
    return taken_ ? std::optional(taken_->peer) : std::nullopt;
  }
  uint64_t probe() const { return taken_ ? taken_->probe : 0; }
  uint64_t serial() const { return serial_; }  // counts those that it took
  // One more message of the probe that it takes; returns how many have come.
  uint64_t arrived(Time now) {
    taken_->heard = now;
    return ++taken_->count;
  }
  void ended(uint32_t peer, uint64_t probe) {
    if (takes(peer, probe)) taken_.reset();
  }
  void lost(uint32_t peer) {
    if (taken_ && taken_->peer == peer) taken_.reset();
  }
  // One that has been silent for long ended without a word; pauses are shorter.
  bool busy(Time now) const { return taken_ && now - taken_->heard < kSilence; }

 private:
  static constexpr Time kSilence = 8 * kSecond;
  struct Taken {
    uint32_t peer = 0;
    uint64_t probe = 0;
    uint64_t count = 0;
    Time heard = 0;
  };
  std::optional<Taken> taken_;
  uint64_t serial_ = 0;
};

}  // namespace gradring::core
