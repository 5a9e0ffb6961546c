#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/trace/timeline.h"

namespace gradring::tools {

// How much of how much has been read, in bytes of all nodes.
using Progress = std::function<void(uint64_t done, uint64_t all)>;

struct Collected {
  std::vector<NodeFlight> nodes;  // clocks as this machine has it
  std::vector<Status> missing;    // why a node's part could not be had
};

// Reads what the daemons of all nodes wrote down: the trace, or what their flight recorders still
// have. An error if not even this node's can be had.
tl::expected<Collected, Status> collect(Questions& questions, bool trace, const Progress& progress);

// The clock of a peer, as one question to it tells. Times in ns.
struct ClockSample {
  int64_t asked = 0;     // by our clock
  int64_t answered = 0;  // by its clock
  int64_t returned = 0;  // by ours
};
// By how much its clock is behind ours: off by half of the quickest round trip at most, as both
// ways took at least no time (NTP's estimate, RFC 5905 section 8). Requires samples.
int64_t behind(const std::vector<ClockSample>& samples);

}  // namespace gradring::tools
