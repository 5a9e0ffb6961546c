#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/metrics/snapshot.h"
#include "query.pb.h"
#include "transport/machine/port_watch.h"

namespace gradring::daemon {

// "mlx5_0:1, mlx5_1:1 (RDMA)" is two ports of RDMA devices, "eth0 (TCP)" an interface.
std::vector<machine::PortId> ports_of_lane(const std::string& device);
// "mlx5_0:1", "eth0"
std::string name_of(const machine::PortId& port);

// The ports by which our lanes go: what the kernel told of them, and what they count. A lane goes
// down with the last of its ports. Control thread only.
class Ports {
 public:
  // By lane; `watch` nullptr: nobody looks, as in tests.
  Ports(const std::vector<std::string>& lanes, machine::PortWatch* watch);

  // Readable when there is something to take; -1: never.
  int event_fd() const { return watch_ == nullptr ? -1 : watch_->event_fd(); }

  struct LaneChange {
    uint8_t lane = 0;
    bool down = false;
    std::string why;  // for people
    bool operator==(const LaneChange&) const = default;
  };
  // What has come since, said to those who read the log; and what it means for lanes, in order.
  std::vector<LaneChange> take();
  std::vector<LaneChange> heard(const machine::PortNews& news);

  // ---- what people are shown ----
  void add_to(wire::TopologyReport* report, core::Time now) const;
  void add_to(wire::PeersReport* report) const;
  std::vector<metrics::PortSeries> series() const;

 private:
  struct Port {
    machine::PortId id;
    machine::PortChange state = machine::PortChange::kActive;  // or kDown, kGone
    core::Time since = 0;                                      // 0: since the daemon began
    machine::PortChange last = machine::PortChange::kActive;   // that was told
    core::Time last_at = 0;                                    // 0: nothing was
    std::array<uint64_t, machine::kPortChanges> changes{};
  };
  struct Lane {
    std::string device;
    std::vector<size_t> ports;
    bool down = false;
  };
  void say(const Port& port, machine::PortChange change) const;
  std::string lanes_of(size_t port) const;

  machine::PortWatch* const watch_;
  std::vector<Port> ports_;
  std::vector<Lane> lanes_;
};

// Every port that a daemon's lanes need watched.
std::vector<machine::PortId> ports_of_lanes(const std::vector<std::string>& lanes);

}  // namespace gradring::daemon
