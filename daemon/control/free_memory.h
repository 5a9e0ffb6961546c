#pragma once

#include <cstdint>
#include <optional>

#include "daemon/core/time.h"

namespace gradring::daemon {

// Gives the kernel back what malloc keeps. libzmq's queues are aligned, and glibc finds room for
// few of them in what others have freed (before 2.38: sourceware.org, bug 14581), so that each
// burst of connections would leave some megabytes, for good. One thread.
class FreeMemory {
 public:
  // Looks each few seconds.
  void tick(core::Time now);

 private:
  core::Time next_ = 0;
  std::optional<int64_t> idle_;  // bytes, after we last gave back, or fewer since
};

}  // namespace gradring::daemon
