#include "daemon/control/queries/queries.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/clock.h"
#include "daemon/control/door/rights.h"
#include "daemon/control/hardware/gpu_lanes.h"
#include "daemon/control/nonfinite_report.h"
#include "daemon/control/queries/job_choice.h"

namespace gradring::daemon {
namespace {

constexpr core::Time kPatience = 500 * core::kMillisecond;  // as client.proto promises

// For drivers that wake up sleeping GPUs; without a daemon of NVIDIA's for that it takes seconds
// each.
constexpr core::Time kLookPatience = 60 * core::kSecond;

// Queries under way at one time, and parts of them for one peer; a person asks one, a script some.
constexpr size_t kPendingMax = 128;

}  // namespace

void Queries::query(const std::string& routing_id, const Credentials& who, uint64_t request,
                    const wire::Query& query) {
  const Asker asker{.routing_id = routing_id, .request = request, .uid = who.uid};
  if (query.node().empty() || query.node() == config_.node) return answer(asker, query);
  const core::Time takes =
      query.what() == wire::Query::PROBE ? ProbeQueries::time_for(query.probe()) : 0;
  far_->ask(asker, query, monotonic_now(), takes);
}

void Queries::on_question(const std::string& node, const wire::Question& question) {
  answer({.node = node, .request = question.id(), .uid = question.uid()}, question.query());
}

void Queries::on_reply(const std::string& node, const wire::Reply& reply) {
  far_->on_reply(node, reply, monotonic_now());
}

void Queries::answer(const Asker& asker, const wire::Query& query) {
  wire::QueryReply reply;
  switch (query.what()) {
    case wire::Query::STATUS:
      *reply.mutable_status() = status_report();
      break;
    case wire::Query::PEERS:
      *reply.mutable_peers() = parts_.peers->report(monotonic_now());
      parts_.ports->add_to(reply.mutable_peers());
      break;
    case wire::Query::JOBS:
      *reply.mutable_jobs() = jobs_report();
      break;
    case wire::Query::TOPOLOGY:
      follow_look(monotonic_now());
      *reply.mutable_topology() = topology_report();
      break;
    case wire::Query::JOB:
      return query_job(asker, query);
    case wire::Query::FLIGHT:
      return answer(asker, flight_->read(asker.uid, query.flight()));
    case wire::Query::PROBE:
      return probes_->ask(asker, query.probe(), monotonic_now());
    case wire::Query::TRACE:
      if (Status place = place_for_trace(asker); !place.ok()) {
        return answers_->refuse(asker, place);
      }
      return answer(asker, flight_->trace(asker.uid, query.trace_on()));
    case wire::Query::DRAIN:
      return drain_->ask(asker, query.drain(), monotonic_now());
    case wire::Query::EVENTS:
      *reply.mutable_events() = events_report(query.events_after());
      break;
    case wire::Query::SET:
      return set(asker, query);
    default:
      return answers_->refuse(asker, {Code::kInvalidArgument, "unknown query"});
  }
  answers_->give(asker, std::move(reply));
}

// Whoever has had all jobs of the node may trace them. Each time is told in the log, which would
// have no room for anything else: what is said to and fro without end is refused instead.
Status Queries::place_for_trace(const Asker& asker) {
  if (is_the_nodes(asker.uid)) return {};
  if (traces_.lets(asker.uid, monotonic_now()) == LinesOfUsers::Lets::kYes) return {};
  return {
      Code::kResourceExhausted,
      fmt::format("uid {} has one trace of node {} after the other begun and ended: it may have "
                  "one a second from now on",
                  asker.uid, config_.node)};
}

void Queries::answer(const Asker& asker, FlightQueries::Answer answer) {
  if (!answer) return answers_->refuse(asker, answer.error());
  wire::QueryReply reply;
  *reply.mutable_flight() = std::move(*answer);
  answers_->give(asker, std::move(reply));
}

void Queries::query_job(const Asker& asker, const wire::Query& query) {
  const std::string& name = query.job();
  const auto info = choose(parts_.membership->jobs(), name);
  if (!info) {
    return answers_->refuse(
        asker, {Code::kNotFound, fmt::format("node {} knows no job {}; gradringctl jobs lists them",
                                             config_.node, name)});
  }
  if (Status place = place_for_job_query(asker); !place.ok()) {
    return answers_->refuse(asker, place);
  }
  Pending pending;
  pending.asker = asker;
  pending.alone = query.own_part();
  pending.job = info->incarnation;
  pending.deadline = monotonic_now() + kPatience;
  *pending.report.mutable_summary() = summary_of(*info);
  pending.report.set_staging_cap(config_.staging_limit);
  add_missing_ranks(*info, &pending.report);
  if (!pending.alone) add_within(info->incarnation, &pending.within);
  const uint64_t id = next_query_++;
  if (const Jobs::Job* job = parts_.jobs->find(info->incarnation)) {
    pending.awaits_data = true;
    wire::PeerMessage message;
    message.mutable_job_query()->set_query(id);
    gradring::to_wire(info->incarnation, message.mutable_job_query()->mutable_incarnation());
    for (const core::Member& member : job->view.members) {
      if (member.node == config_.node || pending.alone) continue;
      if (parts_.peers->send(member.node, message)) {
        pending.awaited.insert(member.node);
      } else {
        pending.report.add_silent_nodes(member.node);
      }
    }
  }
  finish_if_complete(pending_.emplace(id, std::move(pending)).first);
  describe_next();
}

Status Queries::place_for_job_query(const Asker& asker) const {
  size_t all = 0, own = 0;
  for (const auto& [id, pending] : pending_) {
    if (pending.part) continue;
    ++all;
    own += pending.asker.uid == asker.uid ? 1 : 0;
  }
  return place_for(asker, all, own, kPendingMax);
}

void Queries::on_peer_query(const std::string& node, const wire::JobQuery& query) {
  Pending pending;
  pending.asker = {.node = node, .request = query.query()};
  pending.part = true;
  if (!gradring::from_wire(query.incarnation(), &pending.job)) return;
  // What a peer asks for its clients has the bound that it has there.
  const auto parts = std::ranges::count_if(pending_, [&node](const auto& entry) {
    return entry.second.part && entry.second.asker.node == node;
  });
  if (static_cast<size_t>(parts) >= kPendingMax) return;
  pending.deadline = monotonic_now() + kPatience;
  add_within(pending.job, &pending.within);
  pending.awaits_data = parts_.jobs->find(pending.job) != nullptr;
  const uint64_t id = next_query_++;
  finish_if_complete(pending_.emplace(id, std::move(pending)).first);
  describe_next();
}

// One job at a time, and once for all who have asked by then: a job may have ops without number,
// and while the data thread looks at them everybody's ops wait.
void Queries::describe_next() {
  if (described_) return;
  const auto next =
      std::ranges::find_if(pending_, [](const auto& entry) { return entry.second.awaits_data; });
  if (next == pending_.end()) return;
  const uint64_t last = next_query_ - 1;
  described_ = next->second.job;
  parts_.commands->post(DescribeJob{last, *described_});
}

void Queries::on_description(const JobDescription& description) {
  const JobId job = *std::exchange(described_, std::nullopt);
  for (auto it = pending_.begin(); it != pending_.end() && it->first <= description.query;) {
    const auto next = std::next(it);
    if (it->second.awaits_data && it->second.job == job) take_description(it, description);
    it = next;
  }
  describe_next();
}

void Queries::take_description(std::map<uint64_t, Pending>::iterator it,
                               const JobDescription& description) {
  it->second.awaits_data = false;
  const Jobs::Job* job = parts_.jobs->find(it->second.job);
  if (description.found && job != nullptr) {
    add_own_part(*job, description, &it->second.report);
    if (it->second.alone) add_ranks_waited_for(*job, description, &it->second.report);
    if (const auto tuning = parts_.tunings->report(it->second.job)) {
      *it->second.report.mutable_tuning() = *tuning;
    }
    if (job->first_nonfinite) {
      keep_first(report_of(*job->first_nonfinite, config_.node, monotonic_now()), &it->second);
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
  it->second.within.add(reply.report());
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
  pending.within.write_to(&pending.report);
  if (pending.part) {
    wire::PeerMessage message;
    message.mutable_job_query_reply()->set_query(pending.asker.request);
    *message.mutable_job_query_reply()->mutable_report() = std::move(pending.report);
    parts_.peers->send(pending.asker.node, std::move(message));
    return;
  }
  wire::QueryReply reply;
  *reply.mutable_job() = std::move(pending.report);
  answers_->give(pending.asker, std::move(reply));
}

// The look at the machine tells what it has seen once, soon after the start.
void Queries::follow_look(core::Time now) {
  machine::LookApart& look = *parts_.look;
  if (look.over()) return;
  if (!look.read() && now > facts_.started + kLookPatience) look.give_up();
  if (look.over() && !look.report().fault().empty()) {
    spdlog::warn("gradringctl topology will not show this machine: {}", look.report().fault());
  }
  if (!look.over() || facts_.gpu_direct.gpus.empty()) return;
  parts_.commands->post(
      SetGpuLanes{lanes_near(look.report(), facts_.gpu_direct.gpus, facts_.device_names())});
}

void Queries::tick(core::Time now) {
  far_->tick(now);
  probes_->tick(now);
  drain_->tick(now);
  follow_look(now);
  for (auto it = pending_.begin(); it != pending_.end();) {
    const auto next = std::next(it);
    if (now >= it->second.deadline) finish(it);
    it = next;
  }
}

core::Time Queries::next_deadline() const {
  core::Time next =
      std::min({far_->next_deadline(), probes_->next_deadline(), drain_->next_deadline()});
  for (const auto& [id, pending] : pending_) next = std::min(next, pending.deadline);
  return next;
}

}  // namespace gradring::daemon
