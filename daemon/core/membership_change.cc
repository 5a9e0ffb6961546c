// Losses, and the views that follow from them. Each job that runs has a ViewChange of its own.

#include <algorithm>
#include <utility>

#include "daemon/core/membership.h"
#include "daemon/core/membership_hands.h"
#include "daemon/core/planted.h"
#include "proto/policy.h"

namespace gradring::core {
namespace {

// What a node's last rank had submitted before it died still counts, if the others submit it soon.
constexpr Time kLastWill = 2 * kSecond;

}  // namespace

void Membership::begin_changes(Live& live) {
  live.hands = std::make_unique<Hands>(this, live.view.incarnation);
  live.change = std::make_unique<ViewChange>(node_, live.view, options_.change, live.hands.get());
  for (const std::string& node : awaited_) live.change->away(node);
}

// In order, one when the other has returned, also where the first leads to the second.
void Membership::carry_out(const JobId& job) {
  for (;;) {
    const auto it = live_.find(job);
    if (it == live_.end() || it->second.held || it->second.decisions.empty()) return;
    const Decision decision = std::move(it->second.decisions.front());
    it->second.decisions.pop_front();
    hold(job, decision);
  }
}

// What the act leads to, up to the end of the job, waits until it has returned: it has the job in
// its hands.
void Membership::hold(const JobId& job, const Decision& act) {
  Live& live = live_.at(job);
  live.held = true;
  act(live);
  live.held = false;
  end_if_over(job);
  carry_out(job);
}

void Membership::leave_excluded(Live& live, const Proposal& proposal) {
  Failure failure{Cause::kExcluded, {}};
  failure.blame.node = node_;
  // Of a later view than the next it does not say why this node is not in it.
  const bool at_once = proposal.view.epoch <= live.view.epoch + 1;
  failure.blame.evidence = (at_once ? "the others go on without it; "
                                    : "the others went on without it, unheard; by now ") +
                           proposal.view.explanation;
  fail_job(live, failure, "", Tell::kNobody);
}

void Membership::want_change(const JobId& job, bool at_once) {
  with_change(job, [&](ViewChange& change) { change.want(at_once, now_); });
}

bool Membership::tune(const JobId& job, const Tuning& tuning) {
  const auto it = live_.find(job);
  if (it == live_.end() || !it->second.change || it->second.failure) return false;
  const Live& live = it->second;
  const bool whole = live.state == JobState::kRunning && !live.view.closed && live.lost.empty() &&
                     !live.returned && awaited_.empty() && live.present.size() == live.local.size();
  const bool busy = live.held || live.change->wanted() || live.change->frozen();
  if (!whole || busy) return false;
  for (const Member& member : live.view.members) {
    if (live.done.count(member.node) > 0) return false;
    if (member.node != node_ && peers_.count(member.node) == 0) return false;
  }
  with_change(job, [&](ViewChange& change) { change.want_tuning(tuning, now_); });
  return true;
}

void Membership::lane_lost(const std::string& node, const std::string& why) {
  if (planted(Bug::kLostLaneIgnored)) return;
  std::vector<JobId> jobs;
  for (const auto& [id, live] : live_) {
    if (live.change && !live.failure) jobs.push_back(id);
  }
  for (const JobId& id : jobs) {
    with_change(id, [&](ViewChange& change) { change.lane_lost(node, why, now_); });
  }
}

void Membership::lose_rank(Live& live, uint32_t rank, const Failure& failure) {
  const JobId id = live.view.incarnation;
  const bool known = std::any_of(live.lost.begin(), live.lost.end(),
                                 [rank](const LostRank& lost) { return lost.rank == rank; });
  if (!known) live.lost.push_back({rank, failure});
  save(live);
  actions_->leave_engine(id, rank, failure);
  const bool elastic = parse_policy(live.view.policy).value_or(Policy{}).elastic;
  const auto me = live.view.index_of(node_);
  if (elastic && me && live.lost.size() >= live.view.members[*me].ranks.size()) {
    if (live.drained) return want_change(id, true);
    // In another life of the daemon the epoch ends anyway; there is nothing to wait for.
    if (!live.returned) live.last_rank_lost = now_;
    return;
  }
  want_change(id, true);
}

void Membership::engine_absent(const JobId& job, const Absence& absence) {
  const auto it = live_.find(job);
  if (it == live_.end() || !it->second.change || it->second.failure) return;
  Live& live = it->second;
  if (!absence.rank) {
    return with_change(
        job, [&](ViewChange& change) { change.lost(absence.node, absence.failure, false, now_); });
  }
  const bool known = std::any_of(live.lost.begin(), live.lost.end(),
                                 [&](const LostRank& lost) { return lost.rank == *absence.rank; });
  if (!known) live.lost.push_back({*absence.rank, absence.failure});
  if (absence.unfinished) live.last_rank_lost = 0;  // what it left behind cannot complete
  // One that is dead has asked already, but perhaps not in this view.
  if (live.last_rank_lost == 0) want_change(job, true);
}

void Membership::engine_frozen(const JobId& job, uint64_t epoch, Report report) {
  const auto it = live_.find(job);
  if (it == live_.end() || !it->second.change) return;
  Live& live = it->second;
  const auto me = live.view.index_of(node_);
  if (!me) return;
  report.node = node_;
  // What the last rank left behind still counts, although others want a view for reasons of theirs.
  const bool last_will = live.last_rank_lost != 0 && !live.drained;
  const size_t known = last_will ? 0 : live.hands->lost_when_frozen();
  report.lost.assign(live.lost.begin(),
                     live.lost.begin() + static_cast<ptrdiff_t>(std::min(known, live.lost.size())));
  for (const RankInfo& info : live.view.members[*me].ranks) {
    const bool lost = std::any_of(report.lost.begin(), report.lost.end(),
                                  [&](const LostRank& l) { return l.rank == info.rank; });
    if (!lost) report.ranks.push_back(info);
  }
  report.reachable.assign(peers_.begin(), peers_.end());
  report.reachable.insert(report.reachable.end(), awaited_.begin(), awaited_.end());
  report.wants_out = report.ranks.empty() && live.drained;
  with_change(job, [&](ViewChange& change) { change.on_report(epoch, std::move(report), now_); });
}

void Membership::engine_condemned(const JobId& job, uint64_t epoch) {
  const auto it = live_.find(job);
  if (it == live_.end() || it->second.view.epoch != epoch) return;
  want_change(job, true);
}

void Membership::engine_behind(const JobId& job, const std::string& node) {
  const auto it = live_.find(job);
  if (it == live_.end() || it->second.failure) return;
  send(node, change::Ask{job, it->second.view.epoch});
}

void Membership::engine_ahead(const JobId& job, const std::string& node, uint64_t its_epoch) {
  with_change(job, [&](ViewChange& change) {
    change.on_message(node, change::Ask{job, its_epoch}, now_);
  });
}

// This node is a member of the next view.
void Membership::adopt(Live& live, const Proposal& proposal) {
  const JobId id = live.view.incarnation;
  if (proposal.view.closed && !live.view.closed) live.size_at_end = live.view.size;
  live.view = proposal.view;
  live.explanation = live.view.explanation;
  const Time last_rank_lost = std::exchange(live.last_rank_lost, 0);
  live.drained = false;
  live.done.erase(node_);  // to be said again: it may have been lost with a connection
  live.awaited.clear();    // who has reported has begun, and nobody else is in it any more
  live.invited.clear();
  live.joiners.clear();
  // Who has been done with the job may have come back to it.
  for (const Member& member : live.view.members) {
    const bool enters =
        std::any_of(member.ranks.begin(), member.ranks.end(),
                    [&](const RankInfo& info) { return info.since == live.view.epoch; });
    if (!enters) continue;
    live.done.erase(member.node);
    live.left.erase(member.node);
    // And may be gone again: then it has said so before we knew that it comes.
    if (member.node != node_) send(member.node, change::Ask{id, live.view.epoch});
  }
  const std::vector<RankInfo>& mine = live.view.members[*live.view.index_of(node_)].ranks;
  const auto has = [&mine](uint32_t rank, uint64_t claim) {
    return std::any_of(mine.begin(), mine.end(), [&](const RankInfo& info) {
      return info.rank == rank && info.claim == claim;
    });
  };
  std::erase_if(live.local, [&](const LocalClaim& c) { return !has(c.request.rank, c.claim); });
  std::erase_if(live.lost, [&](const LostRank& lost) {
    return std::none_of(live.local.begin(), live.local.end(),
                        [&](const LocalClaim& c) { return c.request.rank == lost.rank; });
  });

  // Those of ours that came in; one that is gone again is lost to the view at once.
  std::vector<SessionId> sessions;
  std::vector<SessionId> fresh;
  std::vector<LostRank> gone;
  const auto gathering = gatherings_.find({live.view.job, live.token});
  for (const RankInfo& info : mine) {
    auto claim = std::find_if(live.local.begin(), live.local.end(),
                              [&info](const LocalClaim& c) { return c.claim == info.claim; });
    if (claim == live.local.end() && gathering != gatherings_.end()) {
      auto& waiting = gathering->second.local;
      const auto newcomer =
          std::find_if(waiting.begin(), waiting.end(),
                       [&info](const LocalClaim& c) { return c.claim == info.claim; });
      if (newcomer != waiting.end()) {
        fresh.push_back(newcomer->request.session);
        live.present.insert(newcomer->request.session);
        live.local.push_back(*newcomer);
        waiting.erase(newcomer);
        claim = std::prev(live.local.end());
      }
    }
    if (claim != live.local.end()) {
      sessions.push_back(claim->request.session);
      continue;
    }
    sessions.push_back(0);
    Failure failure{Cause::kTrainerDied, {}};
    failure.blame = {info.rank, node_, info.pid, "", "went away while it was taken in"};
    gone.push_back({info.rank, failure});
  }
  save(live);
  actions_->adopt_engine(id, proposal, sessions);

  const bool failed = live.state == JobState::kFailed;  // and all of ours know it
  if (live.view.closed && !failed) {
    live.state = JobState::kFailed;
    remember_failed(live, *live.view.closed);
    for (const SessionId session : live.present) {
      actions_->close(session, id, *live.view.closed);
    }
  } else if (!failed) {
    for (const SessionId session : live.present) {
      const bool entered = std::find(fresh.begin(), fresh.end(), session) != fresh.end();
      if (entered) {
        actions_->admit(session, live.view);
      } else {
        actions_->view_changed(session, live.view);
      }
    }
  }
  for (const LostRank& lost : gone) lose_rank(live, lost.rank, lost.failure);
  if (last_rank_lost != 0 && live.lost.size() >= mine.size()) {
    live.last_rank_lost = last_rank_lost;  // its last will goes on
  } else if (gone.empty() && !live.lost.empty()) {
    want_change(id, true);
  }
  if (!fresh.empty()) retire_claims({live.view.job, live.token});
  lose_unconnected(id);
  live.decisions.emplace_back([this, id](Live& remaining) {
    fail_unfit_within(id);
    const GatheringKey key{remaining.view.job, remaining.token};
    tell_unwelcome(key);
    invite(remaining);
    if (remaining.view.closed) settle(key);
  });
}

// Who is in the view is connected to this node as the others believe, but this node may know
// better.
void Membership::lose_unconnected(const JobId& job) {
  const View view = live_.at(job).view;  // may change meanwhile
  for (uint32_t i = 0; i < view.members.size(); ++i) {
    const std::string& node = view.members[i].node;
    if (node == node_ || peers_.count(node) > 0 || awaited_.count(node) > 0) continue;
    Failure failure{Cause::kPeerLost, {}};
    failure.blame.node = node;
    failure.blame.evidence = "its connection broke while the view was agreed on";
    if (live_.at(job).done.count(node) > 0) {
      actions_->member_gone(job, i, failure);
    } else {
      with_change(job, [&](ViewChange& change) { change.lost(node, failure, false, now_); });
    }
  }
}

// V6: of a job that we are out of, to whoever speaks of an older epoch than the last that we know.
const change::Commit* Membership::retell(const std::string& from, const JobId& job,
                                         uint64_t epoch) {
  const change::Commit* const known = departed_.commit(job);
  if (known == nullptr || epoch >= known->epoch) return nullptr;
  if (!planted(Bug::kNobodyRetells)) send(from, *known);
  return known;
}

// Whether a message about the end of `epoch` is for a view change of ours; else it is answered.
bool Membership::takes_part(const std::string& from, Live* live, const JobId& job, uint64_t epoch) {
  if (live != nullptr && live->joining) {
    // Who is behind the view that left us out knows of no later one; others perhaps that we are in.
    if (retell(from, job, epoch) == nullptr) send(from, change::Ask{job, 0});
    return false;
  }
  // Somebody has begun: so the view was committed, whoever was to say so.
  if (live != nullptr && live->state == JobState::kProposed) {
    run(*live);
    const auto it = live_.find(job);
    live = it == live_.end() ? nullptr : &it->second;
  }
  const bool over = live == nullptr || live->failure.has_value();
  if (!over) return true;
  if (planted(Bug::kExcludedSilent)) return false;
  const change::Commit* const news = retell(from, job, epoch);
  // A view that has this node, which left since, is not the whole news.
  if (news == nullptr || news->proposal.view.index_of(node_)) {
    Failure failure{Cause::kTrainerLeft, {}};
    failure.blame.node = node_;
    failure.blame.evidence = "the job has ended there";
    const Failure* const why = live != nullptr ? &*live->failure : departed_.failure(job);
    send(from, Left{job, why != nullptr ? *why : failure, news != nullptr ? news->epoch : epoch});
  }
  return false;
}

template <typename Message>
void Membership::on_change(const std::string& from, const Message& message) {
  const auto it = live_.find(message.incarnation);
  Live* live = it == live_.end() ? nullptr : &it->second;
  if constexpr (std::is_same_v<Message, change::Ask>) {
    if (message.epoch == 0) return on_guest_asks(from, live, message.incarnation);
    say_done_again(from, live, message.epoch);
  }
  if constexpr (std::is_same_v<Message, change::Commit>) {
    if (live != nullptr && live->joining) return on_join_commit(*live, message);
    if (live == nullptr || live->failure) {
      // Taken in too late, or after it gave up: nobody here wants that any more.
      const change::Commit* const known = departed_.commit(message.incarnation);
      if (known != nullptr && known->epoch >= message.epoch) return;
      // Whoever is invited once more must not take an older one for its own.
      departed_.remember(message);
      if (!message.proposal.view.index_of(node_)) {
        return end_withdrawn(message.incarnation, message.proposal.view.closed);
      }
      if (live == nullptr) return decline(message, "it was gone before it was taken in");
      const Left left{message.incarnation, *live->failure, message.epoch};
      for (const Member& member : message.proposal.view.members) {
        if (member.node != node_ && member.node != from) send(member.node, left);
      }
      return send(from, left);
    }
    if (live->state == JobState::kProposed) run(*live);
  } else if (!takes_part(from, live, message.incarnation, message.epoch)) {
    return;
  }
  with_change(message.incarnation,
              [&](ViewChange& change) { change.on_message(from, message, now_); });
}

template void Membership::on_change(const std::string&, const change::Prepare&);
template void Membership::on_change(const std::string&, const change::Promise&);
template void Membership::on_change(const std::string&, const change::Accept&);
template void Membership::on_change(const std::string&, const change::Accepted&);
template void Membership::on_change(const std::string&, const change::Commit&);
template void Membership::on_change(const std::string&, const change::Refuse&);
template void Membership::on_change(const std::string&, const change::Ask&);

void Membership::peer_suspect(const std::string& node, bool suspected) {
  for (auto& [id, live] : live_) {
    if (live.change) live.change->suspect(node, suspected);
  }
}

void Membership::tick_changes() {
  std::vector<JobId> running;
  for (const auto& [id, live] : live_) {
    if (live.change && !live.failure) running.push_back(id);
  }
  for (const JobId& id : running) {
    const auto it = live_.find(id);
    if (it == live_.end()) continue;
    Live& live = it->second;
    if (live.last_rank_lost != 0 && now_ - live.last_rank_lost >= kLastWill) {
      live.last_rank_lost = 0;
      want_change(id, true);
    }
    with_change(id, [this](ViewChange& change) { change.tick(now_); });
  }
}

Time Membership::next_deadline() const {
  Time next = 0;
  const auto consider = [&next](Time due) {
    if (due != 0 && (next == 0 || due < next)) next = due;
  };
  for (const auto& [id, live] : live_) {
    if (!live.change || live.failure) continue;
    consider(live.change->next_deadline());
    if (live.last_rank_lost != 0) consider(live.last_rank_lost + kLastWill);
  }
  if (!unsaid_.empty()) consider(say_at_);
  return next;
}

}  // namespace gradring::core
