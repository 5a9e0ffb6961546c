#pragma once

#include <string>
#include <variant>
#include <vector>

#include "daemon/core/view.h"
#include "proto/verdict.h"

namespace gradring::core {

// What daemons tell one another about jobs, as values; daemon/control turns them into
// proto/peer.proto and back. Each direction between two daemons is FIFO and reliable until it
// breaks.

// The whole of what the sender claims for one gathering; replaces what it said before. No ranks:
// withdrawn.
struct Claims {
  std::string job;
  std::string token;
  uint64_t revision = 0;
  uint32_t uid = 0;
  uint32_t size = 0;
  std::string policy;
  std::vector<RankInfo> ranks;
};

// From the daemon of rank 0: a complete view, to be accepted by each member.
struct Propose {
  std::string token;
  View view;
};
struct Accept {
  JobId incarnation{};
};
// From a member: it cannot. From the proposer: the proposal is withdrawn. Without a reason the
// claims had changed meanwhile, and gathering goes on; with one the formation has failed.
struct Reject {
  JobId incarnation{};
  std::string reason;
};
struct Commit {
  JobId incarnation{};
};

struct JobFailed {
  JobId incarnation{};
  uint64_t epoch = 0;
  Failure failure;
};

// All local trainers of the sender have left, and it holds nothing of the job that others need.
struct JobDone {
  JobId incarnation{};
};

using JobMessage = std::variant<Claims, Propose, Accept, Reject, Commit, JobFailed, JobDone>;

}  // namespace gradring::core
