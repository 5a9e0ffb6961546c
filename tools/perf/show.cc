#include "tools/perf/show.h"

#include <fmt/format.h>

#include "proto/version.h"
#include "tools/common/bus_factor.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

constexpr int kSchemaVersion = 1;
constexpr double kGiga = 1e9;

struct Total {
  uint64_t wrong = 0;
  bool checked = false;
  double average_bus_bandwidth = 0;
};

Total total_of(const std::vector<Measurement>& all, int ranks) {
  Total total;
  for (const auto& one : all) {
    total.wrong += one.wrong.value_or(0);
    total.checked |= one.wrong.has_value();
    total.average_bus_bandwidth += bus_bandwidth(one, ranks) / static_cast<double>(all.size());
  }
  return total;
}

std::string_view type_of(const Case& of) {
  return of.collective == Collective::kBarrier ? "none" : name_of(of.dtype);
}
std::string_view operation_of(const Case& of) {
  return of.op == ReduceOp::kNone ? "none" : name_of(of.op);
}
int root_of(const Case& of) { return has_root(of.collective) ? static_cast<int>(of.root) : -1; }

bool in_place(Collective collective) { return collective != Collective::kAlltoall; }

}  // namespace

double algorithm_bandwidth(const Measurement& one) {
  return one.seconds > 0 ? static_cast<double>(one.of.bytes()) / one.seconds : 0;
}

double bus_bandwidth(const Measurement& one, int ranks) {
  return algorithm_bandwidth(one) * bus_factor(one.of.collective, ranks);
}

std::string perf_heading(Collective collective, int ranks, int local_ranks, const std::string& job,
                         const Manner& manner) {
  std::string more = manner.gpu.empty() ? "" : ", on " + printable(manner.gpu);
  if (manner.together > 1) more += fmt::format(", {} at a time", manner.together);
  if (manner.wire != "native") more += fmt::format(", {} on the wire", printable(manner.wire));
  return fmt::format(
      "# gradring-perf {}: {}, {} ({} on this node), {}, job {}{}\n"
      "#\n"
      "# {:>11} {:>13} {:>9} {:>8} {:>5} {:>11} {:>8} {:>8} {:>7}\n"
      "# {:>11} {:>13} {:>9} {:>8} {:>5} {:>11} {:>8} {:>8}\n",
      kProductVersion, name_of(collective), counted(static_cast<uint64_t>(ranks), "rank"),
      local_ranks, in_place(collective) ? "in place" : "out of place", printable(job), more, "size",
      "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "(B)", "(elements)", "",
      "", "", "(us)", "(GB/s)", "(GB/s)");
}

std::string perf_row(const Measurement& one, int ranks) {
  const bool moves = one.of.collective != Collective::kBarrier;
  const auto bandwidth = [&](double value) {
    return moves ? fmt::format("{:.2f}", value / kGiga) : std::string("-");
  };
  return fmt::format("  {:>11} {:>13} {:>9} {:>8} {:>5} {:>11.1f} {:>8} {:>8} {:>7}\n",
                     one.of.bytes(), count_of(one.of, ranks), type_of(one.of), operation_of(one.of),
                     root_of(one.of), one.seconds * 1e6, bandwidth(algorithm_bandwidth(one)),
                     bandwidth(bus_bandwidth(one, ranks)),
                     one.wrong && moves ? std::to_string(*one.wrong) : "N/A");
}

std::string perf_ending(const std::vector<Measurement>& all, int ranks) {
  const Total total = total_of(all, ranks);
  std::string text;
  if (total.checked) {
    text += fmt::format("# Wrong values: {} {}\n", total.wrong, total.wrong == 0 ? "OK" : "FAILED");
  }
  if (all.empty() || all.front().of.collective == Collective::kBarrier) return text;
  return text +
         fmt::format("# Average bus bandwidth: {:.3f} GB/s\n", total.average_bus_bandwidth / kGiga);
}

nlohmann::ordered_json perf_document(Collective collective, int ranks,
                                     const std::vector<Measurement>& all, const Manner& manner) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& one : all) {
    rows.push_back({{"size_bytes", one.of.bytes()},
                    {"count", count_of(one.of, ranks)},
                    {"type", type_of(one.of)},
                    {"redop", operation_of(one.of)},
                    {"root", root_of(one.of)},
                    {"iterations", one.iterations},
                    {"time_seconds", one.seconds},
                    {"algbw_bytes_per_second", algorithm_bandwidth(one)},
                    {"busbw_bytes_per_second", bus_bandwidth(one, ranks)},
                    {"checked", one.wrong.has_value()},
                    {"wrong", one.wrong.value_or(0)}});
  }
  const Total total = total_of(all, ranks);
  return {{"schema_version", kSchemaVersion},
          {"version", kProductVersion},
          {"collective", name_of(collective)},
          {"ranks", ranks},
          {"in_place", in_place(collective)},
          {"memory", name_of(manner.memory)},
          {"together", manner.together},
          {"wire", manner.wire},
          {"results", rows},
          {"wrong", total.wrong},
          {"average_busbw_bytes_per_second", total.average_bus_bandwidth}};
}

}  // namespace gradring::tools
