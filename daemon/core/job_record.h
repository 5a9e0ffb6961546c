#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/report.h"
#include "daemon/core/time.h"
#include "daemon/core/view.h"
#include "daemon/core/view_change.h"

namespace gradring::core {

using SessionId = uint64_t;

// A trainer's place in a job that runs, on its own node.
struct LocalPlace {
  SessionId session = 0;
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  int64_t pid = 0;
  uint64_t claim = 0;
  bool present = false;  // has neither left nor been lost

  bool operator==(const LocalPlace&) const = default;
};

// What membership must not forget of a job that runs, between two lives of its daemon (rule R1).
struct JobRecord {
  View view;
  std::string token;
  Time since = 0;
  std::vector<LocalPlace> local;
  std::vector<LostRank> lost;
  std::set<std::string> done;  // members that said so
  AcceptorRecord acceptor;     // may be one epoch ahead of the view

  bool operator==(const JobRecord&) const = default;
};

}  // namespace gradring::core
