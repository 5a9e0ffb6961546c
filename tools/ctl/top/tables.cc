// The tables of the screen: jobs, links, and the ranks of a job.
#include <fmt/format.h>

#include "tools/common/text.h"
#include "tools/ctl/top/frame.h"

namespace gradring::tools::top {
namespace {

// From here on there is room for words where there were numbers alone.
constexpr size_t kRoomForWords = 110;

std::string number(const std::optional<double>& value, double unit, int digits) {
  return value ? fmt::format("{:.{}f}", *value / unit, digits) : "-";
}

// A rate of bytes, of as many digits as help.
std::string gigabytes(const std::optional<double>& bytes) {
  return number(bytes, 1e9, bytes && *bytes >= 100e9 ? 1 : 3);
}

std::string milliseconds(double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); }

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

Span state_of(const std::string& state) {
  return {printable(state), state == "up" ? Look::kGood : Look::kBad};
}

Span straggler_of(const Job& job, bool words) {
  if (!job.straggler) return {"-"};
  const std::string late = milliseconds(job.straggler->late_seconds);
  if (!words) return {fmt::format("{}: {}", job.straggler->rank, late), Look::kBad};
  return {
      fmt::format("rank {} ({}) by {}", job.straggler->rank, printable(job.straggler->node), late),
      Look::kBad};
}

std::string whom(const Awaited& who, bool words) {
  const std::string node = printable(who.node);
  if (!who.is_rank) return words ? "node " + node : node;
  return words ? fmt::format("rank {} ({})", who.rank, node) : std::to_string(who.rank);
}

// Its age, and the first of those that it waits for.
Span oldest_of(const Job& job, bool words) {
  if (!job.oldest) return {"-"};
  const std::string age = format_duration(job.oldest->age_ms);
  const auto& awaited = job.oldest->waiting_for;
  if (awaited.empty()) return {age};
  return {fmt::format("{}{}{}{}", age, words ? ", waits for " : ": ", whom(awaited.front(), words),
                      awaited.size() > 1 ? fmt::format(" +{}", awaited.size() - 1) : ""),
          Look::kBad};
}

}  // namespace

Grid jobs_grid(const Model& model, const View& view, size_t width) {
  const bool words = width >= kRoomForWords;
  std::vector<Grid::Column> columns = {
      {"job", 14, false, 10},  {"ranks", 5, true, 4},      {"nodes", 5, true, 1},
      {"ops/s", 7, true, 8},   {"GB/s", 7, true, 6},       {"bus GB/s", 8, true, 2},
      {"exposed", 7, true, 3}, {"straggler", 9, false, 7}, {"oldest op", 9, false, 9}};
  columns[static_cast<size_t>(view.sort)].look = Look::kSorted;
  Grid grid(std::move(columns));
  const Job* const selected = selected_job(model, view);
  for (const Job* job : jobs_shown(model, view)) {
    const bool runs = job->state == "running";
    const bool failed = job->state == "failed";
    grid.add({{printable(job->name), failed ? Look::kBad : Look::kPlain},
              {std::to_string(job->size)},
              {job->nodes == 0 ? "-" : std::to_string(job->nodes)},
              runs ? Span{number(job->ops_per_second, 1, 1)}
                   : Span{printable(job->state), failed ? Look::kBad : Look::kFaint},
              {gigabytes(job->bytes_per_second)},
              {gigabytes(job->bus_bytes_per_second)},
              {job->exposed ? percent(*job->exposed) : "-"},
              straggler_of(*job, words),
              oldest_of(*job, words)},
             job == selected ? Look::kSelected : Look::kPlain);
  }
  return grid;
}

Grid links_grid(const Model& model, const View& view) {
  std::vector<Grid::Column> columns = {{"link to", 10, false, 9}, {"lane", 8, false, 6},
                                       {"state", 7, false, 8},    {"out Gbit/s", 10, true, 7},
                                       {"in Gbit/s", 9, true, 5}, {"rtt", 8, true, 4},
                                       {"why", 6, false, 3}};
  if (view.choice.all) columns.insert(columns.begin(), {"from", 8, false, 10});
  Grid grid(std::move(columns));
  constexpr double kGigabit = 1e9 / 8;
  for (const Link& link : model.links) {
    std::vector<Span> cells = {{printable(link.to)},
                               {link.device.empty() ? "-" : printable(link.device)},
                               state_of(link.state),
                               {number(link.sent_per_second, kGigabit, 3)},
                               {number(link.received_per_second, kGigabit, 3)},
                               {link.rtt_seconds ? milliseconds(*link.rtt_seconds) : "-"},
                               {printable(link.reason)}};
    if (view.choice.all) cells.insert(cells.begin(), {printable(link.from)});
    grid.add(std::move(cells));
  }
  return grid;
}

Grid ranks_grid(const Job& job) {
  Grid grid({{"rank", 4, true, 10},
             {"node", 8, false, 9},
             {"pid", 7, true, 4},
             {"state", 8, false, 8},
             {"process", 9, false, 7},
             {"ops", 7, true, 5},
             {"last", 8, true, 6},
             {"step", 9, true, 3},
             {"exposed", 7, true, 2},
             {"waits", 7, true, 1},
             {"late by", 8, true, 3}});
  for (const Rank& rank : job.ranks) {
    const bool dead = rank.state == "dead";
    const bool halted = rank.process_state == "T" || rank.process_state == "Z";
    const auto& step = rank.step;
    grid.add({{std::to_string(rank.rank)},
              {printable(rank.node)},
              {rank.pid == 0 ? "-" : std::to_string(rank.pid)},
              {printable(rank.state), dead ? Look::kBad : Look::kPlain},
              {describe_process_state(rank.process_state), halted ? Look::kBad : Look::kPlain},
              {std::to_string(rank.ops_submitted)},
              {rank.ops_submitted == 0 ? "-" : format_duration(rank.quiet_ms)},
              {step ? milliseconds(step->seconds) : "-"},
              {step ? percent(step->exposed) : "-"},
              {step ? percent(step->straggler) : "-"},
              {step && step->late > 0 ? milliseconds(step->late_seconds) : "-"}});
  }
  return grid;
}

}  // namespace gradring::tools::top
