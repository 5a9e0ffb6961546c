// Gathering: every node tells all others which ranks of a job it hosts, and all look for
// contradictions.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "daemon/core/membership.h"
#include "proto/policy.h"

namespace gradring::core {
namespace {

// The texts are compared first, as a rule they are the same.
bool differ_in_policy(const std::string& one, const std::string& other) {
  return one != other && parse_policy(one) != parse_policy(other);
}

}  // namespace

Status Membership::check_join(const JoinRequest& r) const {
  if (shut_down_) return {Code::kUnavailable, "node " + node_ + ": " + describe(*shut_down_)};
  if (r.job.empty()) return {Code::kInvalidArgument, "the job has no name"};
  if (r.size == 0 || r.size > options_.job_size_max) {
    return {Code::kInvalidArgument, "job " + r.job + ": size " + std::to_string(r.size) +
                                        " is not between 1 and " +
                                        std::to_string(options_.job_size_max)};
  }
  const auto policy = parse_policy(r.policy);
  if (!policy) {
    return {Code::kInvalidArgument,
            "job " + r.job + ": policy '" + r.policy +
                "' is not known; use 'fail', or 'elastic', with min=A and max=B as you like"};
  }
  if (policy->elastic && (r.size < policy->min || (policy->max != 0 && r.size > policy->max))) {
    return {Code::kInvalidArgument, "job " + r.job + ": size " + std::to_string(r.size) +
                                        " does not fit its policy, " + describe(*policy)};
  }
  if (r.rank >= std::max(r.size, policy->max)) {
    return {Code::kInvalidArgument, "job " + r.job + ": rank " + std::to_string(r.rank) +
                                        " is outside the size " + std::to_string(r.size)};
  }
  for (const auto& [key, gathering] : gatherings_) {
    for (const LocalClaim& claim : gathering.local) {
      if (claim.request.session == r.session) {
        return {Code::kInvalidArgument, "this session already waits for job " + key.job};
      }
    }
  }
  for (const auto& [id, live] : live_) {
    if (live.present.count(r.session) > 0) {
      return {Code::kInvalidArgument, "this session is already in job " + live.view.job};
    }
  }
  // A name belongs to the uid that uses it first, as long as it is in use.
  const auto taken = [&](uint32_t uid) {
    return Status(Code::kPermissionDenied, "job " + r.job + " belongs to uid " +
                                               std::to_string(uid) + "; uid " +
                                               std::to_string(r.uid) + " must choose another name");
  };
  for (const auto& [key, gathering] : gatherings_) {
    if (key.job == r.job && !gathering.local.empty() && gathering.uid != r.uid) {
      return taken(gathering.uid);
    }
  }
  for (const auto& [id, live] : live_) {
    if (live.view.job == r.job && !live.present.empty() && live.view.uid != r.uid) {
      return taken(live.view.uid);
    }
  }
  return fit_within(r);
}

Status Membership::join(const JoinRequest& request, Time now) {
  now_ = std::max(now_, now);
  if (Status refused = check_join(request); !refused.ok()) return refused;
  const GatheringKey key{request.job, request.token};
  take_back_guests(key);
  const auto existing = gatherings_.find(key);
  if (existing == gatherings_.end() || existing->second.local.empty()) {
    size_t jobs = live_.size(), of_uid = 0;
    for (const auto& [id, live] : live_) of_uid += live.view.uid == request.uid ? 1 : 0;
    for (const auto& [other, g] : gatherings_) {
      if (g.local.empty()) continue;
      ++jobs;
      of_uid += g.uid == request.uid ? 1 : 0;
    }
    if (jobs >= options_.jobs_max) {
      return {Code::kResourceExhausted,
              "node " + node_ + " already has " + std::to_string(jobs) +
                  " jobs (max-jobs); wait for one to end or raise the limit"};
    }
    // Or one user could keep out all others, by jobs that never fill.
    if (request.uid != 0 && of_uid >= (options_.jobs_max + 1) / 2) {
      return {Code::kResourceExhausted, "node " + node_ + " already has " + std::to_string(of_uid) +
                                            " jobs of uid " + std::to_string(request.uid) +
                                            ", half of max-jobs; wait for one to end or raise "
                                            "the limit"};
    }
  }
  if (existing != gatherings_.end() && !existing->second.local.empty()) {
    const Gathering& g = existing->second;
    if (g.size != request.size) {
      return {Code::kInvalidArgument,
              "job " + key.job + ": " + who(request.rank, node_, request.pid) + " says size " +
                  std::to_string(request.size) + ", but " +
                  who(g.local.front().request.rank, node_, g.local.front().request.pid) +
                  " said size " + std::to_string(g.size)};
    }
    if (differ_in_policy(g.policy, request.policy)) {
      return {Code::kInvalidArgument,
              "job " + key.job + ": " + who(request.rank, node_, request.pid) + " says policy " +
                  request.policy + ", but " +
                  who(g.local.front().request.rank, node_, g.local.front().request.pid) +
                  " said policy " + g.policy};
    }
    for (const LocalClaim& claim : g.local) {
      if (claim.request.rank == request.rank) {
        return {Code::kInvalidArgument, "job " + key.job + ": " +
                                            who(request.rank, node_, request.pid) +
                                            " claims a rank that pid " +
                                            std::to_string(claim.request.pid) + " already holds"};
      }
    }
  }
  has_a_job(request.uid);
  Gathering& gathering = gatherings_[key];
  if (gathering.local.empty()) {
    gathering.size = request.size;
    gathering.uid = request.uid;
    gathering.policy = request.policy;
    gathering.since = now;
    gathering.went.clear();
  }
  const Time most = std::max(options_.form_deadline, options_.form_deadline_most);
  const Time timeout =
      request.timeout > 0 ? std::min(request.timeout, most) : options_.form_deadline;
  gathering.local.push_back({request, random_.next(), now + timeout});
  publish(key, gathering);
  settle(key);
  return {};
}

void Membership::publish(const GatheringKey& key, const Gathering& gathering) {
  Claims claims;
  claims.job = key.job;
  claims.token = key.token;
  claims.revision = ++revision_;
  claims.uid = gathering.uid;
  claims.size = gathering.size;
  claims.policy = gathering.policy;
  for (const LocalClaim& claim : gathering.local) {
    const JoinRequest& r = claim.request;
    claims.deterministic = claims.deterministic || r.deterministic;
    claims.ranks.push_back({r.rank, r.local_rank, r.pid, claim.claim});
  }
  if (claims.ranks.empty() && said_.count(key) == 0) {
    unsaid_.erase(key);  // came and went, and nobody else knows
    return;
  }
  unsaid_.insert_or_assign(key, std::move(claims));
  if (now_ >= say_at_) say_claims();
}

void Membership::say_claims() {
  if (unsaid_.empty()) return;
  for (const auto& [key, claims] : std::exchange(unsaid_, {})) {
    for (const std::string& peer : peers_) actions_->send(peer, claims);
    if (claims.ranks.empty()) {
      said_.erase(key);
    } else {
      said_.insert(key);
    }
  }
  say_at_ = now_ + options_.claims_pause;
}

// To each peer claims come before whatever was sent after them.
void Membership::send(const std::string& node, const JobMessage& message) {
  say_claims();
  actions_->send(node, message);
}

void Membership::on_claims(const std::string& from, const Claims& claims, Time now) {
  const GatheringKey key{claims.job, claims.token};
  if (claims.ranks.empty()) {
    const auto it = gatherings_.find(key);
    if (it == gatherings_.end()) return;
    note_who_went(from, claims, &it->second);
    it->second.remote.erase(from);
    if (it->second.local.empty() && it->second.remote.empty()) gatherings_.erase(it);
    return settle(key);
  }
  Gathering& gathering = gatherings_[key];
  if (gathering.since == 0) gathering.since = now;
  const auto known = gathering.remote.find(from);
  if (known != gathering.remote.end() && known->second.revision >= claims.revision) return;
  note_who_went(from, claims, &gathering);
  gathering.remote[from] = claims;
  settle(key);
}

void Membership::settle_all() {
  std::vector<GatheringKey> keys;
  for (const auto& [key, gathering] : gatherings_) keys.push_back(key);
  for (const GatheringKey& key : keys) settle(key);
}

// After any change: contradictions end the gathering, completeness leads to a proposal.
void Membership::settle(const GatheringKey& key) {
  tell_unwelcome(key);
  tell_missed(key);
  const auto it = gatherings_.find(key);
  if (it == gatherings_.end()) return invite_anew(key);
  if (Live* live = grows_with(key)) return invite(*live);
  if (it->second.local.empty()) return;
  const std::string conflict = conflict_of(key, it->second);
  if (!conflict.empty()) return fail_gathering(key, {Code::kInvalidArgument, conflict});
  propose_if_complete(key);
}

// Looked at with each claim that comes, of thousands: so whether there is one, before what it is.
bool Membership::in_conflict(const Gathering& g) const {
  const bool elastic = parse_policy(g.policy).value_or(Policy{}).elastic;
  std::vector<bool> held(g.size, false);
  std::set<uint32_t> beyond;  // ranks of an elastic job
  const auto clashes = [&](uint32_t rank) {
    if (rank >= g.size) return !elastic || !beyond.insert(rank).second;
    if (held[rank]) return true;
    held[rank] = true;
    return false;
  };
  for (const LocalClaim& claim : g.local) {
    if (claim.request.size != g.size || clashes(claim.request.rank)) return true;
    if (differ_in_policy(claim.request.policy, g.policy)) return true;
  }
  for (const auto& [node, claims] : g.remote) {
    if (claims.size != g.size || claims.uid != g.uid) return true;
    if (differ_in_policy(claims.policy, g.policy)) return true;
    for (const RankInfo& info : claims.ranks) {
      if (clashes(info.rank)) return true;
    }
  }
  return false;
}

std::string Membership::conflict_of(const GatheringKey& key, const Gathering& g) const {
  if (!in_conflict(g)) return {};
  const LocalClaim& ours = g.local.front();
  const std::string us = who(ours.request.rank, node_, ours.request.pid);
  std::map<uint32_t, std::string> holders;
  const auto same = [&](const std::string& first, const std::string& second) {
    return "job " + key.job + ": " + first + " and " + second +
           " claim the same rank; is another launch of the same name running?";
  };
  for (const LocalClaim& claim : g.local) {
    const std::string holder = who(claim.request.rank, node_, claim.request.pid);
    if (claim.request.size != g.size) {
      return "job " + key.job + ": " + us + " says size " + std::to_string(g.size) + ", but " +
             holder + " says size " + std::to_string(claim.request.size);
    }
    if (differ_in_policy(claim.request.policy, g.policy)) {
      return "job " + key.job + ": " + us + " says policy " + g.policy + ", but " + holder +
             " says policy " + claim.request.policy;
    }
    const auto [first, fresh] = holders.emplace(claim.request.rank, holder);
    if (!fresh) return same(first->second, holder);
  }
  for (const auto& [node, claims] : g.remote) {
    const std::string them = who(claims.ranks.front().rank, node, claims.ranks.front().pid);
    const auto differ = [&](const std::string& what, const std::string& a, const std::string& b) {
      return "job " + key.job + ": " + us + " says " + what + " " + a + ", but " + them + " says " +
             what + " " + b;
    };
    if (claims.size != g.size) {
      return differ("size", std::to_string(g.size), std::to_string(claims.size));
    }
    if (differ_in_policy(claims.policy, g.policy)) return differ("policy", g.policy, claims.policy);
    if (claims.uid != g.uid) {
      return differ("owner uid", std::to_string(g.uid), std::to_string(claims.uid));
    }
    for (const RankInfo& info : claims.ranks) {
      if (info.rank >= g.size && !parse_policy(g.policy).value_or(Policy{}).elastic)
        return "job " + key.job + ": " + who(info.rank, node, info.pid) + " is outside the size " +
               std::to_string(g.size);
      const auto [holder, fresh] = holders.emplace(info.rank, who(info.rank, node, info.pid));
      if (!fresh) return same(holder->second, who(info.rank, node, info.pid));
    }
  }
  return {};
}

// All local trainers are refused, and the others are told that nothing is claimed here any more.
// What they claim stays known: they see the same contradiction and end as well.
void Membership::fail_gathering(const GatheringKey& failed, const Status& why) {
  const GatheringKey key = failed;  // may live in the entry that is erased
  Gathering& gathering = gatherings_.at(key);
  for (const LocalClaim& claim : gathering.local) actions_->refuse(claim.request.session, why);
  gathering.local.clear();
  publish(key, gathering);
  if (gathering.remote.empty()) gatherings_.erase(key);
  invite_anew(key);
  retry_deferred();
}

void Membership::drop_claim(const GatheringKey& key, SessionId session) {
  const GatheringKey copy = key;  // may live in the entry that is erased
  const auto it = gatherings_.find(copy);
  if (it == gatherings_.end()) return;  // it ended with another
  Gathering& gathering = it->second;
  std::erase_if(gathering.local, [&](const LocalClaim& claim) {
    if (claim.request.session != session) return false;
    gathering.went.insert(claim.request.rank);
    return true;
  });
  publish(copy, gathering);
  if (gathering.local.empty() && gathering.remote.empty()) gatherings_.erase(copy);
  retry_deferred();
  settle(copy);
}

}  // namespace gradring::core
