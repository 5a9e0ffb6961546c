#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "daemon/core/time.h"
#include "daemon/metrics/snapshot.h"

namespace gradring::daemon::metrics {

// The snapshot in Prometheus' terms: every family of docs/metrics.md, also one that has no value
// yet, in an order that does not change. `now`: how old the snapshot is, is one of them. Pure.
std::vector<prometheus::MetricFamily> families_of(const Snapshot& snapshot, core::Time now);

}  // namespace gradring::daemon::metrics
