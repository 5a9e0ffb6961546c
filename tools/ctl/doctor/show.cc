#include "tools/ctl/doctor/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/common/text.h"

namespace gradring::tools::doctor {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"OK", "WARN", "FAIL", "SKIP"};

std::string_view name_of(Level level) { return kNames[static_cast<size_t>(level)]; }

// Padded first: an escape sequence takes no column.
std::string shown(Level level, const Style& style) {
  const std::string text = fmt::format("{:<4}", name_of(level));
  switch (level) {
    case Level::kOk:
      return style.good(text);
    case Level::kSkip:
      return style.faint(text);
    default:
      return style.bad(text);
  }
}

void add(Findings* to, Findings from) {
  for (Finding& one : from) to->push_back(std::move(one));
}

}  // namespace

std::vector<Section> examine(const Facts& facts) {
  Section here{"this node", "node", check_daemon(facts)};
  add(&here.findings, check_limits(facts));
  add(&here.findings, check_host(facts));
  if (!facts.daemon_fault.empty() && facts.nodes.empty()) return {here};
  add(&here.findings, check_network(facts));
  add(&here.findings, check_rdma(facts));
  add(&here.findings, check_gpus(facts));
  Section between{"between nodes", "peers", check_peers(facts)};
  add(&between.findings, check_links(facts));
  return {here, between};
}

Answer show(const std::vector<Section>& sections, const Style& style) {
  Answer answer;
  auto checks = nlohmann::ordered_json::array();
  std::array<uint64_t, kNames.size()> counts{};
  size_t width = 0;
  for (const Section& section : sections) {
    for (const Finding& one : section.findings) width = std::max(width, width_of(one.check));
  }
  for (const Section& section : sections) {
    answer.text += section.title + "\n";
    for (const Finding& one : section.findings) {
      ++counts[static_cast<size_t>(one.level)];
      const std::string gap(width - width_of(one.check), ' ');
      answer.text +=
          fmt::format("  {}  {}{}  {}\n", shown(one.level, style), one.check, gap, one.found);
      if (!one.remedy.empty())
        answer.text += fmt::format("  {:<4}  {:<{}}  -> {}\n", "", "", width, one.remedy);
      checks.push_back({{"scope", section.scope},
                        {"check", one.check},
                        {"level", name_of(one.level)},
                        {"found", one.found},
                        {"remedy", one.remedy}});
      if (one.level == Level::kFail)
        answer.problems.push_back(fmt::format("{}: {}", one.check, one.found));
    }
    answer.text += '\n';
  }
  answer.text += fmt::format("{} good, {} to look at, {} bad, {} left out\n", counts[0], counts[1],
                             counts[2], counts[3]);
  answer.json = {{"checks", checks},
                 {"ok", counts[0]},
                 {"warn", counts[1]},
                 {"fail", counts[2]},
                 {"skip", counts[3]}};
  return answer;
}

}  // namespace gradring::tools::doctor
