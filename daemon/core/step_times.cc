#include "daemon/core/step_times.h"

#include <algorithm>
#include <utility>

#include "daemon/core/median.h"

namespace gradring::core {
namespace {

// Others have to wait for whoever comes later than this; less is the network's and the scheduler's
// doing.
constexpr Time kLate = 2 * kMillisecond;
// And later than this part of a step.
constexpr Time kLatePartOfStep = 50;
// And that comes among the last: of what the latest is behind the first it is behind the most part,
// three of four. Of many ranks that are alike nearly all come well behind the first.
constexpr Time kAmongTheLast = 3;

constexpr Time microseconds(uint32_t us) { return static_cast<Time>(us) * (kMillisecond / 1000); }

}  // namespace

StepSplit& StepSplit::operator+=(const StepSplit& other) {
  compute += other.compute;
  overlapped += other.overlapped;
  input += other.input;
  straggler += other.straggler;
  exposed += other.exposed;
  return *this;
}

StepTotals& StepTotals::operator+=(const StepTotals& other) {
  steps += other.steps;
  all += other.all;
  for (size_t i = 0; i < lateness.size(); ++i) lateness[i] += other.lateness[i];
  late_sum += other.late_sum;
  return *this;
}

StepTimes::Rank& StepTimes::of(uint32_t rank) {
  const auto it =
      std::find_if(ranks_.begin(), ranks_.end(), [rank](const Rank& r) { return r.rank == rank; });
  if (it != ranks_.end()) return *it;
  Rank& made = ranks_.emplace_back();
  made.rank = rank;
  made.began = since_;
  return made;
}

void StepTimes::submitted(uint32_t rank, Time now) {
  Rank& who = of(rank);
  if (who.open++ == 0) who.first = now;
  who.last = now;
}

void StepTimes::moves(const Op& op) {
  if (!op.arrivals.first) return;
  for (size_t i = 0; i < op.locals.size() && i < op.arrivals.locals.size(); ++i) {
    if (!op.locals[i] || op.arrivals.locals[i] == 0) continue;
    Rank& who = of(op.locals[i]->rank);
    const Time late = std::max<Time>(op.arrivals.locals[i] - *op.arrivals.first, 0);
    const Time behind = std::max<Time>(microseconds(op.arrivals.latest_us) - late, 0);
    who.late = std::max(who.late, late);
    who.behind = std::max(who.behind, behind);
    if (behind * kAmongTheLast <= late) who.last_by = std::max(who.last_by, late);
  }
}

void StepTimes::ended(uint32_t rank, Time now, Time input) {
  Rank& who = of(rank);
  if (who.open == 0) return;
  --who.open;
  if (who.open > 0) return;
  end_step(who, now, input);
}

void StepTimes::begin_epoch() {
  for (Rank& who : ranks_) {
    if (who.open > 0) who.disturbed = true;
    who.late = who.behind = who.last_by = 0;
  }
}

void StepTimes::end_step(Rank& who, Time now, Time input) {
  Step step;
  const Time before = std::max<Time>(who.first - who.began, 0);
  const Time waited = now - who.last;
  input = std::max(input, who.input);  // what comes by message says nothing of it
  step.split.input = std::min(input - who.input, before);
  step.split.overlapped = who.last - who.first;
  step.split.compute = before - step.split.input + step.split.overlapped;
  step.split.straggler = std::clamp<Time>(who.behind, 0, waited);
  step.split.exposed = waited - step.split.straggler;
  step.last_by = who.last_by;
  step.waited_for = step.last_by > std::max(kLate, step.split.total() / kLatePartOfStep);
  // What a rank does before it first submits is no step: it loads its data, and waits for others.
  if (who.began != since_ && !who.disturbed) {
    const size_t at = who.ever.steps % kRecent;
    if (who.recent.size() <= at) who.recent.resize(at + 1);
    who.recent[at] = step;
    ++who.ever.steps;
    who.ever.all += step.split;
    const auto bound = std::lower_bound(kLatenessBounds.begin(), kLatenessBounds.end(), who.late);
    ++who.ever.lateness[static_cast<size_t>(bound - kLatenessBounds.begin())];
    who.ever.late_sum += who.late;
  }
  who.began = now;
  who.input = input;
  who.late = who.behind = who.last_by = 0;
  who.disturbed = false;
}

StepTotals StepTimes::totals(uint32_t rank) const {
  const auto it =
      std::find_if(ranks_.begin(), ranks_.end(), [rank](const Rank& r) { return r.rank == rank; });
  return it != ranks_.end() ? it->ever : StepTotals{};
}

std::vector<Time> StepTimes::lateness(const Rank& who, size_t steps) {
  std::vector<Time> late;
  for (size_t back = 1; back <= std::min(steps, who.recent.size()); ++back) {
    const Step& step = who.recent[(who.ever.steps - back) % kRecent];
    if (step.waited_for) late.push_back(step.last_by);
  }
  return late;
}

std::vector<LateChange> StepTimes::take_changes(Time now) {
  std::vector<LateChange> changes;
  for (Rank& who : ranks_) {
    std::vector<Time> late = lateness(who, LateWatch::kWindow);
    LateChange change;
    change.rank = who.rank;
    change.times = static_cast<uint32_t>(late.size());
    change.of = std::min(LateWatch::kWindow, static_cast<uint32_t>(who.recent.size()));
    if (!who.watch.turns(change.times, change.of, now)) continue;
    change.late = who.watch.late();
    change.median = median_of(std::move(late));
    changes.push_back(change);
  }
  return changes;
}

std::vector<StepReport> StepTimes::report() const {
  std::vector<StepReport> reports;
  for (const Rank& who : ranks_) {
    StepReport report;
    report.rank = who.rank;
    report.ever = who.ever;
    report.recent = static_cast<uint32_t>(who.recent.size());
    for (const Step& step : who.recent) report.mean += step.split;
    std::vector<Time> late = lateness(who, kRecent);
    report.late = static_cast<uint32_t>(late.size());
    report.late_median = median_of(std::move(late));
    if (const auto steps = static_cast<Time>(who.recent.size()); steps > 0) {
      StepSplit& mean = report.mean;
      for (Time* part :
           {&mean.compute, &mean.overlapped, &mean.input, &mean.straggler, &mean.exposed})
        *part /= steps;
    }
    reports.push_back(report);
  }
  return reports;
}

}  // namespace gradring::core
