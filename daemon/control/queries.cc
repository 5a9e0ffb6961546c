#include "daemon/control/queries.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/clock.h"
#include "daemon/control/nonfinite_report.h"

namespace gradring::daemon {
namespace {

constexpr core::Time kPatience = 500 * core::kMillisecond;  // as client.proto promises

// Queries under way at one time; a person asks one, a script some.
constexpr size_t kPendingMax = 64;

constexpr size_t kPrefixLeast = 8;  // hex digits that name an incarnation

// The job a person means: a live one before an ended one, the latest ended one before the others.
std::optional<core::JobInfo> choose(std::vector<core::JobInfo> jobs, const std::string& name) {
  const auto fits = [&name](const core::JobInfo& info) {
    return info.name == name ||
           (name.size() >= kPrefixLeast && hex(info.incarnation).rfind(name, 0) == 0);
  };
  const auto ended = [](const core::JobInfo& info) { return info.state == core::JobState::kEnded; };
  std::optional<core::JobInfo> chosen;
  for (core::JobInfo& info : jobs) {
    if (!fits(info)) continue;
    if (!chosen || ended(*chosen) || info.state == core::JobState::kRunning)
      chosen = std::move(info);
  }
  return chosen;
}

}  // namespace

void Queries::query(const std::string& routing_id, uint64_t request, const wire::Query& query) {
  wire::QueryReply reply;
  switch (query.what()) {
    case wire::Query::STATUS:
      *reply.mutable_status() = status_report();
      return answer(routing_id, request, std::move(reply));
    case wire::Query::PEERS:
      *reply.mutable_peers() = parts_.peers->report(monotonic_now());
      return answer(routing_id, request, std::move(reply));
    case wire::Query::JOBS:
      *reply.mutable_jobs() = jobs_report();
      return answer(routing_id, request, std::move(reply));
    case wire::Query::JOB:
      return query_job(routing_id, request, query.job());
    default:
      parts_.clients->refuse(routing_id, request, {Code::kInvalidArgument, "unknown query"});
  }
}

void Queries::answer(const std::string& routing_id, uint64_t request, wire::QueryReply reply) {
  wire::DaemonMessage message;
  message.set_request(request);
  *message.mutable_reply() = std::move(reply);
  parts_.clients->answer(routing_id, std::move(message));
}

void Queries::query_job(const std::string& routing_id, uint64_t request, const std::string& name) {
  const auto info = choose(parts_.membership->jobs(), name);
  if (!info) {
    return parts_.clients->refuse(
        routing_id, request,
        {Code::kNotFound,
         fmt::format("node {} knows no job {}; gradringctl jobs lists them", config_.node, name)});
  }
  if (pending_.size() >= kPendingMax) {
    return parts_.clients->refuse(
        routing_id, request, {Code::kResourceExhausted, "too many queries at once; try again"});
  }
  Pending pending;
  pending.routing_id = routing_id;
  pending.request = request;
  pending.job = info->incarnation;
  pending.deadline = monotonic_now() + kPatience;
  *pending.report.mutable_summary() = summary_of(*info);
  pending.report.set_staging_cap(config_.staging_limit);
  add_missing_ranks(*info, &pending.report);
  const uint64_t id = next_query_++;
  if (const Jobs::Job* job = parts_.jobs->find(info->incarnation)) {
    pending.awaits_data = true;
    parts_.commands->post(DescribeJob{id, info->incarnation});
    wire::PeerMessage message;
    message.mutable_job_query()->set_query(id);
    gradring::to_wire(info->incarnation, message.mutable_job_query()->mutable_incarnation());
    for (const core::Member& member : job->view.members) {
      if (member.node == config_.node) continue;
      if (parts_.peers->send(member.node, message)) {
        pending.awaited.insert(member.node);
      } else {
        pending.report.add_silent_nodes(member.node);
      }
    }
  }
  finish_if_complete(pending_.emplace(id, std::move(pending)).first);
}

void Queries::on_peer_query(const std::string& node, const wire::JobQuery& query) {
  Pending pending;
  pending.request = query.query();
  pending.node = node;
  if (!gradring::from_wire(query.incarnation(), &pending.job) || pending_.size() >= kPendingMax)
    return;
  pending.deadline = monotonic_now() + kPatience;
  pending.awaits_data = parts_.jobs->find(pending.job) != nullptr;
  const uint64_t id = next_query_++;
  if (pending.awaits_data) parts_.commands->post(DescribeJob{id, pending.job});
  finish_if_complete(pending_.emplace(id, std::move(pending)).first);
}

void Queries::on_description(const JobDescription& description) {
  const auto it = pending_.find(description.query);
  if (it == pending_.end()) return;
  it->second.awaits_data = false;
  const Jobs::Job* job = parts_.jobs->find(it->second.job);
  if (description.found && job != nullptr) {
    add_own_part(*job, description, &it->second.report);
    if (const auto tuning = parts_.tunings->report(it->second.job)) {
      *it->second.report.mutable_tuning() = *tuning;
    }
    if (job->first_nonfinite) {
      keep_first(report_of(*job->first_nonfinite, job->view, config_.node, monotonic_now()),
                 &it->second);
    }
  }
  finish_if_complete(it);
}

void Queries::on_peer_reply(const std::string& node, const wire::JobQueryReply& reply) {
  const auto it = pending_.find(reply.query());
  if (it == pending_.end() || it->second.awaited.erase(node) == 0) return;
  wire::JobReport& whole = it->second.report;
  whole.mutable_ranks()->MergeFrom(reply.report().ranks());
  whole.mutable_ops()->MergeFrom(reply.report().ops());
  if (reply.report().has_tuning()) *whole.mutable_tuning() = reply.report().tuning();
  if (reply.report().has_first_nonfinite()) {
    keep_first(reply.report().first_nonfinite(), &it->second);
  }
  finish_if_complete(it);
}

// Nodes have no clock in common, so they answer with ages. Those are off by as long as the answer
// was under way, which is as a rule less than the step of a training in which the next one follows.
void Queries::keep_first(const wire::NonfiniteReport& origin, Pending* pending) {
  constexpr core::Time kMicrosecond = core::kMillisecond / 1000;
  constexpr uint64_t kAgeMax = uint64_t{1} << 50;  // 35 years; what a peer says is multiplied
  const uint64_t age = std::min<uint64_t>(origin.age_us(), kAgeMax);
  const core::Time at = monotonic_now() - static_cast<core::Time>(age) * kMicrosecond;
  if (pending->nonfinite_at && *pending->nonfinite_at <= at) return;
  pending->nonfinite_at = at;
  *pending->report.mutable_first_nonfinite() = origin;
}

void Queries::finish_if_complete(std::map<uint64_t, Pending>::iterator it) {
  if (!it->second.awaits_data && it->second.awaited.empty()) finish(it);
}

void Queries::finish(std::map<uint64_t, Pending>::iterator it) {
  Pending pending = std::move(it->second);
  pending_.erase(it);
  if (pending.awaits_data) pending.report.add_silent_nodes(config_.node);
  for (const std::string& node : pending.awaited) pending.report.add_silent_nodes(node);
  std::sort(
      pending.report.mutable_ranks()->begin(), pending.report.mutable_ranks()->end(),
      [](const wire::RankReport& a, const wire::RankReport& b) { return a.rank() < b.rank(); });
  if (pending.routing_id.empty()) {
    wire::PeerMessage message;
    message.mutable_job_query_reply()->set_query(pending.request);
    *message.mutable_job_query_reply()->mutable_report() = std::move(pending.report);
    parts_.peers->send(pending.node, std::move(message));
    return;
  }
  wire::QueryReply reply;
  *reply.mutable_job() = std::move(pending.report);
  answer(pending.routing_id, pending.request, std::move(reply));
}

void Queries::tick(core::Time now) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const auto next = std::next(it);
    if (now >= it->second.deadline) finish(it);
    it = next;
  }
}

core::Time Queries::next_deadline() const {
  core::Time next = std::numeric_limits<core::Time>::max();
  for (const auto& [id, pending] : pending_) next = std::min(next, pending.deadline);
  return next;
}

}  // namespace gradring::daemon
