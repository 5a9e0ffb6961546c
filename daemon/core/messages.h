#pragma once

#include <compare>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/core/report.h"
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
  bool deterministic = false;
  std::vector<RankInfo> ranks;

  bool operator==(const Claims&) const = default;
};

// From the daemon of rank 0: a complete view, to be accepted by each member. Or an invitation to
// come into a job that runs, whose view has epoch 0.
struct Propose {
  std::string token;
  View view;
  uint64_t invited_in = 0;  // the job's epoch; 0: no invitation, or from a daemon that does not say

  bool operator==(const Propose&) const = default;
};
struct Accept {
  JobId incarnation{};
  uint64_t invited_in = 0;  // of the invitation that is accepted

  bool operator==(const Accept&) const = default;
};
// From a member: it cannot. From the proposer: the proposal is withdrawn. Without a reason the
// claims had changed meanwhile, and gathering goes on; with one the formation has failed.
struct Reject {
  JobId incarnation{};
  std::string reason;

  bool operator==(const Reject&) const = default;
};
struct Commit {
  JobId incarnation{};

  bool operator==(const Commit&) const = default;
};

struct JobFailed {
  JobId incarnation{};
  uint64_t epoch = 0;
  Failure failure;

  bool operator==(const JobFailed&) const = default;
};

// All local trainers of the sender have left, and it holds nothing of the job that others need.
struct JobDone {
  JobId incarnation{};
  bool in_good_order = false;  // none of them was lost
  uint64_t epoch = 0;          // in which that is so; 0: from a daemon that does not say

  bool operator==(const JobDone&) const = default;
};

// The sender takes part in this life of the job no more, and never will again (rule V9c), unless
// other ranks of it come in after this epoch; 0: from a daemon that does not say.
struct Left {
  JobId incarnation{};
  Failure failure;
  uint64_t epoch = 0;

  bool operator==(const Left&) const = default;
};

// To a node with ranks that wait to come into a job of that name, which runs: why they are not
// taken in. Without a reason: nothing is in their way any more.
struct Unwelcome {
  std::string job;
  std::string token;
  std::string why;

  bool operator==(const Unwelcome&) const = default;
};

// Who proposes, and how late: a higher ballot wins.
struct Ballot {
  uint64_t round = 0;
  std::string node;

  auto operator<=>(const Ballot&) const = default;
};

struct Vote {
  Ballot ballot;
  Proposal proposal;

  bool operator==(const Vote&) const = default;
};

// One Paxos instance for each epoch decides the next view; the report rides on the promise. Every
// message names the epoch that it ends, but for Commit, which names the one that it begins.
namespace change {

struct Prepare {
  JobId incarnation{};
  uint64_t epoch = 0;
  Ballot ballot;
  bool patient = false;  // nothing is wrong: whoever is not lost is waited for (rule V11)

  bool operator==(const Prepare&) const = default;
};
struct Promise {
  JobId incarnation{};
  uint64_t epoch = 0;
  Ballot ballot;
  std::optional<Vote> accepted;
  Report report;

  bool operator==(const Promise&) const = default;
};
struct Accept {
  JobId incarnation{};
  uint64_t epoch = 0;
  Ballot ballot;
  Proposal proposal;

  bool operator==(const Accept&) const = default;
};
struct Accepted {
  JobId incarnation{};
  uint64_t epoch = 0;
  Ballot ballot;

  bool operator==(const Accepted&) const = default;
};
struct Commit {
  JobId incarnation{};
  uint64_t epoch = 0;
  Ballot ballot;
  Proposal proposal;

  bool operator==(const Commit&) const = default;
};
// To a ballot that is not above `promised`.
struct Refuse {
  JobId incarnation{};
  uint64_t epoch = 0;
  Ballot promised;

  bool operator==(const Refuse&) const = default;
};
// The sender is in this epoch and would like to know of a later one.
struct Ask {
  JobId incarnation{};
  uint64_t epoch = 0;

  bool operator==(const Ask&) const = default;
};

}  // namespace change

using JobMessage = std::variant<Claims, Propose, Accept, Reject, Commit, JobFailed, JobDone, Left,
                                Unwelcome, change::Prepare, change::Promise, change::Accept,
                                change::Accepted, change::Commit, change::Refuse, change::Ask>;

}  // namespace gradring::core
