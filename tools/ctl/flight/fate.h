#pragma once

#include <cstdint>
#include <optional>

#include "proto/flight.h"

namespace gradring::tools {

// What became of the daemon that wrote a file, as far as it can be seen from here.
struct Fate {
  enum class Is { kRunning, kGone, kUnknown };
  Is is = Is::kUnknown;
  // The daemon's CLOCK_MONOTONIC at this moment; none when the machine has been started anew since,
  // or the file is another machine's.
  std::optional<int64_t> now;
};

Fate fate_of(const FlightHeader& header);

}  // namespace gradring::tools
