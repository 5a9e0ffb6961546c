#include "daemon/control/jobs.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/control/door/process.h"
#include "daemon/control/nonfinite_report.h"
#include "daemon/notice.h"
#include "daemon/wire/peer_wire.h"

namespace gradring::daemon {
namespace {

// So many members of a job are recorded with their names, the rest by number alone: the names of a
// very large job must not push out what happened before.
constexpr uint32_t kMembersNamed = 256;

FlightEvent about(FlightKind kind, const JobId& job) {
  FlightEvent event;
  event.kind = kind;
  event.job = prefix_of(job);
  return event;
}

void record_view(FlightRing* flight, FlightKind kind, const core::View& view) {
  FlightEvent proposed = about(kind, view.incarnation);
  proposed.epoch = view.epoch;
  proposed.value = view.size;
  proposed.index = static_cast<uint32_t>(view.members.size());
  flight->record(proposed, view.job, view.explanation);
  for (uint32_t i = 0; i < std::min(proposed.index, kMembersNamed); ++i) {
    FlightEvent member = about(FlightKind::kJobMember, view.incarnation);
    member.epoch = view.epoch;
    member.index = i;
    if (!view.members[i].ranks.empty()) member.rank = view.members[i].ranks.front().rank;
    member.value = view.members[i].ranks.size();
    flight->record(member, view.members[i].node);
  }
}

}  // namespace

const Jobs::Job* Jobs::find(const JobId& id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

void Jobs::record_all() const {
  for (const auto& [id, job] : jobs_) record_view(flight_, FlightKind::kJobProposed, job.view);
}

void Jobs::mark_over(const Session& session, const char* how) {
  const auto it = jobs_.find(session.job);
  if (it != jobs_.end()) it->second.ranks_over[session.rank] = how;
}

void Jobs::send(const std::string& node, const core::JobMessage& message) {
  peers_->send(node, to_wire(message));
}

void Jobs::connect_members(const core::View& view) {
  for (const core::Member& member : view.members) {
    if (member.node != node_) peers_->need_data(member.node);
  }
}

void Jobs::watch_members(const core::View& view) {
  for (const core::Member& member : view.members) {
    if (member.node != node_) peers_->watch_data(member.node);
  }
}

void Jobs::install(const core::View& view, const std::vector<SessionId>&) {
  jobs_[view.incarnation] = {view, {}, {}, {}};
  record_view(flight_, FlightKind::kJobProposed, view);
  tunings_->entered(view);
  connect_members(view);
  InstallJob install{view, *view.index_of(node_), nullptr, nullptr, {}};
  if (data_outlives_) {
    auto memory = JobMemory::create(view.incarnation, records_.sizes, records_.store);
    if (memory) {
      install.memory = std::move(*memory);
    } else {
      spdlog::warn("job {} will not outlive a restart: {}", view.job, memory.error().message());
    }
  }
  commands_->post(std::move(install));
}

void Jobs::restore(const core::View& view, InstallJob install) {
  jobs_[view.incarnation] = {view, {}, {}, {}};
  if (view.closed) jobs_[view.incarnation].failure = view.closed;
  connect_members(view);
  record_view(flight_, FlightKind::kViewEntered, view);
  tunings_->entered(view);
  commands_->post(std::move(install));
}

void Jobs::record(const core::JobRecord& job) { records_.log->save(job); }

void Jobs::forget(const JobId& job) { records_.log->over(job); }

void Jobs::tell_again(Session& session) {
  if (session.part == JobPart::kClosed) return close(session.id, session.job, session.failure);
  if (session.part != JobPart::kJoined) return;
  const auto it = jobs_.find(session.job);
  if (it != jobs_.end()) return view_changed(session.id, it->second.view);
  Failure failure{Cause::kPeerLost, {}};
  failure.blame.node = node_;
  failure.blame.evidence = "the job ended while its daemon was restarted";
  close(session.id, session.job, failure);
}

void Jobs::readmit(Session& session, const JobId& job, uint32_t rank) {
  if (session.part != JobPart::kNone) return;
  session.part = JobPart::kJoined;
  session.handle = next_handle_++;
  session.job = job;
  session.rank = rank;
  sessions_->save(session);
}

void Jobs::tell_joined(Session& session, uint64_t request) {
  wire::DaemonMessage message;
  message.set_request(request);
  message.mutable_joined()->set_job(session.handle);
  to_wire(jobs_.at(session.job).view, message.mutable_joined()->mutable_view());
  clients_->tell(session, std::move(message));
}

void Jobs::admit(SessionId id, const core::View& view) {
  watch_members(view);
  Session* session = sessions_->find(id);
  if (session == nullptr || session->gone) return;
  session->part = JobPart::kJoined;
  session->handle = next_handle_++;
  session->job = view.incarnation;
  sessions_->save(*session);
  const auto job = jobs_.find(view.incarnation);
  if (job != jobs_.end()) job->second.ranks_over.erase(session->rank);  // it has come in anew
  wire::DaemonMessage message;
  message.set_request(session->join_request);
  message.mutable_joined()->set_job(session->handle);
  to_wire(view, message.mutable_joined()->mutable_view());
  clients_->tell(*session, std::move(message));
  const auto& own = view.members[*view.index_of(node_)].ranks;
  // Where others of this node were in it before, it has grown, and that is told.
  const bool grown = std::any_of(own.begin(), own.end(), [&own](const core::RankInfo& info) {
    return info.since < own.front().since;
  });
  if (session->rank == own.front().rank && !grown) {
    FlightEvent runs = about(FlightKind::kJobRuns, view.incarnation);
    runs.epoch = view.epoch;
    flight_->record(runs);
    tell_of_job(view.uid, Notice::kJobFormed, spdlog::level::info, {{"GRADRING_JOB", view.job}},
                fmt::format("job {} ({}) runs: {} {} on {} {}", view.job,
                            hex(view.incarnation).substr(0, 8), view.size,
                            view.size == 1 ? "rank" : "ranks", view.members.size(),
                            view.members.size() == 1 ? "node" : "nodes"));
  }
}

std::string Jobs::name_of(const JobId& id) const {
  const Job* const job = find(id);
  return job == nullptr ? "" : job->view.job;
}

void Jobs::set_weight(const JobId& id, uint32_t weight) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;  // it was over when it was taken over
  it->second.weight = weight;
  records_.log->save_weight(id, weight);
  commands_->post(SetWeight{id, weight});
}

void Jobs::refuse(SessionId id, const Status& why) {
  Session* session = sessions_->find(id);
  if (session == nullptr || session->gone || session->part != JobPart::kJoining) return;
  session->part = JobPart::kNone;
  FlightEvent refused{.kind = FlightKind::kTrainerRefused, .rank = session->rank};
  refused.value = static_cast<uint64_t>(session->who.pid);
  flight_->record(refused, {}, why.message());
  wire::DaemonMessage message;
  message.set_request(session->join_request);
  message.mutable_refused()->set_request(session->join_request);
  message.mutable_refused()->set_code(static_cast<uint32_t>(why.code()));
  message.mutable_refused()->set_message(why.message());
  clients_->tell(*session, std::move(message));
}

void Jobs::leave_engine(const JobId& job, uint32_t rank, const Failure& why) {
  commands_->post(LeaveRank{job, rank, why});
}

void Jobs::freeze_engine(const JobId& job, uint64_t epoch) {
  FlightEvent frozen = about(FlightKind::kViewFrozen, job);
  frozen.epoch = epoch;
  flight_->record(frozen);
  commands_->post(FreezeJob{job, epoch});
}

void Jobs::adopt_engine(const JobId& id, const core::Proposal& proposal,
                        const std::vector<SessionId>&) {
  connect_members(proposal.view);
  watch_members(proposal.view);
  commands_->post(AdoptView{id, std::make_shared<const core::Proposal>(proposal)});
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;
  const bool over = it->second.view.closed.has_value();
  it->second.view = proposal.view;
  record_view(flight_, FlightKind::kViewEntered, proposal.view);
  tunings_->entered(proposal.view);
  if (!over) {  // else all is told already: why it ended, and who died since
    tell_of_job(proposal.view.uid, Notice::kViewChanged, spdlog::level::info,
                {{"GRADRING_JOB", it->second.view.job}},
                fmt::format("job {} ({}): {}", it->second.view.job, hex(id).substr(0, 8),
                            proposal.view.explanation));
  }
  if (proposal.view.closed) note_failed(id, *proposal.view.closed);
}

core::Tuning Jobs::tuning_for(const core::View& view, bool deterministic) {
  return tunings_->first(view, deterministic);
}

void Jobs::set_grows(const JobId& job, bool grows) { commands_->post(SetGrows{job, grows}); }

void Jobs::view_changed(SessionId id, const core::View& view) {
  Session* session = sessions_->find(id);
  if (session == nullptr || session->gone || session->job != view.incarnation) return;
  wire::DaemonMessage message;
  message.mutable_view_changed()->set_job(session->handle);
  to_wire(view, message.mutable_view_changed()->mutable_view());
  message.mutable_view_changed()->set_explanation(view.explanation);
  clients_->tell(*session, std::move(message));
}

void Jobs::fail_engine(const JobId& id, const Failure& failure) {
  records_.log->over(id);
  commands_->post(FailJob{id, failure});
  note_failed(id, failure);
}

// Once: a closed view has failed the job, and giving it up later is no news.
void Jobs::note_failed(const JobId& id, const Failure& failure) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end() || it->second.failure) return;
  it->second.failure = failure;
  FlightEvent failed = about(FlightKind::kJobFailed, id);
  failed.code = static_cast<uint8_t>(failure.cause);
  failed.rank = failure.blame.rank;
  failed.value = static_cast<uint64_t>(failure.blame.pid);
  flight_->record(failed, failure.blame.node, failure.blame.evidence);
  const core::View& view = it->second.view;
  const auto tell = [&](Notice notice, spdlog::level::level_enum level, const char* what) {
    tell_of_job(
        view.uid, notice, level, {{"GRADRING_JOB", view.job}},
        fmt::format("job {} ({}) {}: {}", view.job, hex(id).substr(0, 8), what, describe(failure)));
  };
  // Of an elastic job that goes on, once its ranks here have all left or died, nothing has failed.
  if (failure.cause == Cause::kExcluded && all_are_over_here(it->second)) {
    return tell(Notice::kJobEnded, spdlog::level::info, "has ended on this node");
  }
  ++failures_[std::min<size_t>(static_cast<size_t>(failure.cause), kCauseLast)];
  tell(Notice::kJobFailed, spdlog::level::warn, "failed");
}

bool Jobs::all_are_over_here(const Job& job) const {
  const auto is_over = [&job](const core::RankInfo& one) {
    return job.ranks_over.count(one.rank) > 0;
  };
  return std::ranges::all_of(job.view.members, [&](const core::Member& member) {
    return member.node != node_ || std::ranges::all_of(member.ranks, is_over);
  });
}

void Jobs::member_gone(const JobId& job, uint32_t member, const Failure& failure) {
  commands_->post(MemberGone{job, member, failure});
}

void Jobs::close(SessionId id, const JobId& job, const Failure& failure) {
  Session* session = sessions_->find(id);
  if (session == nullptr || session->job != job) return;
  session->part = JobPart::kClosed;
  session->failure = failure;
  sessions_->save(*session);
  wire::DaemonMessage message;
  message.mutable_closed()->set_job(session->handle);
  to_wire(failure, message.mutable_closed()->mutable_failure());
  message.mutable_closed()->set_message(describe(failure));
  clients_->tell(*session, std::move(message));
}

void Jobs::mark_nonfinite(const NonfiniteFound& found) {
  const auto it = jobs_.find(found.job);
  // After a restart the data thread knows of none, and finds the next one.
  if (it == jobs_.end() || it->second.first_nonfinite) return;
  const core::View& view = it->second.view;
  NonfiniteOrigin& origin = it->second.first_nonfinite.emplace(found.origin);
  // Once the rank is gone nobody knows its pid, and it may be gone already.
  if (view.has(origin.rank)) origin.pid = view.info_of(origin.rank).pid;
  records_.log->save_nonfinite(found.job, origin);
  tell_of_job(
      view.uid, Notice::kNonfinite, spdlog::level::warn, {{"GRADRING_JOB", view.job}},
      fmt::format("job {} ({}): {}", view.job, hex(found.job).substr(0, 8), describe(origin)));
}

void Jobs::recall_nonfinite(const JobId& id, const NonfiniteOrigin& origin) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;
  it->second.first_nonfinite = origin;
  records_.log->save_nonfinite(id, origin);
}

void Jobs::tell_late(const RankLate& late) const {
  const auto it = jobs_.find(late.job);
  if (it == jobs_.end()) return;
  const core::View& view = it->second.view;
  const core::LateChange& change = late.change;
  if (!view.has(change.rank)) return;  // it has gone meanwhile
  const int64_t pid = view.info_of(change.rank).pid;
  const std::string who = fmt::format("job {} ({}): rank {} (pid {})", view.job,
                                      hex(late.job).substr(0, 8), change.rank, pid);
  const NoticeFields fields = {{"GRADRING_JOB", view.job},
                               {"GRADRING_RANK", std::to_string(change.rank)},
                               {"GRADRING_PID", std::to_string(pid)}};
  if (!change.late) {
    return tell_of_job(view.uid, Notice::kRankPunctual, spdlog::level::info, fields,
                       fmt::format("{} is in time again: late in {} of its last {} steps", who,
                                   change.times, change.of));
  }
  tell_of_job(
      view.uid, Notice::kRankLate, spdlog::level::warn, fields,
      fmt::format("{} keeps others waiting: it was late by {:.1f} ms in {} of its last {} steps, "
                  "and is in state {}",
                  who, static_cast<double>(change.median) / core::kMillisecond, change.times,
                  change.of, process_state(pid)));
}

void Jobs::remove(const JobId& id) {
  tunings_->ended(id);
  commands_->post(RemoveJob{id});
  if (records_.log->on()) {
    records_.log->over(id);
    JobMemory::forget(id, records_.store);
  }
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;
  flight_->record(about(FlightKind::kJobEnded, id));
  if (!it->second.failure) {
    tell_of_job(it->second.view.uid, Notice::kJobEnded, spdlog::level::info,
                {{"GRADRING_JOB", it->second.view.job}},
                fmt::format("job {} ({}) has ended", it->second.view.job, hex(id).substr(0, 8)));
  }
  jobs_.erase(it);
}

std::string Jobs::unreachable_peers() const { return peers_->unreachable(); }

}  // namespace gradring::daemon
