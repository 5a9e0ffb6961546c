#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/metrics/snapshot.h"

namespace gradring::daemon::metrics {

using Labels = std::vector<std::pair<const char*, std::string>>;

inline double seconds(core::Time time) {
  return static_cast<double>(time) / static_cast<double>(core::kSecond);
}

// One family while it is being written.
class Family {
 public:
  Family(prometheus::MetricFamily* to, const std::string* node) : to_(to), node_(node) {}

  template <typename Number>
  void add(const Labels& labels, Number value) {
    prometheus::ClientMetric metric = with(labels);
    if (to_->type == prometheus::MetricType::Counter) {
      metric.counter.value = static_cast<double>(value);
    } else {
      metric.gauge.value = static_cast<double>(value);
    }
    to_->metric.push_back(std::move(metric));
  }
  // A histogram: how many came within each of the bounds and not within the one before; those
  // beyond all bounds are the last of `counts`.
  void add(const Labels& labels, std::span<const core::Time> bounds,
           std::span<const uint64_t> counts, core::Time sum);

 private:
  // Every series says of which node it is, whatever the scraper calls the target.
  prometheus::ClientMetric with(const Labels& labels) const;

  prometheus::MetricFamily* const to_;
  const std::string* const node_;
};

// Families, in the order in which they are begun.
class Page {
 public:
  explicit Page(std::string node) : node_(std::move(node)) {}

  // Valid until the next one is begun.
  Family counter(const char* name, const char* help) {
    return begin(name, help, prometheus::MetricType::Counter);
  }
  Family gauge(const char* name, const char* help) {
    return begin(name, help, prometheus::MetricType::Gauge);
  }
  Family histogram(const char* name, const char* help) {
    return begin(name, help, prometheus::MetricType::Histogram);
  }
  std::vector<prometheus::MetricFamily> take() { return std::move(families_); }

 private:
  Family begin(const char* name, const char* help, prometheus::MetricType type);

  const std::string node_;
  std::vector<prometheus::MetricFamily> families_;
};

// The parts of the page, each in a file of its own.
void write_node(const Snapshot& snapshot, core::Time now, Page* page);
void write_jobs(const Snapshot& snapshot, Page* page);
void write_peers(const Snapshot& snapshot, Page* page);
void write_ports(const Snapshot& snapshot, Page* page);
void write_gpus(const Snapshot& snapshot, Page* page);

}  // namespace gradring::daemon::metrics
