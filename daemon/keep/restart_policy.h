#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "daemon/core/time.h"

namespace gradring::keep {

using core::Time;

// When gradringd is started again after it ended, as our systemd unit has it: Restart=on-failure,
// RestartPreventExitStatus=2, RestartForceExitStatus=75. Knows no process and no clock.
class RestartPolicy {
 public:
  struct Options {
    Time pause = 200 * core::kMillisecond;  // between an end and the next start
    size_t starts_max = 5;                  // within `interval`; more is a daemon that cannot run
    Time interval = 10 * core::kSecond;
  };
  explicit RestartPolicy(const Options& options) : options_(options) {}

  void started(Time now);

  struct Verdict {
    bool restart = false;
    Time at = 0;      // of the restart
    int status = 0;   // with which the keeper ends, if there is none
    std::string why;  // in words, about the child: "was killed by signal 9 (Killed), ..."
  };
  // `wait_status` as waitpid() gives it.
  Verdict ended(int wait_status, Time now) const;

 private:
  const Options options_;
  std::deque<Time> starts_;  // the last starts_max
};

}  // namespace gradring::keep
