#include <algorithm>

#include "tools/ctl/topology/draw.h"
#include "tools/ctl/topology/names.h"
#include "tools/ctl/topology/show.h"

namespace gradring::tools {

std::string svg_of(const TopologyReports& reports) {
  std::vector<Picture> parts;
  for (const wire::TopologyReport& report : reports) {
    if (!nonsense_in(report).empty() || !report.machine().fault().empty()) continue;
    parts.push_back(draw_machine(report.machine(), report.node()));
  }
  std::vector<std::string> lanes;
  if (!reports.empty()) {
    for (const auto& lane : reports.front().lanes()) lanes.push_back(lane.device());
  }
  const auto rings = rings_of(reports);
  for (const wire::RingReport& ring : rings) parts.push_back(draw_ring(ring, lanes));
  if (rings.empty() && !reports.empty() && reports.front().peers_size() > 0) {
    parts.push_back(draw_nodes(reports.front()));
  }
  Picture whole;
  for (const Picture& part : parts) whole.width = std::max(whole.width, part.width);
  for (const Picture& part : parts) {
    whole.place({(whole.width - part.width) / 2, whole.height}, part);
    whole.height += part.height;
  }
  return svg_file(whole, "topology as gradring sees it");
}

}  // namespace gradring::tools
