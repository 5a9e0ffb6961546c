// The ports of the network by which our lanes go.

#include "daemon/metrics/labels.h"
#include "daemon/metrics/page.h"

namespace gradring::daemon::metrics {
namespace {

Labels labels_of_port(const PortSeries& port) {
  return {{"device", label_of(port.device)}, {"port", std::to_string(port.port)}};
}

}  // namespace

void write_ports(const Snapshot& snapshot, Page* page) {
  Family active = page->gauge("gradring_port_active", "1 while the port of a lane has a link");
  for (const PortSeries& port : snapshot.ports) {
    active.add(labels_of_port(port), port.active ? 1 : 0);
  }
  Family changes = page->counter("gradring_port_changes_total",
                                 "What the kernel told of the port, by what has changed");
  for (const PortSeries& port : snapshot.ports) {
    for (const auto& [change, count] : port.changes) {
      if (port.port == 0 && change != "down" && change != "active" && change != "gone") continue;
      Labels labels = labels_of_port(port);
      labels.emplace_back("change", change);
      changes.add(labels, count);
    }
  }
  Family events = page->counter("gradring_rdma_port_events_total",
                                "What the RDMA card counts of trouble since it was started");
  for (const PortSeries& port : snapshot.ports) {
    for (const auto& [counter, count] : port.counters) {
      Labels labels = labels_of_port(port);
      labels.emplace_back("counter", counter);
      events.add(labels, count);
    }
  }
}

}  // namespace gradring::daemon::metrics
