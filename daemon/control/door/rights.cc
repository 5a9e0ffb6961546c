#include "daemon/control/door/rights.h"

#include <unistd.h>

namespace gradring::daemon {

bool is_the_nodes(uint32_t uid) { return uid == 0 || uid == geteuid(); }

bool may_see_all(uint32_t uid, const core::Membership& membership) {
  return is_the_nodes(uid) || membership.all_jobs_ever_of(uid);
}

}  // namespace gradring::daemon
