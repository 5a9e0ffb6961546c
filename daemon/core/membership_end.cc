// Ending: a failed part ends the job everywhere, by flooding; a job that all have left is
// forgotten.

#include <algorithm>

#include "daemon/core/membership.h"
#include "daemon/core/membership_hands.h"

namespace gradring::core {
namespace {

// With ranks that are not those of which `node` said something in this epoch: it took long.
bool has_come_since(const View& view, const std::string& node, uint64_t epoch) {
  const auto member = view.index_of(node);
  if (epoch == 0 || !member) return false;
  return std::ranges::any_of(view.members[*member].ranks,
                             [epoch](const RankInfo& info) { return info.since > epoch; });
}

}  // namespace

// The first cause that a node hears is the one it tells. Everybody passes it on once, so the news
// arrives even where the direct way to its source is cut.
void Membership::fail_job(Live& live, const Failure& cause, const std::string& heard_from,
                          Tell tell) {
  if (live.failure || live.state == JobState::kEnded) return;
  const JobId id = live.view.incarnation;
  // Of a closed view all know already that it has failed, and why.
  const bool told = live.view.closed.has_value();
  const Failure failure = told ? *live.view.closed : cause;
  live.failure = failure;
  const bool admitted = told || live.state == JobState::kRunning;
  live.state = JobState::kFailed;
  if (!told) live.explanation = describe(failure);
  remember_failed(live, failure);
  if (live.change && live.change->last_commit()) departed_.remember(*live.change->last_commit());
  if (tell == Tell::kAll) tell_members(live, JobFailed{id, live.view.epoch, failure}, heard_from);
  if (tell == Tell::kLeft) tell_members(live, Left{id, failure, live.view.epoch}, heard_from);
  actions_->fail_engine(id, failure);
  for (const SessionId session : live.present) {
    if (told) continue;
    if (admitted) {
      actions_->close(session, id, failure);
    } else {
      actions_->refuse(session,
                       {Code::kAborted, "job " + live.view.job + ": " + describe(failure)});
    }
  }
  if (!admitted) {
    live.present.clear();
    retire_claims({live.view.job, live.token});
  }
  fail_unfit_within(id);
  settle({live.view.job, live.token});  // nobody is taken in any more
}

void Membership::on_job_failed(const std::string& from, const JobFailed& message) {
  const auto it = live_.find(message.incarnation);
  if (it != live_.end() && it->second.joining) return return_to_gathering(message.incarnation);
  if (it != live_.end()) {
    // Who was left out may not know it yet, and speaks of what the others have mended without it.
    const View& view = it->second.view;
    if (message.epoch < view.epoch && !view.index_of(from)) return;
    fail_job(it->second, message.failure, from);
    return end_if_over(message.incarnation);
  }
  // A proposal that we have not answered yet.
  const auto waiting = deferred_.find(message.incarnation);
  if (waiting != deferred_.end()) {
    const GatheringKey key{waiting->second.second.view.job, waiting->second.second.token};
    deferred_.erase(waiting);
    if (gatherings_.count(key) > 0) {
      fail_gathering(key, {Code::kAborted, "job " + key.job + ": " + describe(message.failure)});
    }
    return;
  }
  end_withdrawn(message.incarnation, message.failure);
}

// Some members had begun a job when its proposal came back to us, and it has failed there.
void Membership::end_withdrawn(const JobId& job, const std::optional<Failure>& failure) {
  if (!failure) return;
  for (const auto& [key, gathering] : gatherings_) {
    if (gathering.withdrawn != job || gathering.local.empty()) continue;
    return fail_gathering(key, {Code::kAborted, "job " + key.job + ": " + describe(*failure)});
  }
}

void Membership::engine_failed(const JobId& job, const Failure& failure) {
  const auto it = live_.find(job);
  if (it == live_.end()) return;
  if (it->second.joining) {
    send(it->second.inviter, Reject{job, ""});
    return refuse_proposed(
        job, {Code::kUnavailable, "job " + it->second.view.job + ": " + describe(failure)});
  }
  fail_job(it->second, failure, "");
  end_if_over(job);
}

// The session has left, or is lost.
void Membership::gone(const JobId& job, SessionId session) {
  const auto it = live_.find(job);
  if (it == live_.end()) return;
  it->second.present.erase(session);
  save(it->second);
  end_if_over(job);
}

void Membership::engine_drained(const JobId& job) {
  const auto it = live_.find(job);
  if (it == live_.end()) return;
  it->second.drained = true;
  if (it->second.last_rank_lost != 0) want_change(job, true);
  say_done_if_over(job);
}

// The proposer is needed until all have heard its commit: one that loses it earlier gives the job
// up, and then it must fail for those who have begun.
void Membership::say_done_if_over(const JobId& job) {
  const auto it = live_.find(job);
  if (it == live_.end()) return;  // the view change that was wanted last has ended it
  Live& live = it->second;
  if (live.joining) return;
  if (live.drained && live.awaited.empty() && !live.failure && live.done.insert(node_).second) {
    tell_members(live, done_of(live), "");
  }
  end_if_over(job);
}

JobDone Membership::done_of(const Live& live) {
  return {live.view.incarnation, live.lost.empty(), live.view.epoch};
}

// To one that has heard it before it knew that ranks of ours had come into this epoch.
void Membership::say_done_again(const std::string& to, const Live* live, uint64_t epoch) {
  if (live == nullptr || live->view.epoch != epoch || live->done.count(node_) == 0) return;
  send(to, done_of(*live));
}

void Membership::on_job_done(const std::string& from, const JobDone& done) {
  const auto it = live_.find(done.incarnation);
  if (it == live_.end()) return;
  Live& live = it->second;
  if (has_come_since(live.view, from, done.epoch)) return;
  live.done.insert(from);
  if (done.in_good_order) live.left.insert(from);
  save(live);
  // What we said before it was connected is lost, and this may be the end of the job here.
  const bool unheard = peers_.count(from) == 0;
  if (unheard && live.done.count(node_) > 0) send(from, done_of(live));
  end_if_over(done.incarnation);
  fail_unfit_within(done.incarnation);
}

void Membership::on_left(const std::string& from, const Left& left) {
  const auto it = live_.find(left.incarnation);
  if (it == live_.end()) return;
  if (it->second.joining) return return_to_gathering(left.incarnation);
  if (!it->second.change || it->second.failure) return;
  if (has_come_since(it->second.view, from, left.epoch)) return;
  if (it->second.joiners.erase(from) > 0) set_joiners(it->second);
  with_change(left.incarnation,
              [&](ViewChange& change) { change.lost(from, left.failure, true, now_); });
}

// A failed job ends here when our own trainers are out of it: nobody can want anything of us. One
// that did not fail ends when every member is done, since until then its slices may still pass
// through this node.
void Membership::end_if_over(const JobId& job) {
  const auto it = live_.find(job);
  if (it == live_.end() || it->second.held || !it->second.present.empty()) return;
  Live& live = it->second;
  const auto is_done = [&live](const Member& member) { return live.done.count(member.node) > 0; };
  const auto& members = live.view.members;
  // Nobody is left who could want our copies or vote with us, and word that they may go is lost.
  const bool others_done = std::all_of(members.begin(), members.end(), [&](const Member& member) {
    return member.node == node_ || is_done(member);
  });
  const bool cut_off = std::any_of(members.begin(), members.end(), [&](const Member& member) {
    return member.node != node_ && peers_.count(member.node) == 0;
  });
  if (others_done && cut_off && live.change && !live.failure && live.done.insert(node_).second) {
    tell_members(live, done_of(live), "");
  }
  const bool all_done = std::all_of(members.begin(), members.end(), is_done);
  if (!live.failure && !all_done) return;
  remember(live);
  actions_->remove(job);
  const GatheringKey key{live.view.job, live.token};
  live_.erase(it);
  settle(key);  // who waited to be taken in may be a job of their own
}

void Membership::remember(const Live& live) {
  // Who was left out, or lost, may hear only now that the others have ended without it.
  if (live.change && live.change->last_commit()) departed_.remember(*live.change->last_commit());
  if (live.failure) departed_.remember(live.view.incarnation, *live.failure);
  const bool failed = live.failure || live.view.closed;
  const JobState state = failed ? JobState::kFailed : JobState::kEnded;
  history_.push_back({live.view.job,
                      live.view.incarnation,
                      state,
                      live.view.epoch,
                      live.size_at_end.value_or(live.view.size),
                      live.view.uid,
                      live.view.policy,
                      live.since,
                      {},
                      failed ? live.explanation : "all ranks have left",
                      true});
  if (history_.size() > options_.history) history_.erase(history_.begin());
}

void Membership::has_a_job(uint32_t uid) {
  several_uids_ = several_uids_ || first_uid_.value_or(uid) != uid;
  first_uid_ = first_uid_.value_or(uid);
}

}  // namespace gradring::core
