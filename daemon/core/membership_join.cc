// Growing: ranks that come to a job that runs. Its lowest member invites their nodes, which make
// their data plane and accept; they come in where all trainers stand at a join point.

#include <algorithm>
#include <utility>

#include "daemon/core/membership.h"
#include "daemon/core/membership_hands.h"
#include "proto/policy.h"

namespace gradring::core {
namespace {

constexpr Time kAskAgain = 1 * kSecond;

}  // namespace

bool Membership::are_all_of(const std::vector<LocalClaim>& claims,
                            const std::vector<RankInfo>& ranks) {
  return claims.size() == ranks.size() &&
         std::all_of(ranks.begin(), ranks.end(), [&claims](const RankInfo& info) {
           return std::any_of(claims.begin(), claims.end(), [&info](const LocalClaim& c) {
             return c.claim == info.claim && c.request.rank == info.rank;
           });
         });
}

// The job that runs here under this name and could take in what is claimed.
Membership::Live* Membership::grows_with(const GatheringKey& key) {
  for (auto& [id, live] : live_) {
    if (live.view.job == key.job && live.token == key.token && live.change && !live.failure &&
        !live.view.closed && parse_policy(live.view.policy).value_or(Policy{}).elastic) {
      return &live;
    }
  }
  return nullptr;
}

// Those that the job has room for and does not have.
std::vector<RankInfo> Membership::welcome_ranks(const Live& live,
                                                const std::vector<RankInfo>& ranks) const {
  const Policy policy = parse_policy(live.view.policy).value_or(Policy{});
  std::vector<RankInfo> welcome;
  for (const RankInfo& info : ranks) {
    if (live.view.has(info.rank)) continue;
    if (policy.max != 0 && info.rank >= policy.max) continue;
    welcome.push_back(info);
  }
  return welcome;
}

void Membership::invite(Live& live) {
  if (live.view.closed || !live.change || live.failure) return;
  if (live.view.members[live.view.lowest()].node != node_) return;
  const GatheringKey key{live.view.job, live.token};
  if (grows_with(key) != &live) return;
  const auto it = gatherings_.find(key);
  if (it == gatherings_.end()) {  // whoever waited has gone
    live.joiners.clear();
    return set_joiners(live);
  }
  const Gathering& gathering = it->second;
  const auto fits = [&](uint32_t uid, const std::string& policy) {
    return uid == live.view.uid && parse_policy(policy) == parse_policy(live.view.policy);
  };
  std::map<std::string, Member> guests;
  for (const auto& [node, claims] : gathering.remote) {
    if (!fits(claims.uid, claims.policy) || peers_.count(node) == 0) continue;
    const std::vector<RankInfo> ranks = welcome_ranks(live, claims.ranks);
    if (!ranks.empty()) guests[node] = {node, ranks};
  }
  if (!gathering.local.empty() && fits(gathering.uid, gathering.policy)) {
    std::vector<RankInfo> ranks;
    for (const LocalClaim& c : gathering.local) {
      ranks.push_back({c.request.rank, c.request.local_rank, c.request.pid, c.claim});
    }
    ranks = welcome_ranks(live, ranks);
    if (!ranks.empty()) guests[node_] = {node_, ranks};
  }
  // Two of one number: the first is welcome, the other waits.
  std::set<uint32_t> taken;
  for (auto& [node, guest] : guests) {
    std::erase_if(guest.ranks,
                  [&](const RankInfo& info) { return !taken.insert(info.rank).second; });
  }
  std::erase_if(guests, [](const auto& entry) { return entry.second.ranks.empty(); });

  std::erase_if(live.joiners, [&](const auto& entry) {
    const auto guest = guests.find(entry.first);
    return guest == guests.end() || guest->second != entry.second;
  });
  for (const auto& [node, guest] : guests) {
    if (live.joiners.count(node) > 0) continue;
    if (node == node_) {
      live.joiners[node] = guest;
      continue;
    }
    View tentative = live.view;
    tentative.epoch = 0;
    if (const auto known = tentative.index_of(node)) {
      auto& ranks = tentative.members[*known].ranks;
      ranks.insert(ranks.end(), guest.ranks.begin(), guest.ranks.end());
    } else {
      tentative.members.push_back(guest);
    }
    tentative.size += static_cast<uint32_t>(guest.ranks.size());
    sort_into_ring(&tentative.members);
    live.invited.insert(node);
    send(node, Propose{live.token, tentative, live.view.epoch});
  }
  set_joiners(live);
}

void Membership::set_joiners(Live& live) {
  if (!live.change) return;
  std::vector<Member> joiners;
  for (const auto& [node, joiner] : live.joiners) joiners.push_back(joiner);
  live.change->set_joiners(joiners);
  actions_->set_grows(live.view.incarnation, !joiners.empty());
}

void Membership::on_join_accept(Live& live, const std::string& from, const Accept& accept) {
  // Of an earlier epoch: since then its node may have left the job, and with that have given up
  // what it accepted with. The invitation of this epoch is under way.
  if (accept.invited_in != 0 && accept.invited_in != live.view.epoch) return;
  live.invited.erase(from);
  const auto it = gatherings_.find({live.view.job, live.token});
  if (it == gatherings_.end()) return;
  const auto claims = it->second.remote.find(from);
  if (claims == it->second.remote.end()) return;
  std::vector<RankInfo> ranks = welcome_ranks(live, claims->second.ranks);
  // Somebody else may have come with one of them since.
  std::erase_if(ranks, [&](const RankInfo& info) {
    return std::ranges::any_of(live.joiners, [&](const auto& joiner) {
      return joiner.first != from &&
             std::ranges::any_of(joiner.second.ranks,
                                 [&](const RankInfo& other) { return other.rank == info.rank; });
    });
  });
  live.joiners.erase(from);
  if (!ranks.empty()) live.joiners[from] = {from, ranks};
  set_joiners(live);
}

// Those who wait may be others than those who were to come in.
void Membership::invite_anew(const GatheringKey& key) {
  if (Live* live = grows_with(key); live != nullptr && !live->joiners.empty()) invite(*live);
}

// Ranks of one node come in together: while some of them wait to be taken in, another may claim.
void Membership::take_back_guests(const GatheringKey& key) {
  for (const auto& [id, live] : live_) {
    if (!live.joining || live.view.job != key.job || live.token != key.token) continue;
    return return_to_gathering(JobId(id));
  }
}

void Membership::engine_at_join_point(const JobId& job) {
  with_change(job, [this](ViewChange& change) { change.want_growth(now_); });
}

// ---- the guest's side ----

void Membership::on_invitation(const std::string& from, const Propose& propose) {
  const View& view = propose.view;
  std::string why;
  switch (fits_join(from, propose, &why)) {
    case Fit::kYes:
      break;
    case Fit::kNever:
    case Fit::kStale:
      return send(from, Reject{view.incarnation, ""});
    case Fit::kNotYet: {
      gatherings_.at({view.job, propose.token}).explanation = why;
      deferred_[view.incarnation] = {from, propose};
      return;
    }
  }
  const auto known = live_.find(view.incarnation);
  if (known == live_.end()) {
    install(view, {view.job, propose.token}, false);
    Live& live = live_.at(view.incarnation);
    live.joining = true;
    live.inviter = from;
    live.ask_at = now_ + kAskAgain;
    live.explanation = "waits for the running job to reach a join point";
  } else if (known->second.joining) {
    known->second.inviter = from;
  } else if (!share_ranks(known->second.view, view, node_)) {
    // Our part of before is not in the job any more, as we are yet to hear.
    return send(from, change::Ask{view.incarnation, known->second.view.epoch});
  }
  send(from, Accept{view.incarnation, propose.invited_in});
}

Membership::Fit Membership::fits_join(const std::string& from, const Propose& propose,
                                      std::string* why) const {
  const View& view = propose.view;
  if (shut_down_ || !fault_of(view).empty() || !view.index_of(from)) return Fit::kNever;
  const auto me = view.index_of(node_);
  const auto known = live_.find(view.incarnation);
  if (me && known != live_.end() && known->second.joining) {
    return are_all_of(known->second.local, view.members[*me].ranks) ? Fit::kYes : Fit::kStale;
  }
  const auto it = gatherings_.find({view.job, propose.token});
  if (!me || it == gatherings_.end()) return Fit::kStale;
  const auto live = live_.find(view.incarnation);
  if (live != live_.end() && live->second.failure) return Fit::kStale;
  // All that we claim must be in it, and all of it that is not in the job already must be ours.
  size_t claimed = 0;
  for (const RankInfo& info : view.members[*me].ranks) {
    const bool ours =
        std::any_of(it->second.local.begin(), it->second.local.end(), [&info](const LocalClaim& c) {
          return c.claim == info.claim && c.request.rank == info.rank;
        });
    const bool in_job = live != live_.end() && live->second.view.has(info.rank);
    if (!ours && !in_job) return Fit::kStale;
    claimed += ours ? 1 : 0;
  }
  if (claimed == 0 || (live == live_.end() && claimed != it->second.local.size())) {
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

void Membership::on_join_commit(Live& live, const change::Commit& commit) {
  const JobId id = live.view.incarnation;
  const View& view = commit.proposal.view;
  const auto me = view.index_of(node_);
  const change::Commit* const last = departed_.commit(id);
  if (!me || (last != nullptr && last->epoch >= commit.epoch)) return;  // of old
  if (!are_all_of(live.local, view.members[*me].ranks)) {
    // It counts on ranks that are no more, or that have come back since with others.
    return_to_gathering(id);
    return decline(commit, "its ranks changed while it was taken in");
  }
  live.joining = false;
  live.state = JobState::kRunning;
  live.view = view;
  live.explanation = view.explanation;
  const std::vector<SessionId> sessions = sessions_of(live);
  begin_changes(live);
  AcceptorRecord entered;
  entered.epoch = commit.epoch;
  entered.last_commit = commit;
  live.change->restore(entered);
  save(live);
  actions_->adopt_engine(id, commit.proposal, sessions);
  for (const SessionId session : live.present) actions_->admit(session, view);
  retire_claims({view.job, live.token});
  lose_unconnected(id);
}

// The ranks that it counts on are no more, or went back to claim anew. They leave, but the view is
// decided: where the others are too few without this node, they need its vote on going on (rule
// R2). It has one if it certainly has not voted in that view before, as an earlier life of this
// daemon may have.
void Membership::decline(const change::Commit& commit, const std::string& evidence) {
  JobRecord record;
  record.view = commit.proposal.view;
  record.since = now_;
  record.acceptor.epoch = commit.epoch;
  record.acceptor.last_commit = commit;
  Failure failure{Cause::kTrainerLeft, {}};
  failure.blame.node = node_;
  failure.blame.evidence = evidence;
  for (const Member& member : record.view.members) {
    if (member.node != node_) send(member.node, Left{commit.incarnation, failure, commit.epoch});
  }
  const auto me = record.view.index_of(node_);
  if (me && departed_.withdrew(commit.incarnation, record.view.members[*me].ranks)) {
    bear_witness(record, failure, now_);
  }
}

// A guest that is still expected hears nothing; one that has come in and does not know it is told
// again.
void Membership::on_guest_asks(const std::string& from, const Live* live, const JobId& job) {
  if (live != nullptr && live->change && !live->failure) {
    const auto& commit = live->change->last_commit();
    if (commit && live->view.index_of(from)) return send(from, *commit);
    if (live->invited.count(from) > 0 || live->joiners.count(from) > 0) return;
  }
  send(from, Reject{job, ""});
}

// The one that invited us may be gone, and nobody else know of it.
void Membership::ask_if_joining() {
  std::vector<JobId> late;
  for (auto& [id, live] : live_) {
    if (!live.joining) continue;
    if (std::any_of(live.local.begin(), live.local.end(),
                    [this](const LocalClaim& c) { return now_ >= c.deadline; })) {
      late.push_back(id);
    } else if (now_ >= live.ask_at) {
      live.ask_at = now_ + kAskAgain;
      send(live.inviter, change::Ask{id, 0});
    }
  }
  for (const JobId& id : late) {
    const Live& live = live_.at(id);
    send(live.inviter, Reject{id, ""});
    refuse_proposed(id,
                    {Code::kDeadlineExceeded,
                     "job " + live.view.job +
                         " runs, but did not reach a join point in time; its trainers must call "
                         "gradring_join_point for others to come in"});
  }
}

}  // namespace gradring::core
