// gradringctl status: the daemon itself.
#include <fmt/format.h>

#include "tools/common/size.h"
#include "tools/common/table.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"

namespace gradring::tools {
namespace {

constexpr std::string_view kReady = "ready";

std::string amount(uint64_t value, const std::string& unit) {
  return unit == "bytes" ? format_bytes(value) : fmt::format("{} {}", value, printable(unit));
}

std::vector<std::string> problems_of(const wire::StatusReport& report) {
  std::vector<std::string> problems;
  if (report.state() != kReady) {
    problems.push_back(fmt::format("the daemon is {}", printable(report.state())));
  }
  const uint32_t expected = report.peers_configured() - report.peers_stopped();
  if (report.peers_up() < expected) {
    const uint32_t missing = expected - report.peers_up();
    problems.push_back(fmt::format("{} of {} {} not up; \"gradringctl peers\" says why", missing,
                                   counted(report.peers_configured(), "peer"),
                                   missing == 1 ? "is" : "are"));
  }
  for (const auto& limit : report.limits()) {
    if (limit.cap() > 0 && limit.used() >= limit.cap()) {
      problems.push_back(fmt::format("{} is at its cap of {}", printable(limit.name()),
                                     amount(limit.cap(), limit.unit())));
    }
  }
  return problems;
}

nlohmann::ordered_json json_of(const wire::StatusReport& report) {
  auto limits = nlohmann::ordered_json::array();
  for (const auto& limit : report.limits()) {
    limits.push_back({{"name", limit.name()},
                      {"used", limit.used()},
                      {"cap", limit.cap()},
                      {"unit", limit.unit()}});
  }
  auto counters = nlohmann::ordered_json::object();
  for (const auto& counter : report.counters()) counters[counter.name()] = counter.value();
  return {{"node", report.node()},
          {"state", report.state()},
          {"pid", report.pid()},
          {"version", report.version()},
          {"uptime_seconds", seconds(report.uptime_ms())},
          {"runtime_dir", report.runtime_dir()},
          {"listen", report.listen()},
          {"secure", report.secure()},
          {"transport", report.transport()},
          {"devices", report.devices()},
          {"devices_reason", report.devices_reason()},
          {"rss_bytes", report.rss_bytes()},
          {"cpu_seconds", report.cpu_seconds()},
          {"sessions", report.sessions()},
          {"jobs", report.jobs()},
          {"peers_up", report.peers_up()},
          {"peers_configured", report.peers_configured()},
          {"peers_stopped", report.peers_stopped()},
          {"limits", limits},
          {"counters", counters}};
}

std::string text_of(const wire::StatusReport& report, const Style& style) {
  const std::string state = printable(report.state());
  std::string text =
      fmt::format("node {}: {}, pid {}, gradringd {}, up {}\n", printable(report.node()),
                  report.state() == kReady ? style.good(state) : style.bad(state), report.pid(),
                  printable(report.version()), format_duration(report.uptime_ms()));
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", name, value);
  };
  line("runtime dir", printable(report.runtime_dir()));
  line("listen", report.listen().empty()
                     ? std::string("nowhere (one node)")
                     : fmt::format("{}, {}", printable(report.listen()),
                                   report.secure() ? "secured by CURVE" : "not secured"));
  line("transport", printable(report.transport()));
  line("devices", report.devices_reason().empty()
                      ? printable(report.devices())
                      : fmt::format("{} ({})", printable(report.devices()),
                                    printable(report.devices_reason())));
  line("memory", format_bytes(report.rss_bytes()));
  line("cpu", fmt::format("{:.2f} s", report.cpu_seconds()));
  line("trainers", fmt::format("{} in {}", counted(report.sessions(), "session"),
                               counted(report.jobs(), "job")));
  const std::string stopped =
      report.peers_stopped() > 0 ? fmt::format(", {} stopped", report.peers_stopped()) : "";
  line("peers",
       fmt::format("{} of {} up{}", report.peers_up(), report.peers_configured(), stopped));
  if (!report.limits().empty()) {
    Table table({{"limit"}, {"used", Table::Align::kRight}, {"cap", Table::Align::kRight}});
    for (const auto& limit : report.limits()) {
      table.add({printable(limit.name()), amount(limit.used(), limit.unit()),
                 limit.cap() == 0 ? "none" : amount(limit.cap(), limit.unit())});
    }
    text += "\n" + table.str();
  }
  if (!report.counters().empty()) {
    Table table({{"counter"}, {"value", Table::Align::kRight}});
    for (const auto& counter : report.counters()) {
      table.add({printable(counter.name()), std::to_string(counter.value())});
    }
    text += "\n" + table.str();
  }
  return text;
}

}  // namespace

Answer show(const wire::StatusReport& report, const Style& style) {
  return {text_of(report, style), json_of(report), problems_of(report)};
}

Result run_status(const Context& context, const Arguments& arguments) {
  if (Status status = no_arguments(arguments); !status.ok()) return tl::unexpected(status);
  wire::Query query;
  query.set_what(wire::Query::STATUS);
  const auto reply = ask(context, query);
  if (!reply) return tl::unexpected(reply.error());
  return show(reply->status(), context.style);
}

}  // namespace gradring::tools
