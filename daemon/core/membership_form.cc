// Forming: the daemon of rank 0 proposes a complete view, every member accepts it against its own
// claims, and then it is committed, once (protocol rule J0).

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/core/membership.h"
#include "daemon/core/membership_hands.h"
#include "proto/policy.h"

namespace gradring::core {

bool Membership::is_deterministic(const Gathering& gathering) {
  return std::any_of(gathering.local.begin(), gathering.local.end(),
                     [](const LocalClaim& claim) { return claim.request.deterministic; }) ||
         std::any_of(gathering.remote.begin(), gathering.remote.end(),
                     [](const auto& entry) { return entry.second.deterministic; });
}

std::vector<Membership::LocalClaim> Membership::claims_within(const Gathering& gathering) {
  std::vector<LocalClaim> within = gathering.local;
  std::erase_if(within, [&](const LocalClaim& c) { return c.request.rank >= gathering.size; });
  return within;
}

void Membership::keep_beyond(Gathering* gathering) {
  const uint32_t size = gathering->size;
  std::erase_if(gathering->local, [&](const LocalClaim& c) { return c.request.rank < size; });
  for (auto& [node, claims] : gathering->remote) {
    std::erase_if(claims.ranks, [&](const RankInfo& info) { return info.rank < size; });
  }
  std::erase_if(gathering->remote, [](const auto& entry) { return entry.second.ranks.empty(); });
}

void Membership::propose_if_complete(const GatheringKey& key) {
  Gathering& gathering = gatherings_.at(key);
  const bool rank_zero_here =
      std::any_of(gathering.local.begin(), gathering.local.end(),
                  [](const LocalClaim& claim) { return claim.request.rank == 0; });
  const uint32_t missing = missing_ranks(gathering).count;
  gathering.explanation =
      "waits for " + std::to_string(missing) + " of " + std::to_string(gathering.size) + " ranks";
  if (missing == 0) gathering.explanation = "waits for the node of rank 0 to commit the view";
  if (!rank_zero_here || missing != 0) return;
  std::vector<Member> others;
  for (const auto& [node, claims] : gathering.remote) {
    Member member{node, claims.ranks};
    std::erase_if(member.ranks, [&](const RankInfo& info) { return info.rank >= gathering.size; });
    if (member.ranks.empty()) continue;
    if (peers_.count(node) == 0) {
      gathering.explanation = "waits for the connection to node " + node;
      return;
    }
    others.push_back(std::move(member));
  }

  View view;
  view.job = key.job;
  const uint64_t halves[2] = {random_.next(), random_.next()};
  std::memcpy(view.incarnation.data(), halves, sizeof halves);
  view.epoch = 1;
  view.size = gathering.size;
  view.policy = gathering.policy;
  view.uid = gathering.uid;
  Member self{node_, {}};
  for (const LocalClaim& claim : claims_within(gathering)) {
    self.ranks.push_back(
        {claim.request.rank, claim.request.local_rank, claim.request.pid, claim.claim});
  }
  view.members.push_back(std::move(self));
  for (Member& member : others) view.members.push_back(std::move(member));
  sort_into_ring(&view.members);
  view.tuning = actions_->tuning_for(view, is_deterministic(gathering));

  install(view, key, true);
  Live& live = live_.at(view.incarnation);
  for (const Member& member : view.members) {
    if (member.node != node_) live.awaited.insert(member.node);
  }
  if (live.awaited.empty()) return run(live);
  tell_members(live, Propose{live.token, view}, "");
}

// Moves the local claims that the view names from the gathering into a live job.
void Membership::install(const View& view, const GatheringKey& key, bool proposer) {
  Live live;
  live.view = view;
  live.token = key.token;
  live.since = now_;
  live.proposer = proposer;
  live.explanation = "waits for all members to accept the view";
  std::vector<SessionId> sessions;
  Gathering& gathering = gatherings_.at(key);
  for (const RankInfo& info : view.members[*view.index_of(node_)].ranks) {
    const auto claim = std::find_if(gathering.local.begin(), gathering.local.end(),
                                    [&info](const LocalClaim& c) { return c.claim == info.claim; });
    sessions.push_back(claim->request.session);
    live.present.insert(claim->request.session);
    live.local.push_back(*claim);
  }
  // These claims are used up. What others claim under this name from now on is another life of the
  // job.
  if (view.epoch == 0) {
    gathering.local.clear();  // we are guests, all of us; the others who wait say so themselves
  } else {
    keep_beyond(&gathering);
  }
  if (gathering.local.empty() && gathering.remote.empty()) gatherings_.erase(key);
  live_.emplace(view.incarnation, std::move(live));
  actions_->install(view, sessions);
}

void Membership::on_propose(const std::string& from, const Propose& propose) {
  const View& view = propose.view;
  if (view.epoch == 0) return on_invitation(from, propose);
  if (view.closed) return on_missed(propose);
  std::string why;
  switch (fits(from, propose, &why)) {
    case Fit::kYes:
      install(view, {view.job, propose.token}, false);
      return send(from, Accept{view.incarnation});
    case Fit::kNever:
      return send(from, Reject{view.incarnation, why});
    case Fit::kStale:
      return send(from, Reject{view.incarnation, ""});
    case Fit::kNotYet:
      gatherings_.at({view.job, propose.token}).explanation = why;
      deferred_[view.incarnation] = {from, propose};
      return;
  }
}

// A claim went or a connection came: what was put off may be answered now.
void Membership::retry_deferred() {
  const auto waiting = std::exchange(deferred_, {});
  for (const auto& [id, entry] : waiting) on_propose(entry.first, entry.second);
}

// Whether this node can take part in the view as proposed: never, not since its claims changed, or
// not before it is connected to all members.
Membership::Fit Membership::fits(const std::string& from, const Propose& propose,
                                 std::string* why) const {
  const View& view = propose.view;
  const auto never = [&](const std::string& what) {
    *why = "job " + view.job + ": " + what;
    return Fit::kNever;
  };
  if (shut_down_) return never("node " + node_ + ": " + describe(*shut_down_));
  if (std::string fault = fault_of(view); !fault.empty()) return never(fault);
  const auto me = view.index_of(node_);
  if (!me) return never("node " + node_ + " is not in the proposed view");
  if (view.members.front().node != from) {
    return never("node " + from + " proposed a view although it does not host rank 0");
  }
  if (live_.count(view.incarnation) > 0) return never("proposed twice");
  const auto it = gatherings_.find({view.job, propose.token});
  if (it == gatherings_.end()) return Fit::kStale;
  const Gathering& gathering = it->second;
  const std::vector<RankInfo>& wanted = view.members[*me].ranks;
  if (!are_all_of(claims_within(gathering), wanted) || gathering.uid != view.uid ||
      parse_policy(gathering.policy) != parse_policy(view.policy) || gathering.size != view.size) {
    return Fit::kStale;
  }
  for (const Member& member : view.members) {
    if (member.node == node_ || peers_.count(member.node) > 0) continue;
    *why = "waits for node " + node_ + " to be connected to node " + member.node +
           "; check --peer on both";
    return Fit::kNotYet;
  }
  return Fit::kYes;
}

void Membership::on_accept(const std::string& from, const Accept& accept) {
  const auto it = live_.find(accept.incarnation);
  // Too late: nothing is known here of the life of this daemon that had proposed it.
  if (it == live_.end() || it->second.joining) return send(from, Reject{accept.incarnation, ""});
  Live& live = it->second;
  if (live.invited.count(from) > 0) return on_join_accept(live, from, accept);
  // It was away when that was told.
  if (live.failure)
    return send(from, JobFailed{accept.incarnation, live.view.epoch, *live.failure});
  if (!live.view.index_of(from) && live.change && live.change->last_commit()) {
    return send(from, *live.change->last_commit());  // the others went on without it
  }
  if (!live.proposer) return;
  live.awaited.erase(from);
  if (!live.awaited.empty()) return;
  if (live.state == JobState::kRunning) return say_done_if_over(accept.incarnation);
  if (live.state != JobState::kProposed) return;
  // Each answers once more when it has begun: until then we may not be done.
  for (const Member& member : live.view.members) {
    if (member.node != node_) live.awaited.insert(member.node);
  }
  tell_members(live, Commit{accept.incarnation}, "");
  run(live);
}

void Membership::on_reject(const std::string& from, const Reject& reject) {
  const auto waiting = deferred_.find(reject.incarnation);
  if (waiting != deferred_.end() && waiting->second.first == from) {
    const View& view = waiting->second.second.view;
    const GatheringKey key{view.job, waiting->second.second.token};
    deferred_.erase(waiting);
    if (gatherings_.count(key) == 0) return;
    if (!reject.reason.empty()) return fail_gathering(key, {Code::kAborted, reject.reason});
    // Whoever proposed had used up what it knew of our claims.
    return publish(key, gatherings_.at(key));
  }
  const auto it = live_.find(reject.incarnation);
  if (it != live_.end() && it->second.invited.erase(from) + it->second.joiners.erase(from) > 0) {
    return set_joiners(it->second);
  }
  if (it == live_.end() || it->second.state != JobState::kProposed) return;
  Live& live = it->second;
  if (live.joining) return return_to_gathering(reject.incarnation);
  const bool from_proposer = live.view.members.front().node == from;
  if (!live.proposer && !from_proposer) return;
  if (live.proposer) tell_members(live, reject, from);
  if (reject.reason.empty()) return return_to_gathering(reject.incarnation);
  refuse_proposed(reject.incarnation, {Code::kAborted, reject.reason});
}

void Membership::on_commit(const std::string& from, const Commit& commit) {
  const auto it = live_.find(commit.incarnation);
  if (it == live_.end()) {
    // Taken back because the proposer seemed to be lost: the others must not count on this node.
    Failure failure{Cause::kPeerLost, {}};
    failure.blame.node = node_;
    failure.blame.evidence = "its connection to node " + from + " broke while the job formed";
    return send(from, Left{commit.incarnation, failure, 1});
  }
  if (it->second.state != JobState::kProposed || it->second.joining) return;
  if (it->second.view.members.front().node != from) return;
  run(it->second);
  send(from, Accept{commit.incarnation});
}

void Membership::run(Live& live) {
  live.state = JobState::kRunning;
  const size_t nodes = live.view.members.size();
  live.explanation = "epoch 1: formed of " + std::to_string(live.view.size) +
                     (live.view.size == 1 ? " rank on " : " ranks on ") + std::to_string(nodes) +
                     (nodes == 1 ? " node" : " nodes");
  begin_changes(live);
  save(live);
  for (const SessionId session : live.present) actions_->admit(session, live.view);
  const GatheringKey key{live.view.job, live.token};
  retire_claims(key);
  // Who was lost meanwhile. This comes last: it may end the job.
  const JobId id = live.view.incarnation;
  const std::vector<LostRank> lost_ranks = live.lost;
  for (const auto& member : std::exchange(live.lost_members, {})) {
    with_change(id, [&](ViewChange& change) {
      change.lost(member.first, member.second, false, now_);
      if (peers_.count(member.first) > 0) change.found(member.first, now_);  // it came back since
    });
  }
  for (const LostRank& lost : lost_ranks) {
    const auto it = live_.find(id);
    if (it != live_.end()) lose_rank(it->second, lost.rank, lost.failure);
  }
  settle(key);
}

void Membership::retire_claims(const GatheringKey& key) {
  const auto it = gatherings_.find(key);
  publish(key, it == gatherings_.end() ? Gathering{} : it->second);
}

void Membership::return_to_gathering(const JobId& job) {
  auto node = live_.extract(job);
  Live& live = node.mapped();
  actions_->remove(job);
  const GatheringKey key{live.view.job, live.token};
  Gathering& gathering = gatherings_[key];
  if (gathering.local.empty()) {
    // As it was claimed: a job that they were to join may have another size by now.
    const JoinRequest& request = live.local.front().request;
    gathering.size = request.size;
    gathering.uid = request.uid;
    gathering.policy = request.policy;
    gathering.since = live.since;
  }
  gathering.withdrawn = job;
  for (const LocalClaim& claim : live.local) {
    if (live.joining) departed_.withdraw(job, claim.claim);
    if (live.present.count(claim.request.session) == 0) continue;
    gathering.local.push_back(claim);
    // Whoever still counts on what was accepted must not find it again: frames of the epoch that
    // it was to come in with may have been dropped meanwhile.
    if (live.joining) gathering.local.back().claim = random_.next();
  }
  publish(key, gathering);
  if (gathering.local.empty() && gathering.remote.empty()) {
    gatherings_.erase(key);
    return;
  }
  if (!fail_if_unfit(key)) settle(key);
}

// The proposer's clock decides for all: its own trainers have waited long enough.
void Membership::expire_proposals() {
  std::vector<JobId> late;
  for (const auto& [id, live] : live_) {
    if (live.state != JobState::kProposed || !live.proposer) continue;
    for (const LocalClaim& claim : live.local) {
      if (now_ >= claim.deadline) {
        late.push_back(id);
        break;
      }
    }
  }
  for (const JobId& id : late) {
    const Live& live = live_.at(id);
    std::string why = "job " + live.view.job + ": time ran out while forming; not accepted by:";
    for (const std::string& node : live.awaited) why += " " + node;
    const std::string unreachable = actions_->unreachable_peers();
    if (!unreachable.empty()) why += "; peers not connected: " + unreachable;
    tell_members(live, Reject{id, why}, "");
    refuse_proposed(id, {Code::kDeadlineExceeded, why});
  }
}

void Membership::refuse_proposed(const JobId& job, const Status& why) {
  auto node = live_.extract(job);
  for (const SessionId session : node.mapped().present) actions_->refuse(session, why);
  actions_->remove(job);
  retire_claims({node.mapped().view.job, node.mapped().token});
}

}  // namespace gradring::core
