#include "tools/ctl/topology/show.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/common/text.h"
#include "tools/ctl/topology/names.h"

namespace gradring::tools {
namespace {

void add_problems(const wire::TopologyReport& report, std::vector<std::string>* problems) {
  const std::string node = printable(report.node());
  for (const auto& lane : report.lanes()) {
    if (lane.nic() < 0 || report.machine().nics(lane.nic()).up()) continue;
    problems->push_back(
        fmt::format("{}: the link of lane {} is down", node, printable(lane.device())));
  }
  for (const auto& error : report.gpu_errors().errors()) {
    if (error.verdict() != "unusable") continue;
    problems->push_back(fmt::format("{}: GPU {} {} ({}): {}", node, printable(error.gpu()),
                                    printable(error.what()), printable(error.error()),
                                    printable(error.remedy())));
  }
  for (const auto& peer : report.peers()) {
    const std::string name = printable(peer.node().empty() ? peer.address() : peer.node());
    if (peer.state() != "up" && peer.state() != "stopped") {
      problems->push_back(fmt::format("{}: {} is {}; \"gradringctl peers\" says why", node, name,
                                      printable(peer.state())));
    }
    for (const auto& lane : peer.lanes()) {
      if (lane.state() == "up") continue;
      problems->push_back(fmt::format("{}: the lane on {} to {} is not used", node,
                                      printable(lane.device()), name));
    }
  }
}

}  // namespace

Answer show(const TopologyReports& reports, const Style& style) {
  Answer answer;
  auto nodes = nlohmann::ordered_json::array();
  for (const wire::TopologyReport& told : reports) {
    wire::TopologyReport report = told;
    if (const std::string nonsense = nonsense_in(told); !nonsense.empty()) {
      report.Clear();
      report.set_node(told.node());
      report.mutable_machine()->set_fault(nonsense);
      answer.problems.push_back(fmt::format("{}: {}", printable(told.node()), nonsense));
    }
    answer.text += (answer.text.empty() ? "" : "\n") + text_of(report, style);
    nodes.push_back(json_of(report));
    add_problems(report, &answer.problems);
  }
  answer.json = {{"nodes", nodes}};
  return answer;
}

std::vector<wire::RingReport> rings_of(const TopologyReports& reports) {
  std::vector<wire::RingReport> rings;
  for (const wire::TopologyReport& report : reports) {
    for (const wire::RingReport& ring : report.rings()) {
      const bool known = std::any_of(rings.begin(), rings.end(), [&](const wire::RingReport& one) {
        return one.incarnation() == ring.incarnation();
      });
      if (!known) rings.push_back(ring);
    }
  }
  return rings;
}

}  // namespace gradring::tools
