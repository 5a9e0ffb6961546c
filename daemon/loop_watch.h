#pragma once

#include <algorithm>
#include <utility>

#include "daemon/core/time.h"
#include "daemon/data/job_figures.h"

namespace gradring::daemon {

// How long the turns of an event loop take. One thread.
class LoopWatch {
 public:
  void worked(core::Time took) {
    figures_.busy += took;
    figures_.longest = std::max(figures_.longest, took);
  }
  LoopFigures take() {
    LoopFigures figures = figures_;
    figures_.longest = 0;
    return figures;
  }

 private:
  LoopFigures figures_;
};

}  // namespace gradring::daemon
