#pragma once

#include <vector>

#include "client.pb.h"
#include "daemon/config.h"
#include "daemon/control/queries/queries.h"

namespace gradring::daemon {

// What gradringctl doctor compares between nodes: settings, and the time of day.
void add_settings(const Config& config, const std::vector<StandingFacts::Lane>& lanes,
                  wire::StatusReport* report);

}  // namespace gradring::daemon
