#pragma once

// What can be asked of an engine, for people.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/time.h"
#include "proto/types.h"

namespace gradring::core {

struct EngineCounters {
  uint64_t ops_completed = 0;
  uint64_t slices_sent = 0;
  uint64_t slices_received = 0;
  uint64_t payload_bytes_sent = 0;
  uint64_t payload_bytes_received = 0;
  uint64_t frames_stale = 0;     // of another epoch or of a closed job
  uint64_t frames_repeated = 0;  // seen before
  uint64_t slices_handed = 0;    // given out after a view change, from a copy held here
  uint64_t slices_kept = 0;      // copied at completion, since some member might have lacked them
  uint64_t slices_damaged = 0;   // came here so
  uint64_t slices_resent = 0;
};

// What an open op waits for, for people.
struct OpProgress {
  OpKey key;
  std::string name;
  Signature signature;
  Time since = 0;                       // first local submission, or news of it elsewhere
  std::vector<uint32_t> missing_ranks;  // local ranks that have not submitted
  // Whose READY has not come: in a large view, of those to whom this node speaks. Each of them says
  // likewise whom it waits for. By name, since whoever is told may have another view by then.
  std::vector<std::string> missing_nodes;
  bool subtrees = false;  // it is such a view
  uint32_t slices_final = 0;
  uint32_t slices = 0;
};

}  // namespace gradring::core
