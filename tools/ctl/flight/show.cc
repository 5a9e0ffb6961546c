#include "tools/ctl/flight/show.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "tools/common/table.h"
#include "tools/common/text.h"
#include "tools/ctl/flight/words.h"

namespace gradring::tools {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// Times from a file may be anything: what overflows comes out wrong, not undefined.
uint64_t between(int64_t from, int64_t to) {
  return static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
}

struct WallTime {
  tm parts{};
  unsigned microseconds = 0;
};
WallTime wall_time(const FlightHeader& header, int64_t monotonic, bool local) {
  const auto ns = static_cast<int64_t>(static_cast<uint64_t>(monotonic) +
                                       static_cast<uint64_t>(header.wall_offset));
  const time_t seconds = std::max<int64_t>(ns, 0) / static_cast<int64_t>(kSecond);
  WallTime wall;
  if (local) {
    localtime_r(&seconds, &wall.parts);
  } else {
    gmtime_r(&seconds, &wall.parts);
  }
  wall.microseconds = static_cast<unsigned>(std::max<int64_t>(ns, 0) % 1'000'000'000 / 1000);
  return wall;
}

std::string format_time(const char* format, const tm& parts) {
  std::array<char, 64> text{};
  return {text.data(), strftime(text.data(), text.size(), format, &parts)};
}

std::string wall_for_people(const FlightHeader& header, int64_t monotonic) {
  const WallTime wall = wall_time(header, monotonic, true);
  return format_time("%m-%d %H:%M:%S", wall.parts) + fmt::format(".{:06}", wall.microseconds);
}

std::string wall_for_scripts(const FlightHeader& header, int64_t monotonic) {
  const WallTime wall = wall_time(header, monotonic, false);
  return format_time("%Y-%m-%dT%H:%M:%S", wall.parts) + fmt::format(".{:06}Z", wall.microseconds);
}

bool stopped_in_order(const FlightLife& life) {
  return std::ranges::any_of(life.entries, [](const FlightEntry& entry) {
    return entry.event.kind == FlightKind::kDaemonStopped;
  });
}

const char* state_of(const ToldLife& told) {
  if (stopped_in_order(told.life)) return "stopped";
  switch (told.fate.is) {
    case Fate::Is::kRunning:
      return "running";
    case Fate::Is::kGone:
      return "died";
    case Fate::Is::kUnknown:
      break;
  }
  return "unknown";
}

std::string describe_state(const ToldLife& told, const Style& style) {
  const std::string_view state = state_of(told);
  if (state == "running") return style.good("running");
  if (state == "stopped") return "stopped in good order";
  if (state == "died") return style.bad("died without a last word");
  return "and whether it runs cannot be seen from here";
}

std::string ago(const ToldLife& told, int64_t time) {
  if (!told.fate.now) return "before the machine was started anew";
  return format_ago(between(time, std::max(time, *told.fate.now)) / 1'000'000);
}

std::string heading_of(const ToldLife& told, const Style& style) {
  const FlightHeader& header = told.life.header;
  const WallTime start = wall_time(header, header.started, true);
  return fmt::format("{}node {}: gradringd {}, pid {}, {}; started {}, last event {}\n",
                     told.before ? "the life before: " : "", printable(text_in(header.node)),
                     printable(text_in(header.product)), header.pid, describe_state(told, style),
                     format_time("%Y-%m-%d %H:%M:%S %z", start.parts),
                     ago(told, told.life.last_time()));
}

std::vector<FlightEntry> chosen(const FlightLife& life, const FlightNames& names,
                                const FlightQuestion& question) {
  std::vector<FlightEntry> entries = life.entries;
  if (!question.job.empty()) {
    std::erase_if(entries,
                  [&](const FlightEntry& entry) { return !names.is_about(entry, question.job); });
  }
  return entries;
}

struct Shown {
  std::string text;
  nlohmann::ordered_json json;
};

Shown show_life(const ToldLife& told, const std::vector<FlightEntry>& entries, uint64_t last,
                const FlightNames& names, const Style& style) {
  const FlightHeader& header = told.life.header;
  const size_t count = last == 0 ? entries.size() : std::min<size_t>(entries.size(), last);
  Table table({{"seconds", Table::Align::kRight},
               {"at"},
               {"thread"},
               {"event"},
               {"job"},
               {"op"},
               {"who"},
               {"what"}});
  auto events = nlohmann::ordered_json::array();
  for (size_t i = entries.size() - count; i < entries.size(); ++i) {
    const FlightEntry& entry = entries[i];
    const ToldEvent event = tell(entry, names);
    const double seconds =
        static_cast<double>(between(entry.event.time, told.life.last_time())) / kSecond;
    const std::string thread = text_in(header.rings[entry.ring].thread);
    table.add({fmt::format("{}{:.6f}", seconds > 0 ? "-" : "", seconds),
               wall_for_people(header, entry.event.time), printable(thread),
               event.bad ? style.bad(event.what) : event.what, printable(event.job),
               printable(event.op), printable(event.who), printable(event.detail)});
    events.push_back({{"seconds_before_last", seconds},
                      {"wall", wall_for_scripts(header, entry.event.time)},
                      {"thread", thread},
                      {"event", event.what},
                      {"job", event.job},
                      {"incarnation", entry.event.job == JobPrefix{} ? "" : hex(entry.event.job)},
                      {"op", event.op},
                      {"who", event.who},
                      {"detail", event.detail}});
    if (entry.event.rank != kNoRank) events.back()["rank"] = entry.event.rank;
  }
  Shown shown;
  shown.text = heading_of(told, style);
  if (count < entries.size()) {
    shown.text += fmt::format("the last {} of {}; --last 0 shows all\n", count,
                              counted(entries.size(), "event"));
  }
  shown.text += table.empty() ? "no events\n" : table.str();
  shown.json = {{"before", told.before},
                {"node", text_in(header.node)},
                {"version", text_in(header.product)},
                {"pid", header.pid},
                {"state", state_of(told)},
                {"started", wall_for_scripts(header, header.started)},
                {"events_overwritten", told.life.overwritten},
                {"events", events}};
  if (told.fate.now) {
    const int64_t at = told.life.last_time();
    shown.json["last_event_age_seconds"] =
        static_cast<double>(between(at, std::max(at, *told.fate.now))) / kSecond;
  }
  return shown;
}

}  // namespace

Result show(const std::vector<ToldLife>& lives, const FlightQuestion& question,
            const Style& style) {
  Answer answer;
  auto told_lives = nlohmann::ordered_json::array();
  std::vector<std::string> known;
  bool found = question.job.empty();
  for (const ToldLife& told : lives) {
    const FlightNames names(told.life.entries);
    std::ranges::copy(names.jobs(), std::back_inserter(known));
    const auto entries = chosen(told.life, names, question);
    found = found || !entries.empty();
    const Shown shown = show_life(told, entries, question.last, names, style);
    answer.text += (answer.text.empty() ? "" : "\n") + shown.text;
    told_lives.push_back(shown.json);
    if (!told.before && state_of(told) == std::string_view("died")) {
      answer.problems.push_back(
          fmt::format("gradringd of node {} (pid {}) died without a last word; its last event: {}",
                      printable(text_in(told.life.header.node)), told.life.header.pid,
                      ago(told, told.life.last_time())));
    }
  }
  if (!found) return tl::unexpected(no_such_job(question.job, std::move(known)));
  answer.json = {{"lives", told_lives}};
  return answer;
}

}  // namespace gradring::tools
