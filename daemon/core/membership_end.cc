// Ending: a failed part ends the job everywhere, by flooding; a job that all have left is
// forgotten.

#include <algorithm>

#include "daemon/core/membership.h"

namespace gradring::core {

// The first cause that a node hears is the one it tells. Everybody passes it on once, so the news
// arrives even where the direct way to its source is cut.
void Membership::fail_job(Live& live, const Failure& failure, const std::string& heard_from) {
  if (live.failure || live.state == JobState::kEnded) return;
  const JobId id = live.view.incarnation;
  live.failure = failure;
  const bool admitted = live.state == JobState::kRunning;
  live.state = JobState::kFailed;
  live.explanation = describe(failure);
  tell_members(live, JobFailed{id, live.view.epoch, failure}, heard_from);
  actions_->fail_engine(id, failure);
  for (const SessionId session : live.present) {
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
}

void Membership::on_job_failed(const std::string& from, const JobFailed& message) {
  const auto it = live_.find(message.incarnation);
  if (it != live_.end()) {
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
  // A job that some members had begun when its proposal came back to us: its rank 0 is lost.
  for (auto& [key, gathering] : gatherings_) {
    if (gathering.withdrawn != message.incarnation || gathering.local.empty()) continue;
    const GatheringKey copy = key;
    return fail_gathering(copy,
                          {Code::kAborted, "job " + copy.job + ": " + describe(message.failure)});
  }
}

void Membership::engine_failed(const JobId& job, const Failure& failure) {
  const auto it = live_.find(job);
  if (it == live_.end()) return;
  fail_job(it->second, failure, "");
  end_if_over(job);
}

// The session has left, or is lost.
void Membership::gone(const JobId& job, SessionId session) {
  const auto it = live_.find(job);
  if (it == live_.end()) return;
  it->second.present.erase(session);
  end_if_over(job);
}

void Membership::engine_drained(const JobId& job) {
  const auto it = live_.find(job);
  if (it == live_.end()) return;
  it->second.drained = true;
  say_done_if_over(job);
}

// The proposer is needed until all have heard its commit: one that loses it earlier gives the job
// up, and then it must fail for those who have begun.
void Membership::say_done_if_over(const JobId& job) {
  Live& live = live_.at(job);
  if (live.drained && live.awaited.empty() && !live.failure && live.done.insert(node_).second) {
    tell_members(live, JobDone{job}, "");
  }
  end_if_over(job);
}

void Membership::on_job_done(const std::string& from, const JobDone& done) {
  const auto it = live_.find(done.incarnation);
  if (it == live_.end()) return;
  it->second.done.insert(from);
  end_if_over(done.incarnation);
}

// A failed job ends here when our own trainers are out of it: nobody can want anything of us. One
// that did not fail ends when every member is done, since until then its slices may still pass
// through this node.
void Membership::end_if_over(const JobId& job) {
  const auto it = live_.find(job);
  if (it == live_.end() || !it->second.present.empty()) return;
  Live& live = it->second;
  const bool all_done =
      std::all_of(live.view.members.begin(), live.view.members.end(),
                  [&live](const Member& member) { return live.done.count(member.node) > 0; });
  if (!live.failure && !all_done) return;
  remember(live);
  actions_->remove(job);
  live_.erase(it);
}

void Membership::remember(const Live& live) {
  const JobState state = live.failure ? JobState::kFailed : JobState::kEnded;
  history_.push_back({live.view.job,
                      live.view.incarnation,
                      state,
                      live.view.epoch,
                      live.view.size,
                      live.view.uid,
                      live.view.policy,
                      live.since,
                      {},
                      live.failure ? live.explanation : "all ranks have left"});
  if (history_.size() > options_.history) history_.erase(history_.begin());
}

}  // namespace gradring::core
