#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client.pb.h"

namespace gradring::tools {

// One way between two nodes: what is measured, and what came of it.
struct ProbeCell {
  std::string from{};
  std::string to{};
  uint32_t lane = 0;
  std::string device{};              // of the sender
  double link_bytes_per_second = 0;  // of the slower of both cards; 0: not known
  std::string fault{};               // why there are no figures
  std::optional<wire::ProbeReport> figures{};

  bool measured() const { return figures.has_value(); }
  // What jobs got of it is part of what the lane carries.
  double bytes_per_second() const;
  double probe_bytes_per_second() const;
  double jobs_bytes_per_second() const;
  double median_us() const;
  // Of its link's rate; none if that is not known.
  std::optional<double> share() const;
};

// A whole measurement: all ordered pairs of nodes, each lane of them.
struct ProbeMatrix {
  bool latency = false;
  bool forced = false;
  double seconds = 0;
  std::vector<std::string> nodes{};  // in the order of rows and columns
  std::vector<ProbeCell> cells{};

  // The lanes that some pair has.
  uint32_t lanes() const;
  const ProbeCell* find(const std::string& from, const std::string& to, uint32_t lane) const;
  // What a cell is judged by: Gbit/s, or us.
  double value(const ProbeCell& cell) const;
};

// Of the cells that have figures. `worst`: the slowest.
struct ProbeSpread {
  double min = 0, median = 0, max = 0;
  const ProbeCell* worst = nullptr;
};
// None: no cell has figures.
std::optional<ProbeSpread> spread_of(const ProbeMatrix& matrix);

// Ways that are much slower than most: that get less than 70 % of the median.
std::vector<const ProbeCell*> slow_cells(const ProbeMatrix& matrix);

// What a node says of itself, before anything is measured.
struct ProbedNode {
  std::string node;
  wire::PeersReport peers{};
  wire::TopologyReport topology{};
};
// Each node to each other, each lane. Those that do not stand have their fault already.
ProbeMatrix cells_of(const std::vector<ProbedNode>& nodes);

// In bytes a second; 0 where nobody knows, as with a tunnel or a virtual card.
double lane_rate(const wire::TopologyReport& topology, uint32_t lane);

}  // namespace gradring::tools
