#pragma once

#include "daemon/core/time.h"

namespace gradring::daemon {

// Whether a thread that has nothing to do looks on for a while, or goes to sleep at once. To fall
// asleep and be woken takes about as long as it looks on, so that pays where work comes within that
// time; whoever waited for longer the last time had better leave the processor to those it waits
// for. Trainers do the same (client/src/rings.cc).
class LookOn {
 public:
  static constexpr core::Time kFor = 50'000;
  // To be woken takes part of it.
  static constexpr core::Time kWorth = 2 * kFor;

  // There was something to do.
  void worked(core::Time now) {
    if (waits_) waited_ = now - worked_;
    waits_ = false;
    worked_ = now;
  }
  // There was nothing: look once more, or sleep?
  bool goes_on(core::Time now) {
    waits_ = true;
    return waited_ < kWorth && now - worked_ < kFor;
  }

 private:
  core::Time worked_ = 0;  // last
  bool waits_ = false;     // since then
  core::Time waited_ = 0;  // the last time
};

}  // namespace gradring::daemon
