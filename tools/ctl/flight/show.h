#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/ctl/command.h"
#include "tools/ctl/flight/fate.h"
#include "tools/ctl/flight/file.h"

namespace gradring::tools {

struct FlightQuestion {
  std::string job{};    // empty: all there is
  uint64_t last = 100;  // events of each life, 0: all
};

struct ToldLife {
  FlightLife life;
  Fate fate;
  bool before = false;  // of the life before this one: nobody is alarmed by its end any more
};

// In the order given. NOT_FOUND if no life knows the job that is asked about.
Result show(const std::vector<ToldLife>& lives, const FlightQuestion& question, const Style& style);

}  // namespace gradring::tools
