#include "tools/ctl/probe/show.h"

#include <fmt/format.h>

#include "tools/common/size.h"
#include "tools/common/table.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

double microseconds(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

std::string number(const ProbeMatrix& matrix, double value) {
  return matrix.latency ? fmt::format("{:.1f}", value) : fmt::format("{:.3f}", value);
}

const char* unit_of(const ProbeMatrix& matrix) { return matrix.latency ? "us" : "Gbit/s"; }

std::string way_of(const ProbeMatrix& matrix, const ProbeCell& cell) {
  const std::string lane =
      matrix.lanes() > 1 ? fmt::format(" by lane {} ({})", cell.lane, printable(cell.device)) : "";
  return fmt::format("{} to {}{}", printable(cell.from), printable(cell.to), lane);
}

std::string cell_text(const ProbeMatrix& matrix, const ProbeCell* cell, const ProbeCell* worst,
                      const Style& style) {
  if (cell == nullptr) return "- ";
  if (!cell->measured()) return style.bad("none ");
  std::string text = number(matrix, matrix.value(*cell));
  if (matrix.latency) {
    text = fmt::format("{:.1f} / {} / {:.1f}", microseconds(cell->figures->min_ns()), text,
                       microseconds(cell->figures->p99_ns()));
  } else if (const auto share = cell->share()) {
    text += fmt::format(" {:3.0f} %", *share * 100);
  }
  return cell == worst ? style.bad(text + "*") : text + " ";
}

std::string table_of(const ProbeMatrix& matrix, uint32_t lane, const ProbeCell* worst,
                     const Style& style) {
  std::vector<Table::Column> columns = {{"from \\ to"}};
  for (const std::string& node : matrix.nodes) {
    columns.push_back({printable(node) + " ", Table::Align::kRight});
  }
  Table table(std::move(columns));
  for (const std::string& from : matrix.nodes) {
    std::vector<std::string> row = {printable(from)};
    for (const std::string& to : matrix.nodes) {
      row.push_back(cell_text(matrix, matrix.find(from, to, lane), worst, style));
    }
    table.add(std::move(row));
  }
  return table.str();
}

nlohmann::ordered_json json_of(const ProbeMatrix& matrix, const ProbeCell& cell) {
  nlohmann::ordered_json one = {
      {"from", cell.from}, {"to", cell.to}, {"lane", cell.lane}, {"device", cell.device}};
  if (cell.link_bytes_per_second > 0) one["link_bytes_per_second"] = cell.link_bytes_per_second;
  if (!cell.measured()) {
    one["fault"] = cell.fault;
    return one;
  }
  one["message_bytes"] = cell.figures->message_bytes();
  if (matrix.latency) {
    one["round_trips"] = cell.figures->round_trips();
    one["min_us"] = microseconds(cell.figures->min_ns());
    one["median_us"] = microseconds(cell.figures->median_ns());
    one["p99_us"] = microseconds(cell.figures->p99_ns());
    return one;
  }
  one["bytes_per_second"] = cell.bytes_per_second();
  one["jobs_bytes_per_second"] = cell.jobs_bytes_per_second();
  if (const auto share = cell.share()) one["share_of_link"] = *share;
  return one;
}

void add_problems(const ProbeMatrix& matrix, Answer* answer) {
  for (const ProbeCell& cell : matrix.cells) {
    if (cell.measured()) continue;
    answer->problems.push_back(
        fmt::format("{} was not measured: {}", way_of(matrix, cell), printable(cell.fault)));
  }
  const auto spread = spread_of(matrix);
  for (const ProbeCell* cell : slow_cells(matrix)) {
    const double value = matrix.value(*cell);
    answer->problems.push_back(fmt::format("{} gets {}, which is {:.0f} % of the median",
                                           way_of(matrix, *cell), value_text(matrix, value),
                                           value / spread->median * 100));
  }
}

}  // namespace

std::string value_text(const ProbeMatrix& matrix, double value) {
  return fmt::format("{} {}", number(matrix, value), unit_of(matrix));
}

std::string probes_title(const ProbeMatrix& matrix, std::string_view latencies) {
  uint64_t bytes = 0;
  for (const ProbeCell& cell : matrix.cells) {
    if (cell.measured()) bytes = cell.figures->message_bytes();
  }
  return fmt::format("{}, {} each{}{}",
                     matrix.latency ? fmt::format("there and back in us, {}", latencies)
                                    : "bandwidth between nodes in Gbit/s",
                     format_duration(static_cast<uint64_t>(matrix.seconds * 1000)),
                     bytes > 0 ? fmt::format(", messages of {}", format_bytes(bytes)) : "",
                     matrix.forced ? ", beside jobs" : "");
}

std::string spread_text(const ProbeMatrix& matrix, const ProbeSpread& spread) {
  return fmt::format("{}min {}, median {}, max {} {}", matrix.latency ? "medians: " : "",
                     number(matrix, spread.min), number(matrix, spread.median),
                     number(matrix, spread.max), unit_of(matrix));
}

Answer show_probes(const ProbeMatrix& matrix, const Style& style) {
  Answer answer;
  const auto spread = spread_of(matrix);
  const ProbeCell* worst = spread ? spread->worst : nullptr;
  answer.json = {{"measured", matrix.latency ? "latency" : "bandwidth"},
                 {"seconds", matrix.seconds},
                 {"forced", matrix.forced},
                 {"nodes", matrix.nodes},
                 {"cells", nlohmann::ordered_json::array()}};
  for (const ProbeCell& cell : matrix.cells) answer.json["cells"].push_back(json_of(matrix, cell));
  add_problems(matrix, &answer);
  if (matrix.cells.empty()) {
    answer.text = "this daemon has no peers, so there is nothing to measure\n";
    return answer;
  }
  answer.text = probes_title(matrix, "min / median / p99") + "\n";
  for (uint32_t lane = 0; lane < matrix.lanes(); ++lane) {
    if (matrix.lanes() > 1) answer.text += fmt::format("\nlane {}\n", lane);
    answer.text += table_of(matrix, lane, worst, style);
  }
  if (!spread) return answer;
  answer.text +=
      fmt::format("\n{}\n* worst: {}\n", spread_text(matrix, *spread), way_of(matrix, *worst));
  const std::string suffix = matrix.latency ? "_us" : "_bytes_per_second";
  const double scale = matrix.latency ? 1 : 1e9 / 8;
  answer.json["min" + suffix] = spread->min * scale;
  answer.json["median" + suffix] = spread->median * scale;
  answer.json["max" + suffix] = spread->max * scale;
  answer.json["worst"] = {{"from", worst->from}, {"to", worst->to}, {"lane", worst->lane}};
  return answer;
}

}  // namespace gradring::tools
