// The daemon itself, and the machine's clock and processors.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/common/text.h"
#include "tools/ctl/doctor/finding.h"

namespace gradring::tools::doctor {
namespace {

// Of the limits a daemon tells, those that it rereads on SIGHUP.
constexpr std::array<std::string_view, 3> kReread = {"segment-limit", "max-sessions",
                                                     "sessions-per-uid"};

std::string how_to_raise(const std::string& limit) {
  if (limit == "open files")
    return "raise LimitNOFILE in the unit, or ulimit -n, and restart gradringd";
  const bool reread = std::ranges::find(kReread, limit) != kReread.end();
  return fmt::format("raise {} in gradringd.conf and {}", printable(limit),
                     reread ? "reload" : "restart gradringd");
}

Finding governor(const ClockFacts& clock) {
  if (clock.governors.empty())
    return skip("governor", "the kernel does not scale frequencies here");
  std::string found;
  bool saves = false;
  for (const auto& [name, count] : clock.governors) {
    found += fmt::format("{}{} on {}", found.empty() ? "" : ", ", printable(name),
                         counted(count, "processor"));
    saves = saves || name == "powersave" || name == "conservative";
  }
  return saves ? warn("governor", found, "cpupower frequency-set -g performance")
               : ok("governor", found);
}

Finding clock_of(const ClockFacts& clock) {
  if (!clock.synchronised)
    return skip("clock", "the kernel does not say whether it is synchronised");
  if (*clock.synchronised) return ok("clock", "synchronised");
  return warn(
      "clock", "not synchronised: log lines of two nodes cannot be put in order",
      "start chronyd or systemd-timesyncd; verdicts go by monotonic time and are not touched");
}

const char* how_to_get_an_answer(Code fault) {
  if (fault == Code::kDeadlineExceeded) {
    return "ps -C gradringd -o pid,stat,wchan: T is stopped, D waits for a disk; gradringctl "
           "flight-recorder says what it did last; else restart it";
  }
  if (fault == Code::kIncompatible) {
    return "use the gradringctl of the release that runs; after an upgrade restart gradringd";
  }
  return "systemctl status gradringd; journalctl -u gradringd says why it ended";
}

}  // namespace

Findings check_daemon(const Facts& facts) {
  if (!facts.daemon_fault.empty()) {
    return {fail("daemon", printable(facts.daemon_fault),
                 how_to_get_an_answer(facts.daemon_fault_code))};
  }
  const wire::StatusReport& status = facts.nodes.front().status;
  const std::string found =
      fmt::format("{}, gradringd {}, up {}", printable(status.state()), printable(status.version()),
                  format_duration(status.uptime_ms()));
  Findings findings = {
      status.state() == "ready"
          ? ok("daemon", found)
          : warn("daemon", found,
                 "it takes no new jobs and ends with the last one; if it is to stay: gradringctl "
                 "drain --cancel")};
  for (const wire::Limit& limit : status.limits()) {
    constexpr double kNear = 0.9;
    if (limit.cap() == 0 ||
        static_cast<double>(limit.used()) < kNear * static_cast<double>(limit.cap()))
      continue;
    findings.push_back(warn(
        fmt::format("limit {}", printable(limit.name())),
        fmt::format("{} of {} {} are used", limit.used(), limit.cap(), printable(limit.unit())),
        how_to_raise(limit.name())));
  }
  return findings;
}

Findings check_host(const Facts& facts) { return {clock_of(facts.clock), governor(facts.clock)}; }

}  // namespace gradring::tools::doctor
