#include "daemon/core/membership.h"

#include <algorithm>
#include <utility>

#include "daemon/core/membership_hands.h"
#include "proto/policy.h"

namespace gradring::core {

Membership::~Membership() = default;

Membership::Membership(std::string node, const MembershipOptions& options, uint64_t seed,
                       MembershipActions* actions)
    : node_(std::move(node)), options_(options), actions_(actions), random_(seed) {}

void Membership::leave(SessionId session) {
  for (auto& [key, gathering] : gatherings_) {
    for (const LocalClaim& claim : gathering.local) {
      if (claim.request.session == session) return drop_claim(key, session);
    }
  }
  Live* live = live_of(session);
  if (live == nullptr) return;
  if (live->state == JobState::kProposed) return session_lost(session, "left while the job formed");
  for (const LocalClaim& claim : live->local) {
    if (claim.request.session == session) {
      Failure failure{Cause::kTrainerLeft, {}};
      failure.blame = {claim.request.rank, node_, claim.request.pid, "", "left the job"};
      actions_->leave_engine(live->view.incarnation, claim.request.rank, failure);
    }
  }
  const JobId id = live->view.incarnation;
  gone(id, session);
  fail_unfit_within(id);
}

void Membership::session_lost(SessionId session, const std::string& evidence,
                              const std::string& device) {
  for (auto& [key, gathering] : gatherings_) {
    for (const LocalClaim& claim : gathering.local) {
      if (claim.request.session == session) return drop_claim(key, session);
    }
  }
  Live* live = live_of(session);
  if (live == nullptr) return;
  for (const LocalClaim& claim : live->local) {
    if (claim.request.session != session) continue;
    const JobId id = live->view.incarnation;
    Failure failure{Cause::kTrainerDied, {}};
    failure.blame = {claim.request.rank, node_, claim.request.pid, device, evidence};
    live->present.erase(session);
    if (live->joining) {
      send(live->inviter, Reject{id, ""});
      return return_to_gathering(id);
    }
    const bool elastic = parse_policy(live->view.policy).value_or(Policy{}).elastic;
    if (live->state == JobState::kProposed && elastic) {
      // The others may have begun already. They go on without it, once it is known here that they
      // do.
      live->lost.push_back({claim.request.rank, failure});
      return;
    }
    if (live->change && !live->failure) {
      lose_rank(*live, claim.request.rank, failure);
    } else {
      fail_job(*live, failure, "");
    }
    return gone(id, session);
  }
}

void Membership::peer_up(const std::string& node) {
  peers_.insert(node);
  awaited_.erase(node);
  for (auto& [id, live] : live_) {
    if (!live.change || live.failure) continue;
    live.change->found(node, now_);
    if (!live.view.index_of(node)) continue;
    send(node, change::Ask{id, live.view.epoch});
    if (live.done.count(node_) > 0) send(node, done_of(live));
  }
  ask_if_committed(node);
  say_claims();  // before the words of witnesses, which do not go by way of us
  for (auto& [id, witness] : witnesses_) witness.meet(node);
  for (const auto& [key, gathering] : gatherings_) {
    if (!gathering.local.empty()) publish(key, gathering);
  }
  retry_deferred();
  settle_all();
  go_on_where_met();
}

// What it proposed and we accepted it has committed meanwhile, of which its peer_up() tells us, or
// it knows nothing of that any more, and says so.
void Membership::ask_if_committed(const std::string& proposer) {
  for (const auto& [id, live] : live_) {
    if (awaits_commit_of(live, proposer)) send(proposer, Accept{id});
  }
}

bool Membership::awaits_commit_of(const Live& live, const std::string& node) const {
  return live.state == JobState::kProposed && !live.joining && !live.proposer &&
         live.view.members.front().node == node;
}

void Membership::forget_claims_of(const std::string& node) {
  std::erase_if(deferred_, [&node](const auto& entry) { return entry.second.first == node; });
  for (auto& [key, gathering] : gatherings_) {
    gathering.remote.erase(node);
    if (gathering.unwelcome.first == node) gathering.unwelcome = {};
  }
  for (auto& [key, told] : unwelcome_) told.erase(node);
  departed_.untell(node);
  std::erase_if(unwelcome_, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(gatherings_, [](const auto& entry) {
    return entry.second.local.empty() && entry.second.remote.empty();
  });
  for (const auto& [id, live] : live_) {
    if (!live.joiners.empty()) invite_anew({live.view.job, live.token});
  }
}

void Membership::peer_lost(const std::string& node, Cause cause, const std::string& evidence) {
  peers_.erase(node);
  const bool awaited = awaited_.erase(node) > 0;
  forget_claims_of(node);

  Failure failure{cause, {}};
  failure.blame.node = cause == Cause::kExcluded ? node_ : node;
  failure.blame.evidence = evidence;
  std::vector<JobId> concerned;
  for (const auto& [id, live] : live_) {
    if (live.view.index_of(node)) {
      concerned.push_back(id);
    } else if (live.change) {
      live.change->not_away(node);
    }
  }
  for (const JobId& id : concerned) {
    const auto it = live_.find(id);
    if (it == live_.end()) continue;  // it ended with another
    Live& live = it->second;
    if (lose_while_forming(id, node)) continue;
    const bool elastic = parse_policy(live.view.policy).value_or(Policy{}).elastic;
    if (live.state == JobState::kProposed && elastic) {
      // The others may have begun already. They go on without it, once it is known here that they
      // do.
      live.lost_members.try_emplace(node, failure);
      continue;
    }
    if (live.done.count(node) > 0) {
      actions_->member_gone(id, *live.view.index_of(node), failure);
      with_change(id, [&](ViewChange& change) { change.gone(node); });
      end_if_over(id);
      continue;
    }
    if (live.change && !live.failure) {
      with_change(id, [&](ViewChange& change) { change.lost(node, failure, false, now_); });
      continue;
    }
    live.done.insert(node);
    fail_job(live, failure, node);
    end_if_over(id);
  }
  settle_all();
  if (awaited) go_on_where_met();
}

// False if that does not end the forming of this job here.
bool Membership::lose_while_forming(const JobId& job, const std::string& node) {
  const Live& live = live_.at(job);
  if (live.joining) {
    return_to_gathering(job);
    return true;
  }
  const bool proposer_lost = live.view.members.front().node == node;
  if (live.state != JobState::kProposed || (!live.proposer && !proposer_lost)) return false;
  // Nobody was admitted by us; the proposer says so, or is gone and somebody admitted will tell.
  if (live.proposer) tell_members(live, Reject{job, ""}, node);
  return_to_gathering(job);
  return true;
}

void Membership::on_message(const std::string& from, const JobMessage& message, Time now) {
  now_ = std::max(now_, now);
  if (testify(from, message)) return;
  if (const auto* claims = std::get_if<Claims>(&message)) return on_claims(from, *claims, now);
  if (const auto* propose = std::get_if<Propose>(&message)) return on_propose(from, *propose);
  if (const auto* accept = std::get_if<Accept>(&message)) return on_accept(from, *accept);
  if (const auto* reject = std::get_if<Reject>(&message)) return on_reject(from, *reject);
  if (const auto* commit = std::get_if<Commit>(&message)) return on_commit(from, *commit);
  if (const auto* failed = std::get_if<JobFailed>(&message)) return on_job_failed(from, *failed);
  if (const auto* done = std::get_if<JobDone>(&message)) return on_job_done(from, *done);
  if (const auto* left = std::get_if<Left>(&message)) return on_left(from, *left);
  if (const auto* not_in = std::get_if<Unwelcome>(&message)) return on_unwelcome(from, *not_in);
  if (const auto* m = std::get_if<change::Prepare>(&message)) return on_change(from, *m);
  if (const auto* m = std::get_if<change::Promise>(&message)) return on_change(from, *m);
  if (const auto* m = std::get_if<change::Accept>(&message)) return on_change(from, *m);
  if (const auto* m = std::get_if<change::Accepted>(&message)) return on_change(from, *m);
  if (const auto* m = std::get_if<change::Commit>(&message)) return on_change(from, *m);
  if (const auto* m = std::get_if<change::Refuse>(&message)) return on_change(from, *m);
  if (const auto* m = std::get_if<change::Ask>(&message)) return on_change(from, *m);
}

void Membership::tick(Time now) {
  now_ = std::max(now_, now);
  expire_proposals();
  tick_changes();
  forget_witnesses();
  ask_if_joining();
  std::vector<GatheringKey> late;
  for (const auto& [key, gathering] : gatherings_) {
    if (std::any_of(gathering.local.begin(), gathering.local.end(),
                    [now](const LocalClaim& claim) { return now >= claim.deadline; })) {
      late.push_back(key);
    }
  }
  for (const GatheringKey& key : late) {
    const auto it = gatherings_.find(key);
    if (it == gatherings_.end()) continue;
    const Gathering& gathering = it->second;
    std::string text = "job " + key.job + ": time ran out while forming; ";
    const bool proposed =
        std::any_of(deferred_.begin(), deferred_.end(), [&key](const auto& entry) {
          const Propose& propose = entry.second.second;
          return propose.view.job == key.job && propose.token == key.token;
        });
    // A proposal means that all are there; else the missing ones are the answer.
    // Whoever cannot come into the job that runs waits for nobody.
    const std::string unwelcome = why_not_welcome(key, gathering);
    text += !unwelcome.empty()                                ? unwelcome
            : proposed || missing_ranks(gathering).count == 0 ? gathering.explanation
                                                              : say_missing(gathering);
    text += unwelcome.empty() && !proposed ? of_other_launch(key, gathering) : "";
    const std::string unreachable = actions_->unreachable_peers();
    if (!unreachable.empty()) text += "; peers not connected: " + unreachable;
    std::vector<SessionId> expired;
    for (const LocalClaim& claim : gathering.local) {
      if (now >= claim.deadline) expired.push_back(claim.request.session);
    }
    for (const SessionId session : expired) {
      actions_->refuse(session, {Code::kDeadlineExceeded, text});
      drop_claim(key, session);
    }
  }
  if (now_ >= say_at_) say_claims();
}

void Membership::shut_down(const Failure& failure) {
  shut_down_ = failure;
  const Status why(Code::kUnavailable, describe(failure));
  while (!gatherings_.empty()) {
    const GatheringKey key = gatherings_.begin()->first;
    fail_gathering(key, why);
    gatherings_.erase(key);
  }
  std::vector<JobId> jobs;
  for (const auto& [id, live] : live_) jobs.push_back(id);
  for (const JobId& id : jobs) {
    const auto it = live_.find(id);
    if (it == live_.end()) continue;
    Live& live = it->second;
    // Where we are done nobody needs us: going away in good order is no failure.
    const bool elastic = parse_policy(live.view.policy).value_or(Policy{}).elastic;
    if (live.joining) {
      send(live.inviter, Reject{id, ""});
      for (const SessionId session : live.present) actions_->refuse(session, why);
      live.present.clear();
    }
    if (live.done.count(node_) == 0) {
      fail_job(live, failure, "", elastic ? Tell::kLeft : Tell::kAll);
    }
    end_if_over(id);
  }
  say_claims();
}

std::vector<JobInfo> Membership::jobs() const {
  std::vector<JobInfo> list;
  for (const auto& [key, gathering] : gatherings_) {
    if (gathering.local.empty()) continue;
    JobInfo info;
    info.name = key.job;
    info.size = gathering.size;
    info.uid = gathering.uid;
    info.policy = gathering.policy;
    info.since = gathering.since;
    info.token = key.token;
    info.missing = missing_ranks(gathering);
    const std::string& unwelcome = gathering.unwelcome.second;
    info.explanation =
        unwelcome.empty() ? gathering.explanation + describe_missing(key, gathering) : unwelcome;
    list.push_back(std::move(info));
  }
  for (const auto& [id, live] : live_) {
    list.push_back({live.view.job,
                    id,
                    live.state,
                    live.view.epoch,
                    live.size_at_end.value_or(live.view.size),
                    live.view.uid,
                    live.view.policy,
                    live.since,
                    {},
                    live.explanation,
                    false,
                    live.token});
    if (live.state != JobState::kRunning || live.failure || !live.change) continue;
    const std::string doing = live.change->doing();
    if (!doing.empty()) list.back().explanation += "; now: " + doing;
  }
  for (const auto& [id, witness] : witnesses_) {
    const View& view = witness.record().view;
    list.push_back(
        {view.job,
         id,
         JobState::kFailed,
         view.epoch,
         view.size,
         view.uid,
         view.policy,
         witness.record().since,
         {},
         describe(witness.record().lost.front().failure) +
             "; its ranks here are lost, and this daemon votes on who goes on without them"});
  }
  list.insert(list.end(), history_.begin(), history_.end());
  return list;
}

size_t Membership::busy_jobs() const {
  size_t count = 0;
  for (const auto& [key, gathering] : gatherings_) count += gathering.local.empty() ? 0 : 1;
  return count + live_jobs().size();
}

std::vector<std::string> Membership::live_jobs() const {
  std::vector<std::string> names;
  for (const auto& [id, live] : live_) {
    // What the ranks here left behind, others may still be waiting for.
    const bool owes = live.state == JobState::kRunning && live.done.count(node_) == 0;
    const bool here = live.state != JobState::kFailed && !live.present.empty();
    if (here || owes) names.push_back(live.view.job);
  }
  return names;
}

const View* Membership::view_of(SessionId session) const {
  Live* live = const_cast<Membership*>(this)->live_of(session);
  return live == nullptr ? nullptr : &live->view;
}

const View* Membership::view_of(const JobId& job) const {
  const auto it = live_.find(job);
  return it == live_.end() ? nullptr : &it->second.view;
}

Membership::Live* Membership::live_of(SessionId session) {
  for (auto& [id, live] : live_) {
    if (live.present.count(session) > 0) return &live;
  }
  return nullptr;
}

void Membership::tell_members(const Live& live, const JobMessage& message,
                              const std::string& except) {
  for (const Member& member : live.view.members) {
    if (member.node != node_ && member.node != except) send(member.node, message);
  }
}

}  // namespace gradring::core
