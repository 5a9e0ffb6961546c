#pragma once

#include "daemon/core/time.h"

namespace gradring::daemon {

// Whether a thread that has nothing to do looks on for a while, or goes to sleep at once. To fall
// asleep and be woken takes some tens of microseconds, and a trainer that waits for its GPU and
// submits the next op from Python about as long: it should find us awake. Whoever waited for longer
// the last time had better leave the processor to those it waits for. Trainers look on for half as
// long (client/src/session/rings.cc).
class LookOn {
 public:
  static constexpr core::Time kFor = 100'000;

  // There was something to do.
  void worked(core::Time now) {
    if (waits_) waited_ = now - worked_;
    waits_ = false;
    worked_ = now;
  }
  // There was nothing: look once more, or sleep?
  bool goes_on(core::Time now) {
    waits_ = true;
    return waited_ < kFor && now - worked_ < kFor;
  }

 private:
  core::Time worked_ = 0;  // last
  bool waits_ = false;     // since then
  core::Time waited_ = 0;  // the last time
};

}  // namespace gradring::daemon
