#pragma once

#include <cstdint>

#include "daemon/core/membership.h"

namespace gradring::daemon {

// Root, and the daemon's user.
bool is_the_nodes(uint32_t uid);

// Who may look after the node as a whole: root, the daemon's user, and whoever owns all jobs there
// are.
bool may_look_after(uint32_t uid, const core::Membership& membership);

// Who may see what was written down of everybody's jobs: likewise, but of all jobs there ever were.
bool may_see_all(uint32_t uid, const core::Membership& membership);

}  // namespace gradring::daemon
