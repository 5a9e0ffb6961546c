#pragma once

#include <cstdint>

#include "daemon/core/membership.h"

namespace gradring::daemon {

// Who may look after the node as a whole, and see everybody's jobs on it: root, the daemon's user,
// and whoever owns all jobs there are.
bool may_look_after(uint32_t uid, const core::Membership& membership);

}  // namespace gradring::daemon
