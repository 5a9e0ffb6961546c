// Jobs, their ops, and their ranks on this node.

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "daemon/metrics/page.h"
#include "proto/types.h"

namespace gradring::daemon::metrics {
namespace {

using Jobs = std::vector<JobSeries>;

constexpr std::array<const char*, OpStats::kEnds> kEnds = {"ok", "shrunk", "failed", "refused"};
// As OpStats::kSizeBounds; the last has none.
constexpr std::array<const char*, OpStats::kSizes> kSizes = {"4KiB", "64KiB", "1MiB", "16MiB",
                                                             "more"};

template <typename Value>
void add_live(const Jobs& jobs, Family family, Value value) {
  for (const JobSeries& job : jobs) {
    if (job.live) family.add({{"job", job.label}}, value(*job.live));
  }
}

void write_live(const Jobs& jobs, Page* page) {
  using Live = LiveJob;
  add_live(jobs, page->gauge("gradring_job_epoch", "Number of the job's view: it counts changes"),
           [](const Live& live) { return live.epoch; });
  add_live(jobs, page->gauge("gradring_job_ranks", "Ranks of the job, on all nodes"),
           [](const Live& live) { return live.size; });
  add_live(jobs, page->gauge("gradring_job_local_ranks", "Ranks that it ever had on this node"),
           [](const Live& live) { return live.local; });
  add_live(jobs, page->gauge("gradring_job_nodes", "Nodes of the job"),
           [](const Live& live) { return live.nodes; });
  add_live(jobs, page->gauge("gradring_job_open_ops", "Ops under way"),
           [](const Live& live) { return live.ops_open; });
  add_live(jobs,
           page->gauge("gradring_job_oldest_op_seconds",
                       "For how long the oldest submission of this node waits for its end"),
           [](const Live& live) { return seconds(live.oldest_open); });
  add_live(jobs, page->gauge("gradring_job_staging_bytes", "Memory for slices under way"),
           [](const Live& live) { return live.staging_bytes; });
  add_live(jobs,
           page->gauge("gradring_job_feedback_bytes", "Memory for what int8 on the wire took away"),
           [](const Live& live) { return live.feedback_bytes; });
}

// An allreduce is shown from the beginning, so that its first ones are seen to be counted.
bool is_shown(const OpStats& ops, size_t collective) {
  const auto& ended = ops.ended[collective];
  return collective == static_cast<size_t>(Collective::kAllreduce) ||
         std::any_of(ended.begin(), ended.end(), [](uint64_t count) { return count > 0; });
}

template <typename Visit>
void for_each_collective(const Jobs& jobs, Visit visit) {
  for (const JobSeries& job : jobs) {
    for (size_t i = 1; i < OpStats::kCollectives; ++i) {
      if (is_shown(job.ops, i)) visit(job, i, std::string(name_of(static_cast<Collective>(i))));
    }
  }
}

void write_ops(const Jobs& jobs, Page* page) {
  Family ended = page->counter("gradring_ops_total",
                               "Ops that ended, once for each rank of this node, by outcome");
  for_each_collective(jobs, [&](const JobSeries& job, size_t i, const std::string& name) {
    for (size_t end = 0; end < OpStats::kEnds; ++end) {
      ended.add({{"job", job.label}, {"collective", name}, {"outcome", kEnds[end]}},
                job.ops.ended[i][end]);
    }
  });
  Family bytes = page->counter("gradring_op_bytes_total",
                               "Bytes of ops that ended well, as each rank of this node counts");
  for_each_collective(jobs, [&](const JobSeries& job, size_t i, const std::string& name) {
    if (moves_data(static_cast<Collective>(i))) {
      bytes.add({{"job", job.label}, {"collective", name}}, job.ops.bytes[i]);
    }
  });
  Family causes = page->counter("gradring_op_failures_total",
                                "Ops that failed or were refused, as gradring_ops_total, by cause");
  for (const JobSeries& job : jobs) {
    for (size_t cause = 1; cause < OpStats::kCauses; ++cause) {
      if (job.ops.failed[cause] == 0) continue;
      causes.add({{"job", job.label}, {"cause", std::string(name_of(static_cast<Cause>(cause)))}},
                 job.ops.failed[cause]);
    }
  }
  Family durations = page->histogram(
      "gradring_op_duration_seconds",
      "From a rank's submission to its end, of ops that move data, by the rank's bytes");
  for (const JobSeries& job : jobs) {
    for (size_t size = 0; size < OpStats::kSizes; ++size) {
      const OpStats::Durations& of_size = job.ops.durations[size];
      const auto& counts = of_size.counts;
      if (std::accumulate(counts.begin(), counts.end(), uint64_t{0}) == 0) continue;
      durations.add({{"job", job.label}, {"size", kSizes[size]}}, OpStats::kTimeBounds, counts,
                    of_size.sum);
    }
  }
}

void write_slices(const Jobs& jobs, Page* page) {
  Family damaged =
      page->counter("gradring_slices_damaged_total", "Slices whose checksum was wrong on arrival");
  for (const JobSeries& job : jobs) damaged.add({{"job", job.label}}, job.slices_damaged);
  Family resent = page->counter("gradring_slices_resent_total", "Slices that were sent once more");
  for (const JobSeries& job : jobs) resent.add({{"job", job.label}}, job.slices_resent);
}

void write_ranks(const Jobs& jobs, Page* page) {
  Family submitted =
      page->counter("gradring_rank_submissions_total", "Ops that the rank submitted");
  for (const JobSeries& job : jobs) {
    for (const RankSeries& rank : job.ranks) {
      submitted.add({{"job", job.label}, {"rank", rank.label}}, rank.submitted);
    }
  }
  Family nonfinite = page->counter("gradring_rank_nonfinite_values_total",
                                   "NaN and infinity in what the rank submitted");
  for (const JobSeries& job : jobs) {
    for (const RankSeries& rank : job.ranks) {
      nonfinite.add({{"job", job.label}, {"rank", rank.label}}, rank.nonfinite);
    }
  }
  Family quiet = page->gauge("gradring_rank_quiet_seconds", "Since the rank's last submission");
  for (const JobSeries& job : jobs) {
    for (const RankSeries& rank : job.ranks) {
      if (rank.quiet) quiet.add({{"job", job.label}, {"rank", rank.label}}, seconds(*rank.quiet));
    }
  }
}

// Of ranks that have made any: not every job is a training.
template <typename Visit>
void for_each_stepping(const Jobs& jobs, Visit visit) {
  for (const JobSeries& job : jobs) {
    for (const RankSeries& rank : job.ranks) {
      if (rank.steps.steps > 0) visit(job.label, rank.label, rank.steps);
    }
  }
}

void write_steps(const Jobs& jobs, Page* page) {
  using core::StepTotals;
  using Text = std::string;
  Family steps = page->counter("gradring_rank_steps_total", "Steps that the rank made");
  for_each_stepping(jobs, [&](const Text& job, const Text& rank, const StepTotals& totals) {
    steps.add({{"job", job}, {"rank", rank}}, totals.steps);
  });
  Family parts = page->counter("gradring_rank_step_seconds_total",
                               "Where the time of the rank's steps went; the parts add up to all");
  for_each_stepping(jobs, [&](const Text& job, const Text& rank, const StepTotals& totals) {
    const core::StepSplit& all = totals.all;
    const std::pair<const char*, core::Time> list[] = {{"compute", all.compute},
                                                       {"input", all.input},
                                                       {"straggler", all.straggler},
                                                       {"exposed", all.exposed}};
    for (const auto& [part, time] : list) {
      parts.add({{"job", job}, {"rank", rank}, {"part", part}}, seconds(time));
    }
  });
  Family overlapped =
      page->counter("gradring_rank_overlapped_seconds_total",
                    "Of its computing, the time in which its gradients were under way");
  for_each_stepping(jobs, [&](const Text& job, const Text& rank, const StepTotals& totals) {
    overlapped.add({{"job", job}, {"rank", rank}}, seconds(totals.all.overlapped));
  });
  Family lateness =
      page->histogram("gradring_rank_lateness_seconds",
                      "By how much the rank came behind the first one, in each of its steps");
  for_each_stepping(jobs, [&](const Text& job, const Text& rank, const StepTotals& totals) {
    lateness.add({{"job", job}, {"rank", rank}}, core::kLatenessBounds, totals.lateness,
                 totals.late_sum);
  });
}

}  // namespace

void write_jobs(const Snapshot& snapshot, Page* page) {
  write_live(snapshot.job_series, page);
  write_ops(snapshot.job_series, page);
  write_slices(snapshot.job_series, page);
  write_ranks(snapshot.job_series, page);
  write_steps(snapshot.job_series, page);
}

}  // namespace gradring::daemon::metrics
