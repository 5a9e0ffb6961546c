// Jobs within a job: a group that gathers would wait in vain for a rank that its job has lost.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/membership.h"
#include "proto/policy.h"

namespace gradring::core {
namespace {

// Of a group that failed, so many members tell whoever missed it: one may not be connected to that
// node, and another have forgotten.
constexpr ptrdiff_t kTellMissed = 3;

}  // namespace

// Of a job that this node is not in, or no more, nothing is known. One of another uid is nobody's
// business.
Status Membership::fit_within(const JoinRequest& request) const {
  if (!request.within) return {};
  const Within& within = *request.within;
  const auto found = live_.find(within.job);
  if (found == live_.end() || found->second.view.uid != request.uid) return {};
  const Live& outer = found->second;
  const View& view = outer.view;
  const auto unfit = [&](const std::string& what, const std::string& why) {
    return Status(Code::kAborted, "job " + request.job + " cannot come about: " + what +
                                      (why.empty() ? "" : "; " + why));
  };
  if (outer.failure || view.closed)
    return unfit("job " + view.job + " has failed", outer.explanation);
  // Both may be large, and whoever leaves the job has us look again.
  std::unordered_map<uint32_t, std::pair<const Member*, const RankInfo*>> there;
  for (const Member& member : view.members) {
    for (const RankInfo& info : member.ranks) there[info.rank] = {&member, &info};
  }
  for (const uint32_t rank : within.ranks) {
    const auto place = there.find(rank);
    const bool lost = place == there.end() || place->second.second->since > within.grown;
    if (!lost && !has_left(outer, *place->second.first, *place->second.second)) continue;
    const std::string who = "rank " + std::to_string(rank) + " of job " + view.job;
    return lost ? unfit(who + " is gone", outer.explanation) : unfit(who + " has left it", "");
  }
  return {};
}

// In good order, as far as it is known here: of another node, when all its ranks have.
bool Membership::has_left(const Live& live, const Member& member, const RankInfo& info) const {
  if (member.node != node_) return live.left.count(member.node) > 0;
  const bool lost = std::any_of(live.lost.begin(), live.lost.end(),
                                [&](const LostRank& one) { return one.rank == info.rank; });
  const bool present = std::any_of(live.local.begin(), live.local.end(), [&](const LocalClaim& c) {
    return c.claim == info.claim && live.present.count(c.request.session) > 0;
  });
  return !lost && !present;
}

bool Membership::fail_if_unfit(const GatheringKey& key) {
  for (const LocalClaim& claim : gatherings_.at(key).local) {
    const Status why = fit_within(claim.request);
    if (why.ok()) continue;
    fail_gathering(key, why);
    return true;
  }
  return false;
}

// After ranks have left the job or it has lost some, or failed.
void Membership::fail_unfit_within(const JobId& job) {
  std::vector<GatheringKey> within;
  for (const auto& [key, gathering] : gatherings_) {
    const auto& local = gathering.local;
    const bool inner = std::any_of(local.begin(), local.end(), [&job](const LocalClaim& claim) {
      return claim.request.within && claim.request.within->job == job;
    });
    if (inner) within.push_back(key);
  }
  for (const GatheringKey& key : within) {
    if (gatherings_.count(key) > 0) fail_if_unfit(key);
  }
}

// Also where its record, which does not say whether it is within another, brought it back.
void Membership::remember_failed(const Live& live, const Failure& failure) {
  const bool elastic = parse_policy(live.view.policy).value_or(Policy{}).elastic;
  if (!elastic) departed_.remember(live.token, live.view, failure, now_);
}

// Its ranks make a group once, and all try the next one when it has failed. A daemon that restarts
// forgets what forms, so it may have missed that this one came about, and claims ranks in it anew,
// some perhaps long after others.
void Membership::tell_missed(const GatheringKey& key) {
  const auto gathering = gatherings_.find(key);
  if (gathering == gatherings_.end() || !gathering->second.local.empty()) return;
  // Whoever missed an older one waits for it no more. What it claims is the next of that name, as
  // pairs of ranks have it.
  const Time since = now_ - options_.form_deadline;
  Departed::Failed* const failed = departed_.failed(key.job, key.token, since);
  if (failed == nullptr) return;
  for (const auto& entry : gathering->second.remote) {
    const std::string& node = entry.first;
    const auto before = std::ranges::count_if(failed->view.members, [&](const Member& member) {
      return member.node != node && member.node < node_;
    });
    if (before >= kTellMissed || peers_.count(node) == 0) continue;
    std::set<uint32_t>& told = failed->told[node];
    bool is_news = false;
    for (const RankInfo& info : entry.second.ranks) is_news |= told.insert(info.rank).second;
    if (is_news) send(node, Propose{key.token, failed->view});
  }
}

// What it knows of itself it has told its ranks.
void Membership::on_missed(const Propose& failed) {
  const View& view = failed.view;
  const GatheringKey key{view.job, failed.token};
  const auto it = gatherings_.find(key);
  if (it == gatherings_.end() || live_.count(view.incarnation) > 0 ||
      departed_.failed(view.incarnation)) {
    return;
  }
  const Status why{Code::kAborted, "job " + key.job + ": " + describe(*view.closed)};
  std::vector<SessionId> missed;
  for (const LocalClaim& claim : it->second.local) {
    const bool within = claim.request.within.has_value();
    if (within && departed_.is_news(view.incarnation, claim.request.rank))
      missed.push_back(claim.request.session);
  }
  for (const SessionId session : missed) {
    actions_->refuse(session, why);
    drop_claim(key, session);
  }
}

}  // namespace gradring::core
