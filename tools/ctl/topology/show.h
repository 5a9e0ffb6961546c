#pragma once

#include <span>
#include <string>
#include <vector>

#include "client.pb.h"
#include "tools/ctl/command.h"

namespace gradring::tools {

using TopologyReports = std::vector<wire::TopologyReport>;  // one for each node

// Pure, all of them. Text and JSON of some nodes, one after the other.
Answer show(const TopologyReports& reports, const Style& style);

// The renderings' parts.
std::string text_of(const wire::TopologyReport& report, const Style& style);
nlohmann::ordered_json json_of(const wire::TopologyReport& report);

// All machines, and each ring once, as a picture; in SVG as it is drawn, in the language of
// Graphviz for whoever wants to draw it otherwise.
std::string svg_of(const TopologyReports& reports);
std::string dot_of(const TopologyReports& reports);

// The rings of all reports, each once.
std::vector<wire::RingReport> rings_of(const TopologyReports& reports);

}  // namespace gradring::tools
