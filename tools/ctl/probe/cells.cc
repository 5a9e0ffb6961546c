#include "tools/ctl/probe/cells.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/common/text.h"
#include "tools/ctl/rates.h"

namespace gradring::tools {
namespace {

constexpr double kSlowBelow = 0.7;  // of the median

double per_second(uint64_t bytes, const wire::ProbeReport& report) {
  if (report.nanoseconds() == 0) return 0;
  return static_cast<double>(bytes) * 1e9 / static_cast<double>(report.nanoseconds());
}

// "mlx5_0:1 (RDMA)" names port 1 of mlx5_0, "eth0 (TCP)" an interface.
uint64_t bits_of_device(const wire::NicReport& nic, const std::string& device) {
  const std::string name = device.substr(0, device.find(' '));
  for (const wire::NetDeviceReport& one : nic.interfaces()) {
    if (one.name() == name) return one.rate_bps();
  }
  for (const wire::RdmaPortReport& port : nic.rdma().ports()) {
    if (name == fmt::format("{}:{}", nic.rdma().name(), port.number())) return port.rate_bps();
  }
  return nic.rate_bps();
}

}  // namespace

double ProbeCell::probe_bytes_per_second() const {
  return figures ? per_second(figures->bytes(), *figures) : 0;
}
double ProbeCell::jobs_bytes_per_second() const {
  return figures ? per_second(figures->jobs_bytes(), *figures) : 0;
}
double ProbeCell::bytes_per_second() const {
  return probe_bytes_per_second() + jobs_bytes_per_second();
}
double ProbeCell::median_us() const {
  return figures ? static_cast<double>(figures->median_ns()) / 1e3 : 0;
}
std::optional<double> ProbeCell::share() const {
  if (!figures || link_bytes_per_second <= 0) return std::nullopt;
  return bytes_per_second() / link_bytes_per_second;
}

uint32_t ProbeMatrix::lanes() const {
  uint32_t lanes = 0;
  for (const ProbeCell& cell : cells) lanes = std::max(lanes, cell.lane + 1);
  return lanes;
}

const ProbeCell* ProbeMatrix::find(const std::string& from, const std::string& to,
                                   uint32_t lane) const {
  const auto it = std::ranges::find_if(cells, [&](const ProbeCell& cell) {
    return cell.from == from && cell.to == to && cell.lane == lane;
  });
  return it == cells.end() ? nullptr : &*it;
}

double ProbeMatrix::value(const ProbeCell& cell) const {
  return latency ? cell.median_us() : cell.bytes_per_second() * 8 / 1e9;
}

std::optional<ProbeSpread> spread_of(const ProbeMatrix& matrix) {
  std::vector<const ProbeCell*> sorted;
  for (const ProbeCell& cell : matrix.cells) {
    if (cell.measured()) sorted.push_back(&cell);
  }
  if (sorted.empty()) return std::nullopt;
  std::ranges::stable_sort(sorted, {}, [&](const ProbeCell* cell) { return matrix.value(*cell); });
  const size_t middle = sorted.size() / 2;
  double median = matrix.value(*sorted[middle]);
  if (sorted.size() % 2 == 0) median = (median + matrix.value(*sorted[middle - 1])) / 2;
  return ProbeSpread{matrix.value(*sorted.front()), median, matrix.value(*sorted.back()),
                     matrix.latency ? sorted.back() : sorted.front()};
}

std::vector<const ProbeCell*> slow_cells(const ProbeMatrix& matrix) {
  const auto spread = spread_of(matrix);
  std::vector<const ProbeCell*> slow;
  if (!spread || matrix.latency) return slow;
  for (const ProbeCell& cell : matrix.cells) {
    if (cell.measured() && matrix.value(cell) < kSlowBelow * spread->median) slow.push_back(&cell);
  }
  std::ranges::stable_sort(slow, {}, [&](const ProbeCell* cell) { return matrix.value(*cell); });
  return slow;
}

double lane_rate(const wire::TopologyReport& topology, uint32_t lane) {
  if (lane >= static_cast<uint32_t>(topology.lanes_size())) return 0;
  const wire::LaneChoice& choice = topology.lanes(static_cast<int>(lane));
  if (choice.nic() < 0 || choice.nic() >= topology.machine().nics_size()) return 0;
  const auto bits = bits_of_device(topology.machine().nics(choice.nic()), choice.device());
  return static_cast<double>(bits) / 8;
}

ProbeMatrix cells_of(const std::vector<ProbedNode>& nodes) {
  ProbeMatrix matrix;
  for (const ProbedNode& from : nodes) {
    matrix.nodes.push_back(from.node);
    for (const ProbedNode& to : nodes) {
      if (from.node == to.node) continue;
      const wire::PeerReport* peer = find_peer(from.peers, to.node);
      if (peer == nullptr || peer->state() != "up") {
        matrix.cells.push_back(
            {.from = from.node, .to = to.node, .fault = "they are not connected"});
        continue;
      }
      for (int lane = 0; lane < peer->lanes_size(); ++lane) {
        ProbeCell cell{.from = from.node, .to = to.node, .lane = static_cast<uint32_t>(lane)};
        cell.device = peer->lanes(lane).device();
        const double here = lane_rate(from.topology, cell.lane);
        const double there = lane_rate(to.topology, cell.lane);
        cell.link_bytes_per_second = here > 0 && there > 0 ? std::min(here, there) : here + there;
        if (peer->lanes(lane).state() != "up")
          cell.fault = "the lane is " + peer->lanes(lane).state();
        matrix.cells.push_back(std::move(cell));
      }
    }
  }
  std::ranges::sort(matrix.nodes, in_order);
  return matrix;
}

}  // namespace gradring::tools
