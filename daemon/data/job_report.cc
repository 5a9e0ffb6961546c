// What a job's data plane tells of itself: to people who ask, and to those who watch.

#include "daemon/data/job_executor.h"

namespace gradring::daemon {

JobDescription JobExecutor::describe(uint64_t query) const {
  constexpr size_t kOpsShown = 64;  // as client.proto promises
  JobDescription description;
  description.query = query;
  description.found = true;
  description.ops = engine_.progress(kOpsShown);
  for (size_t i = 0; i < locals_.size(); ++i) {
    const uint32_t rank = locals_[i].rank;
    description.ranks.push_back({rank, engine_.submitted(rank), locals_[i].last_submission,
                                 nonfinite_.inputs(rank),
                                 parts_.coming_of(rank) + gpu_ops_.coming_of(rank)});
  }
  description.steps = steps_.report();
  description.ops_completed = engine_.counters().ops_completed;
  description.ops_open = static_cast<uint32_t>(engine_.open_ops());
  description.staging_bytes = staging_.bytes();
  return description;
}

JobFigures JobExecutor::figures() const {
  JobFigures figures;
  figures.job = id();
  figures.name = engine_.view().job;
  figures.epoch = engine_.view().epoch;
  figures.size = engine_.view().size;
  figures.nodes = static_cast<uint32_t>(engine_.view().members.size());
  figures.ops = stats_;
  figures.slices_damaged = engine_.counters().slices_damaged;
  figures.slices_resent = engine_.counters().slices_resent;
  for (const LocalRank& local : locals_) {
    figures.ranks.push_back({local.rank, local.submitted_before + engine_.submitted(local.rank),
                             nonfinite_.inputs(local.rank), local.gone ? 0 : local.last_submission,
                             steps_.totals(local.rank)});
    for (const auto& [ticket, lent] : local.lent) {
      const bool older = figures.oldest_open == 0 || lent.since < figures.oldest_open;
      if (older) figures.oldest_open = lent.since;
    }
  }
  figures.ops_open = static_cast<uint32_t>(engine_.open_ops());
  figures.staging_bytes = staging_.bytes();
  figures.feedback_bytes = feedback_.bytes();
  return figures;
}

}  // namespace gradring::daemon
