#pragma once

#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "daemon/core/report.h"
#include "daemon/core/view.h"

namespace gradring::core {

// The fate of every op that a member of `next` reported, by key: what every member has or some hold
// is kept, the rest computed anew, and what cannot be is failed (protocol rule V8). An error is a
// contradiction between the reports.
tl::expected<std::vector<OpFate>, std::string> fates_of(
    const View& old, const View& next, const std::map<std::string, Report>& reports);

}  // namespace gradring::core
