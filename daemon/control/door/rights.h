#pragma once

#include <cstdint>

#include "daemon/core/membership.h"

namespace gradring::daemon {

// Root, and the daemon's user: they look after the node as a whole.
bool is_the_nodes(uint32_t uid);

// Who may see what was written down of everybody's jobs: they, and whoever has owned all of these.
bool may_see_all(uint32_t uid, const core::Membership& membership);

}  // namespace gradring::daemon
