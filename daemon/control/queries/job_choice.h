#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/core/membership.h"

namespace gradring::daemon {

// The job that a person means by a name, or by 8 or more hex digits of an incarnation: one that
// runs before one that forms or fails, and both before those that are over, of which it is the
// last.
std::optional<core::JobInfo> choose(std::vector<core::JobInfo> jobs, const std::string& name);

}  // namespace gradring::daemon
