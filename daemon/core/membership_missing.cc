// Which ranks a job that gathers waits for.

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/membership.h"
#include "proto/policy.h"

namespace gradring::core {
namespace {

// " 1 3 4 and 20 more", of `count` ranks that begin with these.
std::string listed(const std::vector<uint32_t>& ranks, size_t count) {
  constexpr size_t kShown = 16;  // a line that people still read
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) text += " " + std::to_string(ranks[i]);
  if (count > kShown) text += " and " + std::to_string(count - kShown) + " more";
  return text;
}

}  // namespace

std::string Membership::who(uint32_t rank, const std::string& node, int64_t pid) {
  return "rank " + std::to_string(rank) + " (node " + node + ", pid " + std::to_string(pid) + ")";
}

std::vector<bool> Membership::present_ranks(const Gathering& g) {
  std::vector<bool> present(g.size, false);
  const auto see = [&](uint32_t rank) {
    if (rank < g.size) present[rank] = true;
  };
  for (const LocalClaim& claim : g.local) see(claim.request.rank);
  for (const auto& [node, claims] : g.remote) {
    for (const RankInfo& info : claims.ranks) see(info.rank);
  }
  return present;
}

MissingRanks Membership::missing_ranks(const Gathering& g) {
  const std::vector<bool> present = present_ranks(g);
  MissingRanks missing;
  missing.count = static_cast<uint32_t>(std::ranges::count(present, false));
  const size_t named = std::min<size_t>(missing.count, kMissingNamed);
  for (uint32_t rank = 0; missing.first.size() < named; ++rank) {
    if (!present[rank]) missing.first.push_back(rank);
  }
  return missing;
}

// All ranks of a launch wait about as long, and who is told first goes: those who are told next
// would name it beside the ranks that never came.
std::string Membership::say_missing(const Gathering& g) {
  const std::vector<bool> present = present_ranks(g);
  std::vector<uint32_t> never, went;
  for (uint32_t rank = 0; rank < g.size; ++rank) {
    if (!present[rank]) (g.went.count(rank) > 0 ? went : never).push_back(rank);
  }
  std::string text = never.empty() ? "" : "missing ranks:" + listed(never, never.size());
  if (went.empty()) return text;
  return text + (text.empty() ? "" : "; ") +
         "ranks that came and went:" + listed(went, went.size());
}

// Of a group it is known who its ranks are, and where: which one never calls is the question.
std::string Membership::describe_missing(const GatheringKey& key, const Gathering& g) const {
  const MissingRanks missing = missing_ranks(g);
  const auto& within = g.local.front().request.within;
  const auto outer = within ? live_.find(within->job) : live_.end();
  constexpr size_t kShown = 4;
  if (outer == live_.end() || outer->second.view.uid != g.uid || missing.first.size() > kShown) {
    const std::string these = missing.count == 0 ? "" : ":" + listed(missing.first, missing.count);
    return these + of_other_launch(key, g);
  }
  std::string text;
  const View& view = outer->second.view;
  for (const uint32_t place : missing.first) {
    if (place >= within->ranks.size()) continue;
    for (const Member& member : view.members) {
      for (const RankInfo& info : member.ranks) {
        if (info.rank != within->ranks[place]) continue;
        text += (text.empty() ? ": " : ", ") + who(info.rank, member.node, info.pid);
      }
    }
  }
  return text.empty() ? text : text + " of job " + view.job;
}

// A rank that is missing here may wait for us as well, under a token that differs, or be in a job
// of that name that began without us.
std::string Membership::of_other_launch(const GatheringKey& key, const Gathering& g) const {
  const std::vector<bool> present = present_ranks(g);
  const auto lacks = [&](uint32_t rank) { return rank < g.size && !present[rank]; };
  const auto told = [&](uint32_t rank, const std::string& node, int64_t pid,
                        const std::string& where, bool of_token) {
    return "; " + who(rank, node, pid) + where +
           (of_token ? " with another token: was it started together with the others?"
                     : ", and takes nobody in: has this rank been started twice?");
  };
  for (auto it = gatherings_.lower_bound({key.job, ""});
       it != gatherings_.end() && it->first.job == key.job; ++it) {
    if (it->first.token == key.token) continue;
    for (const LocalClaim& claim : it->second.local) {
      const JoinRequest& r = claim.request;
      if (r.uid == g.uid && lacks(r.rank)) return told(r.rank, node_, r.pid, " is there", true);
    }
    for (const auto& [node, claims] : it->second.remote) {
      if (claims.uid != g.uid) continue;
      for (const RankInfo& info : claims.ranks) {
        if (lacks(info.rank)) return told(info.rank, node, info.pid, " is there", true);
      }
    }
  }
  for (const auto& [id, live] : live_) {
    const bool other = live.token != key.token;
    const bool takes_in = !other && parse_policy(live.view.policy).value_or(Policy{}).elastic;
    if (live.view.job != key.job || live.view.uid != g.uid || takes_in) continue;
    if (live.state != JobState::kRunning || live.joining) continue;
    for (const Member& member : live.view.members) {
      for (const RankInfo& info : member.ranks) {
        if (!lacks(info.rank)) continue;
        return told(info.rank, member.node, info.pid, " is in a job of that name that runs already",
                    other);
      }
    }
  }
  return "";
}

void Membership::note_who_went(const std::string& node, const Claims& now, Gathering* gathering) {
  const auto before = gathering->remote.find(node);
  if (before == gathering->remote.end() || gathering->local.empty()) return;  // nobody to be told
  std::set<uint32_t> stay;
  for (const RankInfo& info : now.ranks) stay.insert(info.rank);
  for (const RankInfo& info : before->second.ranks) {
    if (stay.count(info.rank) == 0 && info.rank < gathering->size)
      gathering->went.insert(info.rank);
  }
}

}  // namespace gradring::core
