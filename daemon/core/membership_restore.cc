// From one life of a daemon to the next: rule R1. A job that runs goes on with a view change in
// which this node takes part as if it had only been slow; nothing else is remembered.

#include <algorithm>
#include <utility>

#include "daemon/core/membership.h"
#include "daemon/core/membership_hands.h"
#include "proto/policy.h"

namespace gradring::core {

std::vector<SessionId> Membership::sessions_of(const Live& live) const {
  std::vector<SessionId> sessions;
  for (const RankInfo& info : live.view.members[*live.view.index_of(node_)].ranks) {
    const auto known = std::find_if(live.local.begin(), live.local.end(),
                                    [&info](const LocalClaim& c) { return c.claim == info.claim; });
    sessions.push_back(known == live.local.end() ? 0 : known->request.session);
  }
  return sessions;
}

JobRecord Membership::record_of(const Live& live) const {
  JobRecord record;
  record.view = live.view;
  record.token = live.token;
  record.since = live.since;
  for (const LocalClaim& claim : live.local) {
    const JoinRequest& request = claim.request;
    record.local.push_back({request.session, request.rank, request.local_rank, request.pid,
                            claim.claim, live.present.count(request.session) > 0});
  }
  record.lost = live.lost;
  record.done = live.done;
  record.acceptor = live.change->record();
  return record;
}

void Membership::save(const Live& live) {
  if (live.change && !live.failure && actions_->keeps_records()) actions_->record(record_of(live));
}

void Membership::restore(const JobRecord& record, uint64_t engine_epoch, Time now) {
  now_ = std::max(now_, now);
  const JobId id = record.view.incarnation;
  has_a_job(record.view.uid);
  Live& live = live_[id];
  live.view = record.view;
  live.token = record.token;
  live.since = record.since;
  live.state = record.view.closed ? JobState::kFailed : JobState::kRunning;
  live.explanation = record.view.explanation;
  for (const LocalPlace& place : record.local) {
    LocalClaim& local = live.local.emplace_back();
    local.claim = place.claim;
    local.request.session = place.session;
    local.request.job = record.view.job;
    local.request.token = record.token;
    local.request.rank = place.rank;
    local.request.size = record.view.size;
    local.request.local_rank = place.local_rank;
    local.request.policy = record.view.policy;
    local.request.uid = record.view.uid;
    local.request.pid = place.pid;
    if (place.present) live.present.insert(place.session);
  }
  live.lost = record.lost;
  live.done = record.done;
  live.returned = true;
  for (const Member& member : live.view.members) {
    if (member.node == node_ || live.done.count(member.node) > 0) continue;
    if (peers_.count(member.node) > 0 || !awaited_.insert(member.node).second) continue;
    // Where it was done with a job that was restored before this one, it misses words of that too.
    for (auto& [other, restored] : live_) {
      if (restored.change) restored.change->away(member.node);
    }
  }
  // The engine may not have heard of it.
  for (const LocalPlace& place : record.local) {
    if (place.present) continue;
    Failure failure{Cause::kTrainerLeft, {}};
    failure.blame = {place.rank, node_, place.pid, "", "left the job"};
    for (const LostRank& lost : live.lost) {
      if (lost.rank == place.rank) failure = lost.failure;
    }
    actions_->leave_engine(id, place.rank, failure);
  }
  begin_changes(live);
  live.change->restore(record.acceptor);
  const auto& commit = record.acceptor.last_commit;
  hold(id, [&](Live& held) {
    if (commit && commit->epoch > held.view.epoch) {
      const bool member = commit->proposal.view.index_of(node_).has_value();
      return member ? adopt(held, commit->proposal) : leave_excluded(held, commit->proposal);
    }
    if (commit && commit->epoch > engine_epoch) {
      actions_->adopt_engine(id, commit->proposal, sessions_of(held));
    }
    lose_strangers(held);
  });
  go_on_if_met(id);
}

// Ranks of ours in the view that nobody stands for: their trainers went away while they were taken
// in, and the last life ended before it could say so.
void Membership::lose_strangers(Live& live) {
  const std::vector<SessionId> sessions = sessions_of(live);
  const std::vector<RankInfo> mine = live.view.members[*live.view.index_of(node_)].ranks;
  for (size_t i = 0; i < mine.size(); ++i) {
    if (sessions[i] != 0) continue;
    Failure failure{Cause::kTrainerDied, {}};
    failure.blame = {mine[i].rank, node_, mine[i].pid, "", "went away while it was taken in"};
    lose_rank(live, mine[i].rank, failure);
  }
}

// What was under way when the last life ended is lost, so the epoch must end. Asking for that
// before all members can be reached would leave somebody out for nothing.
void Membership::go_on_if_met(const JobId& job) {
  const auto it = live_.find(job);
  if (it == live_.end() || !it->second.returned || !it->second.change) return;
  const View& view = it->second.change->view();
  const bool waits = std::any_of(view.members.begin(), view.members.end(),
                                 [&](const Member& m) { return awaited_.count(m.node) > 0; });
  if (waits) return;
  // Where all others were done with the job and none of them is there, nobody could answer. It goes
  // on as it is, as it would have without the restart, unless one of them comes back.
  const Live& live = it->second;
  const bool alone = std::ranges::all_of(view.members, [&](const Member& m) {
    return m.node == node_ || (live.done.count(m.node) > 0 && peers_.count(m.node) == 0);
  });
  if (alone && view.members.size() > 1 && !live.change->frozen()) return end_if_over(job);
  it->second.returned = false;
  want_change(job, true);
  end_if_over(job);
}

void Membership::go_on_where_met() {
  std::vector<JobId> jobs;
  for (const auto& [id, live] : live_) jobs.push_back(id);
  for (const JobId& id : jobs) go_on_if_met(id);
}

void Membership::bear_witness(const JobRecord& record, const Failure& failure, Time now) {
  now_ = std::max(now_, now);
  const JobId id = record.view.incarnation;
  const bool elastic = parse_policy(record.view.policy).value_or(Policy{}).elastic;
  // Under policy fail whoever is left ends the job at once.
  if (!elastic || record.view.closed) return actions_->forget(id);
  const auto witness = witnesses_.try_emplace(id, node_, record, failure, now_, actions_).first;
  actions_->record(witness->second.record());
  for (const std::string& node : peers_) witness->second.meet(node);
  forget_witnesses();
}

bool Membership::testify(const std::string& from, const JobMessage& message) {
  const JobId id = job_of(message);
  const auto witness = witnesses_.find(id);
  if (witness == witnesses_.end()) return false;
  say_claims();  // as in peer_up()
  witness->second.on_message(from, message, now_);
  forget_witnesses();
  // Other ranks of this node may be about to come in.
  return live_.count(id) == 0;
}

void Membership::forget_witnesses() {
  // Long after whoever lacks a quorum has given up.
  const Time patience = 2 * options_.change.quorum_wait;
  std::erase_if(witnesses_, [&](const auto& entry) {
    const auto& [id, witness] = entry;
    if (!witness.over(now_, patience)) return false;
    if (const auto& commit = witness.excluded_by()) departed_.remember(*commit);
    actions_->forget(id);
    return true;
  });
}

void Membership::peer_away(const std::string& node) {
  peers_.erase(node);
  awaited_.insert(node);
  forget_claims_of(node);
  std::vector<JobId> forming;
  for (auto& [id, live] : live_) {
    if (live.change) {
      live.change->away(node);
    } else if (live.view.index_of(node) && !awaits_commit_of(live, node)) {
      forming.push_back(id);
    }
  }
  for (const JobId& id : forming) {
    if (live_.count(id) > 0) lose_while_forming(id, node);
  }
  settle_all();
}

}  // namespace gradring::core
