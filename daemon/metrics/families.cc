#include "daemon/metrics/families.h"

#include <limits>

#include "daemon/metrics/labels.h"
#include "daemon/metrics/page.h"

namespace gradring::daemon::metrics {

prometheus::ClientMetric Family::with(const Labels& labels) const {
  prometheus::ClientMetric metric;
  metric.label.push_back({"node", *node_});
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  return metric;
}

void Family::add(const Labels& labels, std::span<const core::Time> bounds,
                 std::span<const uint64_t> counts, core::Time sum) {
  prometheus::ClientMetric metric = with(labels);
  uint64_t so_far = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    so_far += counts[i];
    const bool last = i == bounds.size();
    const double bound = last ? std::numeric_limits<double>::infinity() : seconds(bounds[i]);
    metric.histogram.bucket.push_back({so_far, bound});
  }
  metric.histogram.sample_count = so_far;
  metric.histogram.sample_sum = seconds(sum);
  to_->metric.push_back(std::move(metric));
}

Family Page::begin(const char* name, const char* help, prometheus::MetricType type) {
  families_.push_back({name, help, type, {}});
  return {&families_.back(), &node_};
}

std::vector<prometheus::MetricFamily> families_of(const Snapshot& snapshot, core::Time now) {
  Page page(label_of(snapshot.node));
  write_node(snapshot, now, &page);
  write_jobs(snapshot, &page);
  write_peers(snapshot, &page);
  write_ports(snapshot, &page);
  write_gpus(snapshot, &page);
  return page.take();
}

}  // namespace gradring::daemon::metrics
