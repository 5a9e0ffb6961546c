#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/core/membership.h"

namespace gradring::daemon {

// The job that a person means by a name, or by 8 or more hex digits of an incarnation: a live one
// before an ended one, the latest ended one before the others.
std::optional<core::JobInfo> choose(std::vector<core::JobInfo> jobs, const std::string& name);

}  // namespace gradring::daemon
