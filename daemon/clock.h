#pragma once

#include <time.h>

#include "daemon/core/time.h"

namespace gradring::daemon {

// The one clock of the daemon. It does not jump, and every verdict is measured by it alone.
inline core::Time monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * core::kSecond + t.tv_nsec;
}

}  // namespace gradring::daemon
