#include "daemon/control/rights.h"

#include <unistd.h>

#include <algorithm>

namespace gradring::daemon {

bool may_look_after(uint32_t uid, const core::Membership& membership) {
  if (uid == 0 || uid == geteuid()) return true;
  const auto jobs = membership.jobs();
  const bool all_its = std::ranges::all_of(jobs, [uid](const auto& job) { return job.uid == uid; });
  return all_its && !jobs.empty();
}

}  // namespace gradring::daemon
