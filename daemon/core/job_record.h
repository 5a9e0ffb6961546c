#pragma once

#include <algorithm>
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

  // Whether the ops of an engine that is in `epoch` belong to it. The engine hears of a view a
  // moment later, so it may be one behind; in epoch 0 it is that of a guest who has just come in.
  bool fits_engine(uint64_t epoch) const {
    const uint64_t known = std::max(acceptor.epoch, view.epoch);
    return epoch <= known && (epoch + 1 >= known || epoch == 0);
  }
  bool operator==(const JobRecord&) const = default;
};

}  // namespace gradring::core
