#pragma once

#include <string>

#include "tools/ctl/command.h"

namespace gradring::tools {

// What `gradringctl bandwidth` is asked to measure itself, as against what goes anyway.
struct ProbeWish {
  bool latency = false;
  bool force = false;  // also beside jobs
  double seconds = 1;  // for each way
  uint64_t bytes = 0;  // of a message; 0: the daemon's choice
  std::string svg{};   // file for a picture; empty: none
};

// All ways between all nodes that the daemon here is connected with, one after the other.
Result measure(const Context& context, const ProbeWish& wish);

}  // namespace gradring::tools
