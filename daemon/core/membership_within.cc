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
  const auto lost = std::find_if(within.ranks.begin(), within.ranks.end(), [&](uint32_t rank) {
    return !view.has(rank) || view.info_of(rank).since > within.grown;
  });
  if (lost == within.ranks.end()) return {};
  return unfit("rank " + std::to_string(*lost) + " of job " + view.job + " is gone");
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

// After the job has lost ranks, or failed.
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
