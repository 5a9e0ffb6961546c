// What gradringctl is told, made from what the parts of the daemon know.

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "daemon/clock.h"
#include "daemon/control/door/process.h"
#include "daemon/control/queries/queries.h"
#include "daemon/control/queries/settings_report.h"
#include "proto/version.h"
#include "proto/within.h"

namespace gradring::daemon {
namespace {

uint64_t milliseconds(core::Time time) {
  return static_cast<uint64_t>(std::max<core::Time>(time, 0) / core::kMillisecond);
}

void add_limit(wire::StatusReport* report, const char* name, uint64_t used, uint64_t cap,
               const char* unit) {
  wire::Limit* limit = report->add_limits();
  limit->set_name(name);
  limit->set_used(used);
  limit->set_cap(cap);
  limit->set_unit(unit);
}

void add_counter(wire::StatusReport* report, const char* name, uint64_t value) {
  wire::Counter* counter = report->add_counters();
  counter->set_name(name);
  counter->set_value(value);
}

void add_moved(const BytesMoved& moved, wire::JobSummary* summary) {
  for (size_t i = 0; i < moved.size(); ++i) {
    if (moved[i] == 0) continue;
    wire::MovedReport* to = summary->add_moved();
    to->set_collective(std::string(name_of(static_cast<Collective>(i))));
    to->set_bytes(moved[i]);
  }
}

uint64_t microseconds(core::Time time) {
  return static_cast<uint64_t>(std::max<core::Time>(time, 0) * 1000 / core::kMillisecond);
}

void to_wire(const core::StepSplit& split, wire::SplitReport* to) {
  to->set_compute_us(microseconds(split.compute));
  to->set_overlapped_us(microseconds(split.overlapped));
  to->set_input_us(microseconds(split.input));
  to->set_straggler_us(microseconds(split.straggler));
  to->set_exposed_us(microseconds(split.exposed));
}

void to_wire(const core::StepReport& steps, wire::StepsReport* to) {
  to->set_steps(steps.ever.steps);
  to_wire(steps.ever.all, to->mutable_all());
  for (const uint64_t count : steps.ever.lateness) to->add_lateness(count);
  to->set_recent(steps.recent);
  to_wire(steps.mean, to->mutable_mean());
  to->set_late(steps.late);
  to->set_late_us(microseconds(steps.late_median));
}

}  // namespace

wire::StatusReport Queries::status_report() const {
  const core::Time now = monotonic_now();
  wire::StatusReport report;
  report.set_node(config_.node);
  report.set_pid(getpid());
  report.set_version(kProductVersion);
  report.set_uptime_ms(milliseconds(now - facts_.started));
  report.set_state(draining_ ? "draining" : "ready");
  report.set_runtime_dir(config_.runtime_dir);
  report.set_listen(config_.listen);
  report.set_secure(parts_.peers->secure());
  report.set_transport(facts_.transport);
  report.set_devices(facts_.devices);
  report.set_devices_reason(facts_.devices_reason);
  report.set_rss_bytes(own_rss_bytes());
  report.set_cpu_seconds(own_cpu_seconds());
  report.set_sessions(static_cast<uint32_t>(parts_.sessions->count()));
  report.set_peers_up(parts_.peers->count_up());
  report.set_peers_configured(parts_.peers->count());
  report.set_peers_stopped(parts_.peers->count_stopped());

  uint64_t live = 0;
  for (const core::JobInfo& info : parts_.membership->jobs()) {
    const bool over = info.state == core::JobState::kEnded || info.state == core::JobState::kFailed;
    live += over ? 0 : 1;
  }
  report.set_jobs(static_cast<uint32_t>(live));

  const SessionLimits& limits = parts_.sessions->limits();
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  add_limit(&report, "segment-limit", parts_.sessions->most_segment_bytes_of_a_uid(),
            limits.segment_bytes_per_uid, "bytes");
  add_limit(&report, "staging-limit", pulse_.staging_bytes_most, config_.staging_limit, "bytes");
  add_limit(&report, "feedback-limit", pulse_.feedback_bytes_most, config_.feedback_limit, "bytes");
  add_limit(&report, "max-sessions", parts_.sessions->count(), limits.sessions, "trainers");
  add_limit(&report, "sessions-per-uid", parts_.sessions->most_sessions_of_a_uid(),
            limits.sessions_per_uid, "trainers");
  add_limit(&report, "max-jobs", live, config_.max_jobs, "jobs");
  add_limit(&report, "open files", own_open_files_lately(), files.rlim_cur, "files");

  add_settings(config_, facts_.lanes, &report);
  add_counter(&report, "messages_sent", pulse_.transport.messages_sent);
  add_counter(&report, "messages_received", pulse_.transport.messages_received);
  add_counter(&report, "payload_bytes_sent", pulse_.transport.payload_bytes_sent);
  add_counter(&report, "payload_bytes_received", pulse_.transport.payload_bytes_received);
  add_counter(&report, "registrations", pulse_.transport.registrations);
  add_counter(&report, "registered_bytes", pulse_.transport.registered_bytes);
  add_counter(&report, "bundles_sent", pulse_.bundles_sent);
  add_counter(&report, "frames_bundled", pulse_.frames_bundled);
  add_counter(&report, "ring_submissions", pulse_.ring_submissions);
  add_counter(&report, "gpu_input_bytes", pulse_.gpus.inputs);
  add_counter(&report, "gpu_sum_bytes", pulse_.gpus.sums);
  add_counter(&report, "gpu_result_bytes", pulse_.gpus.results);
  add_counter(&report, "gpu_sent_bytes", pulse_.gpus.sent);
  add_counter(&report, "frames_forged", pulse_.frames_forged);
  add_counter(&report, "frames_malformed", pulse_.frames_malformed);
  add_counter(&report, "frames_damaged", pulse_.frames_damaged);
  add_counter(&report, "frames_stale", pulse_.frames_stale);
  add_counter(&report, "client_messages_malformed", parts_.requests->malformed());
  add_counter(&report, "peer_messages_malformed", parts_.peers->malformed());
  add_counter(&report, "data_thread_turns", pulse_.progress);
  return report;
}

wire::JobsReport Queries::jobs_report() const {
  wire::JobsReport report;
  for (const core::JobInfo& info : parts_.membership->jobs()) *report.add_jobs() = summary_of(info);
  return report;
}

wire::JobSummary Queries::summary_of(const core::JobInfo& info) const {
  wire::JobSummary summary;
  summary.set_name(info.name);
  const bool forming = info.state == core::JobState::kForming;
  if (!forming) summary.set_incarnation(hex(info.incarnation));
  summary.set_state(info.state == core::JobState::kProposed ? "forming" : name_of(info.state));
  summary.set_epoch(info.epoch);
  summary.set_size(info.size);
  summary.set_uid(info.uid);
  summary.set_policy(info.policy);
  summary.set_age_ms(milliseconds(monotonic_now() - info.since));
  summary.set_ranks_present(info.size - info.missing.count);
  summary.set_explanation(info.explanation);
  summary.set_over(info.over);
  if (const Jobs::Job* job = parts_.jobs->find(info.incarnation)) summary.set_weight(job->weight);
  for (const JobTraffic& traffic : pulse_.jobs) {
    // What was counted before its end would be told as if ops were under way still.
    if (info.over || traffic.job != info.incarnation) continue;
    summary.set_ops_completed(traffic.ops_completed);
    summary.set_ops_open(traffic.ops_open);
    summary.set_counted_at(pulse_.at);
    add_moved(traffic.moved, &summary);
  }
  return summary;
}

void Queries::add_missing_ranks(const core::JobInfo& info, wire::JobReport* report) const {
  for (const uint32_t missing : info.missing.first) {
    wire::RankReport* rank = report->add_ranks();
    rank->set_rank(missing);
    rank->set_state("not joined");
  }
}

// By their tokens, which whoever makes a group has from the job: nobody else can know them, but for
// users of the machine, whose jobs are theirs.
void Queries::add_within(const JobId& job, Within* within) const {
  const core::View* const outer = parts_.membership->view_of(job);
  if (outer == nullptr) return;
  const std::string token = tokens_within(job);
  for (const core::JobInfo& info : parts_.membership->jobs()) {
    if (info.uid != outer->uid || !info.token.starts_with(token)) continue;
    wire::JobSummary summary = summary_of(info);
    summary.set_node(config_.node);
    within->add(summary);
  }
}

void Queries::add_own_part(const Jobs::Job& job, const JobDescription& description,
                           wire::JobReport* report) const {
  const core::Time now = monotonic_now();
  // Both parts of the daemon may know another view, and a closed one need not have us in it.
  const auto self = job.view.index_of(config_.node);
  const std::vector<core::RankInfo> own =
      self ? job.view.members[*self].ranks : std::vector<core::RankInfo>();
  for (const core::OpProgress& op : description.ops) {
    wire::OpReport* to = report->add_ops();
    to_wire(op.key, to->mutable_key());
    to->set_name(op.name);
    to->set_signature(describe(op.signature));
    to->set_node(config_.node);
    if (op.since != 0) to->set_age_ms(milliseconds(now - op.since));
    for (const uint32_t rank : op.missing_ranks) to->add_waiting_for(rank);
    for (const std::string& node : op.missing_nodes) to->add_waiting_nodes(node);
    to->set_waiting_subtrees(op.subtrees);
    to->set_slices_final(op.slices_final);
    to->set_slices(op.slices);
  }
  for (const RankActivity& activity : description.ranks) {
    const auto info = std::find_if(own.begin(), own.end(), [&](const auto& candidate) {
      return candidate.rank == activity.rank;
    });
    if (info == own.end()) continue;
    const bool waits =
        std::any_of(description.ops.begin(), description.ops.end(), [&](const auto& op) {
          return op.since != 0 && std::find(op.missing_ranks.begin(), op.missing_ranks.end(),
                                            activity.rank) == op.missing_ranks.end();
        });
    wire::RankReport* to = report->add_ranks();
    to->set_rank(activity.rank);
    to->set_node(config_.node);
    to->set_pid(info->pid);
    to->set_local_rank(info->local_rank);
    const auto over = job.ranks_over.find(activity.rank);
    const char* const state = job.failure         ? "failed"
                              : waits             ? "waiting"
                              : activity.held > 0 ? "GPU behind"
                                                  : "training";
    to->set_state(over != job.ranks_over.end() ? over->second : state);
    to->set_ops_held(activity.held);
    if (over == job.ranks_over.end())
      to->set_process_state(std::string(1, process_state(info->pid)));
    to->set_ops_submitted(activity.submitted);
    to->set_nonfinite(activity.nonfinite);
    if (activity.last_submission != 0)
      to->set_quiet_ms(milliseconds(now - activity.last_submission));
    for (const core::StepReport& steps : description.steps) {
      if (steps.rank == activity.rank && steps.ever.steps > 0) to_wire(steps, to->mutable_steps());
    }
  }
  report->set_staging_bytes(description.staging_bytes);
}

// Which ranks of other nodes an op may wait for.
void Queries::add_ranks_waited_for(const Jobs::Job& job, const JobDescription& description,
                                   wire::JobReport* report) {
  std::set<std::string> nodes;
  for (const core::OpProgress& op : description.ops) {
    nodes.insert(op.missing_nodes.begin(), op.missing_nodes.end());
  }
  for (const core::Member& member : job.view.members) {
    if (!nodes.contains(member.node)) continue;
    for (const core::RankInfo& info : member.ranks) {
      wire::RankReport* to = report->add_ranks();
      to->set_rank(info.rank);
      to->set_node(member.node);
      to->set_pid(info.pid);
      to->set_local_rank(info.local_rank);
    }
  }
}

}  // namespace gradring::daemon
