#include "daemon/control/queries/within.h"

#include <algorithm>
#include <vector>

namespace gradring::daemon {
namespace {

// What people are to hear of first comes first.
int order_of(const wire::JobSummary& job) {
  if (job.state() == "forming") return 0;
  if (job.state() == "failed") return 1;
  return job.ops_open() > 0 ? 2 : 3;
}

}  // namespace

// Nodes hear of its end one after the other, and may have more or less of its ops behind them.
void Within::add(const wire::JobSummary& summary) {
  const auto [it, is_new] = jobs_.try_emplace({summary.name(), summary.incarnation()}, summary);
  if (is_new) return;
  wire::JobSummary& known = it->second;
  if (known.state() != "failed" && summary.state() == "failed") {
    known.set_state(summary.state());
    known.set_explanation(summary.explanation());
  }
  known.set_age_ms(std::max(known.age_ms(), summary.age_ms()));
  known.set_ranks_present(std::max(known.ranks_present(), summary.ranks_present()));
  known.set_ops_completed(std::max(known.ops_completed(), summary.ops_completed()));
  known.set_ops_open(std::max(known.ops_open(), summary.ops_open()));
  if (known.counted_at() == 0) known.set_counted_at(summary.counted_at());
}

void Within::add(const wire::JobReport& part) {
  for (const wire::JobSummary& summary : part.within()) add(summary);
  left_out_ = std::max(left_out_, part.within_left_out());  // by others as well, as a rule
}

void Within::write_to(wire::JobReport* report) const {
  std::vector<const wire::JobSummary*> all;
  for (const auto& [key, job] : jobs_) all.push_back(&job);
  std::ranges::stable_sort(all, {}, [](const auto* job) { return order_of(*job); });
  const size_t told = std::min(all.size(), kToldMost);
  for (size_t i = 0; i < told; ++i) *report->add_within() = *all[i];
  report->set_within_left_out(left_out_ + static_cast<uint32_t>(all.size() - told));
}

}  // namespace gradring::daemon
