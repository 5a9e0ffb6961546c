#pragma once

// Read before every file of the simulator's own build of the core: what would stop the process
// there is a violation here, so that the run ends, and with it its seed is known.

#include <stdexcept>

#include "proto/check.h"

#undef GRADRING_CHECK
#define GRADRING_CHECK(condition, what)                              \
  do {                                                               \
    if (!(condition)) throw std::logic_error("gradring bug: " what); \
  } while (false)
