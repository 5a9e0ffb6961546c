#include "tools/ctl/steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/common/table.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

constexpr uint32_t kStepsLeast = 20;
constexpr uint32_t kLatePart = 3;  // of the steps

double seconds_of(uint64_t us) { return static_cast<double>(us) / 1e6; }

uint64_t total_us(const wire::SplitReport& split) {
  return split.compute_us() + split.input_us() + split.straggler_us() + split.exposed_us();
}

std::string percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string milliseconds(uint64_t us) {
  return fmt::format("{:.1f} ms", static_cast<double>(us) / 1e3);
}

nlohmann::ordered_json json_of(const wire::SplitReport& split) {
  return {{"compute", seconds_of(split.compute_us())},
          {"overlapped", seconds_of(split.overlapped_us())},
          {"input", seconds_of(split.input_us())},
          {"straggler", seconds_of(split.straggler_us())},
          {"exposed", seconds_of(split.exposed_us())}};
}

bool is_counted(const wire::StepsReport& steps) { return steps.recent() >= kStepsLeast; }

// Until it had submitted all of a step, in the mean.
uint64_t own_us(const wire::StepsReport& steps) {
  return steps.mean().compute_us() + steps.mean().input_us();
}

// Whether it has more to do than another rank has, by half of its lateness at least. Else it comes
// late since it gets the sums of the step before late, as behind a slow link.
bool takes_longer(const wire::StepsReport& steps, const wire::JobReport& report) {
  std::optional<uint64_t> least;
  for (const wire::RankReport& rank : report.ranks()) {
    if (&rank.steps() == &steps || !is_counted(rank.steps())) continue;
    least = std::min(least.value_or(own_us(rank.steps())), own_us(rank.steps()));
  }
  if (!least) return true;  // of the others nothing is known
  const uint64_t own = own_us(steps);
  return own > *least && 2 * (own - *least) * steps.recent() >= steps.late_us() * steps.late();
}

std::optional<Straggler> latest_of(const wire::JobReport& report, bool by_itself) {
  const wire::RankReport* worst = nullptr;
  const auto harm = [](const wire::StepsReport& steps) {
    return seconds_of(steps.late_us()) * steps.late() / steps.recent();
  };
  for (const wire::RankReport& rank : report.ranks()) {
    const wire::StepsReport& steps = rank.steps();
    if (!is_counted(steps) || steps.late() * kLatePart < steps.recent()) continue;
    if (by_itself && !takes_longer(steps, report)) continue;
    if (worst == nullptr || harm(steps) > harm(worst->steps())) worst = &rank;
  }
  if (worst == nullptr) return std::nullopt;
  return Straggler{worst->rank(),         worst->node(),
                   worst->pid(),          seconds_of(worst->steps().late_us()),
                   worst->steps().late(), worst->steps().recent(),
                   worst->process_state()};
}

}  // namespace

std::optional<Straggler> straggler_of(const wire::JobReport& report) {
  return latest_of(report, true);
}

std::string describe(const Straggler& straggler) {
  return fmt::format("{} was late by {:.1f} ms in {} of the last {} steps; it is in state {}",
                     rank_at(straggler.rank, straggler.node, straggler.pid),
                     straggler.late_seconds * 1e3, percent(straggler.late, straggler.recent),
                     straggler.recent, describe_process_state(straggler.process_state));
}

std::string steps_of(const wire::JobReport& report, const Style& style) {
  using Align = Table::Align;
  Table table({{"rank", Align::kRight},
               {"step", Align::kRight},
               {"compute", Align::kRight},
               {"input", Align::kRight},
               {"exposed", Align::kRight},
               {"straggler", Align::kRight},
               {"overlapped", Align::kRight},
               {"late", Align::kRight},
               {"by", Align::kRight},
               {"of steps", Align::kRight}});
  for (const wire::RankReport& rank : report.ranks()) {
    const wire::StepsReport& steps = rank.steps();
    if (steps.recent() == 0) continue;
    const wire::SplitReport& mean = steps.mean();
    const uint64_t total = total_us(mean);
    table.add({std::to_string(rank.rank()), milliseconds(total), percent(mean.compute_us(), total),
               percent(mean.input_us(), total), percent(mean.exposed_us(), total),
               percent(mean.straggler_us(), total), percent(mean.overlapped_us(), total),
               percent(steps.late(), steps.recent()),
               steps.late() == 0 ? "-" : milliseconds(steps.late_us()),
               std::to_string(steps.recent())});
  }
  if (table.empty()) return "";
  std::string text = "\nwhere the time of a step goes\n" + table.str();
  if (const auto straggler = straggler_of(report)) {
    text += fmt::format("{} {}\n", style.bad("straggler:"), describe(*straggler));
  } else if (const auto late = latest_of(report, false)) {
    text += fmt::format(
        "no straggler: rank {} comes late in {} of its steps, but takes no longer than others for "
        "them; a slow link may bring it the sums late, see gradringctl bandwidth\n",
        late->rank, percent(late->late, late->recent));
  }
  return text;
}

nlohmann::ordered_json json_of(const Straggler& straggler) {
  return {{"rank", straggler.rank},
          {"node", straggler.node},
          {"pid", straggler.pid},
          {"late_seconds", straggler.late_seconds},
          {"late_steps", straggler.late},
          {"recent_steps", straggler.recent},
          {"process_state", straggler.process_state}};
}

nlohmann::ordered_json json_of(const wire::StepsReport& steps) {
  auto lateness = nlohmann::ordered_json::array();
  for (const uint64_t count : steps.lateness()) lateness.push_back(count);
  return {{"steps", steps.steps()},
          {"all_seconds", json_of(steps.all())},
          {"lateness", lateness},
          {"recent", steps.recent()},
          {"mean_seconds", json_of(steps.mean())},
          {"late", steps.late()},
          {"late_seconds", seconds_of(steps.late_us())}};
}

}  // namespace gradring::tools
