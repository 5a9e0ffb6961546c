// Who comes to a job that runs and cannot be taken in is told why: else it would hear, when its
// time is up, of ranks that are missing.

#include <map>
#include <utility>
#include <vector>

#include "daemon/core/membership.h"
#include "proto/policy.h"

namespace gradring::core {
namespace {

// Empty: it could be one of the job's ranks.
std::string why_not(const View& view, const Policy& policy, uint32_t rank) {
  if (policy.max != 0 && rank >= policy.max) {
    return "and rank " + std::to_string(rank) + " is beyond its policy '" + view.policy + "'";
  }
  if (!view.has(rank)) return "";
  return "and rank " + std::to_string(rank) + " of it lives: pid " +
         std::to_string(view.info_of(rank).pid) + " on node " +
         view.members[view.host_of(rank)].node +
         "; end that one, or choose another name for the job";
}

std::string why_not(const View& view, uint32_t uid, const std::string& policy,
                    const std::vector<uint32_t>& ranks) {
  const std::string runs = "it runs already, ";
  if (uid != view.uid) {
    return runs + "and belongs to uid " + std::to_string(view.uid) + "; uid " +
           std::to_string(uid) + " must choose another name";
  }
  const auto its_policy = parse_policy(view.policy);
  if (parse_policy(policy) != its_policy) {
    return runs + "with policy '" + view.policy + "' instead of '" + policy + "'";
  }
  for (const uint32_t rank : ranks) {
    if (const std::string why = why_not(view, its_policy.value_or(Policy{}), rank); !why.empty())
      return runs + why;
  }
  return "";
}

}  // namespace

// Of the job that runs, here or where somebody has told us of it, under the name of those who wait;
// empty if nothing is in their way.
std::string Membership::why_not_welcome(const GatheringKey& key, const Gathering& gathering) {
  const Live* const live = grows_with(key);
  if (live == nullptr) return gathering.unwelcome.second;
  std::vector<uint32_t> ranks;
  for (const LocalClaim& claim : gathering.local) ranks.push_back(claim.request.rank);
  return why_not(live->view, gathering.uid, gathering.policy, ranks);
}

// The one that invites tells it, to nodes that are not in the job, when it changes.
void Membership::tell_unwelcome(const GatheringKey& key) {
  std::map<std::string, std::string> now;
  const Live* const live = grows_with(key);
  const auto gathering = gatherings_.find(key);
  if (live != nullptr && gathering != gatherings_.end() &&
      live->view.members[live->view.lowest()].node == node_) {
    for (const auto& [node, claims] : gathering->second.remote) {
      std::vector<uint32_t> ranks;
      for (const RankInfo& info : claims.ranks) ranks.push_back(info.rank);
      const std::string why = why_not(live->view, claims.uid, claims.policy, ranks);
      if (!why.empty() && peers_.count(node) > 0 && !live->view.index_of(node)) now[node] = why;
    }
  }
  if (now.empty() && unwelcome_.count(key) == 0) return;
  const std::map<std::string, std::string> before = std::exchange(unwelcome_[key], now);
  if (now.empty()) unwelcome_.erase(key);
  for (const auto& [node, why] : now) {
    const auto told = before.find(node);
    if (told == before.end() || told->second != why) send(node, Unwelcome{key.job, key.token, why});
  }
  for (const auto& [node, why] : before) {
    if (now.count(node) == 0) send(node, Unwelcome{key.job, key.token, ""});
  }
}

void Membership::on_unwelcome(const std::string& from, const Unwelcome& unwelcome) {
  const auto it = gatherings_.find({unwelcome.job, unwelcome.token});
  if (it == gatherings_.end() || it->second.local.empty()) return;
  Gathering& gathering = it->second;
  if (!unwelcome.why.empty()) {
    gathering.unwelcome = {from, unwelcome.why};
  } else if (gathering.unwelcome.first == from) {
    gathering.unwelcome = {};
  }
}

}  // namespace gradring::core
