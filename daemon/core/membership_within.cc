// Jobs within a job: a group that gathers would wait in vain for a rank that its job has lost.

#include <algorithm>
#include <vector>

#include "daemon/core/membership.h"

namespace gradring::core {

// Of a job that this node is not in, or no more, nothing is known. One of another uid is nobody's
// business.
Status Membership::fit_within(const JoinRequest& request) const {
  if (!request.within) return {};
  const Within& within = *request.within;
  const auto found = live_.find(within.job);
  if (found == live_.end() || found->second.view.uid != request.uid) return {};
  const Live& outer = found->second;
  const View& view = outer.view;
  const auto unfit = [&](const std::string& what) {
    const std::string& why = outer.explanation;
    return Status(Code::kAborted, "job " + request.job + " cannot come about: " + what +
                                      (why.empty() ? "" : "; " + why));
  };
  if (outer.failure || view.closed) return unfit("job " + view.job + " has failed");
  for (const uint32_t rank : within.ranks) {
    const bool lost = !view.has(rank) || view.info_of(rank).since > within.grown;
    if (!lost && !has_left(outer, rank)) continue;
    return unfit("rank " + std::to_string(rank) + " of job " + view.job +
                 (lost ? " is gone" : " has left it"));
  }
  return {};
}

// In good order, as far as it is known here: of another node, when all its ranks have.
bool Membership::has_left(const Live& live, uint32_t rank) const {
  const Member& member = live.view.members[live.view.host_of(rank)];
  if (member.node != node_) return live.left.count(member.node) > 0;
  const bool lost = std::any_of(live.lost.begin(), live.lost.end(),
                                [rank](const LostRank& one) { return one.rank == rank; });
  const bool present = std::any_of(live.local.begin(), live.local.end(), [&](const LocalClaim& c) {
    return c.claim == live.view.info_of(rank).claim && live.present.count(c.request.session) > 0;
  });
  return !lost && !present;
}

bool Membership::fail_if_unfit(const GatheringKey& key) {
  for (const LocalClaim& claim : gatherings_.at(key).local) {
    const Status why = fit_within(claim.request);
    if (why.ok()) continue;
    fail_gathering(key, why);
    return true;
  }
  return false;
}

// After ranks have left the job or it has lost some, or failed.
void Membership::fail_unfit_within(const JobId& job) {
  std::vector<GatheringKey> within;
  for (const auto& [key, gathering] : gatherings_) {
    const auto& local = gathering.local;
    const bool inner = std::any_of(local.begin(), local.end(), [&job](const LocalClaim& claim) {
      return claim.request.within && claim.request.within->job == job;
    });
    if (inner) within.push_back(key);
  }
  for (const GatheringKey& key : within) {
    if (gatherings_.count(key) > 0) fail_if_unfit(key);
  }
}

}  // namespace gradring::core
