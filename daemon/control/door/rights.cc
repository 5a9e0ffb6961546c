#include "daemon/control/door/rights.h"

#include <unistd.h>

#include <algorithm>

namespace gradring::daemon {

bool is_the_nodes(uint32_t uid) { return uid == 0 || uid == geteuid(); }

bool may_look_after(uint32_t uid, const core::Membership& membership) {
  if (is_the_nodes(uid)) return true;
  auto jobs = membership.jobs();
  std::erase_if(jobs, [](const auto& job) { return job.over; });
  const bool all_its = std::ranges::all_of(jobs, [uid](const auto& job) { return job.uid == uid; });
  return all_its && !jobs.empty();
}

bool may_see_all(uint32_t uid, const core::Membership& membership) {
  return is_the_nodes(uid) || membership.all_jobs_ever_of(uid);
}

}  // namespace gradring::daemon
