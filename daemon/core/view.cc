#include "daemon/core/view.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "proto/check.h"

namespace gradring::core {

std::optional<uint32_t> View::index_of(const std::string& node) const {
  for (uint32_t i = 0; i < members.size(); ++i) {
    if (members[i].node == node) return i;
  }
  return std::nullopt;
}

bool View::has(uint32_t rank) const {
  return std::any_of(members.begin(), members.end(), [rank](const Member& member) {
    return std::any_of(member.ranks.begin(), member.ranks.end(),
                       [rank](const RankInfo& info) { return info.rank == rank; });
  });
}

uint32_t View::host_of(uint32_t rank) const {
  for (uint32_t i = 0; i < members.size(); ++i) {
    for (const RankInfo& info : members[i].ranks) {
      if (info.rank == rank) return i;
    }
  }
  GRADRING_CHECK(false, "rank outside the view");
  return 0;
}

const RankInfo& View::info_of(uint32_t rank) const {
  const Member& member = members[host_of(rank)];
  return *std::find_if(member.ranks.begin(), member.ranks.end(),
                       [rank](const RankInfo& info) { return info.rank == rank; });
}

uint32_t View::lowest() const {
  const auto least =
      std::min_element(members.begin(), members.end(),
                       [](const Member& a, const Member& b) { return a.node < b.node; });
  return static_cast<uint32_t>(least - members.begin());
}

uint32_t View::oldest_rank() const {
  const RankInfo* oldest = nullptr;
  for (const Member& member : members) {
    for (const RankInfo& info : member.ranks) {
      if (oldest == nullptr || info.since < oldest->since ||
          (info.since == oldest->since && info.rank < oldest->rank)) {
        oldest = &info;
      }
    }
  }
  return oldest == nullptr ? 0 : oldest->rank;
}

bool is_quorum(const View& view, const std::vector<std::string>& nodes) {
  // Asked at each vote, of thousands.
  if (2 * nodes.size() < view.members.size()) return false;
  std::vector<std::string_view> sorted(nodes.begin(), nodes.end());
  std::sort(sorted.begin(), sorted.end());
  const auto votes_here = [&sorted](const Member& member) {
    return std::binary_search(sorted.begin(), sorted.end(), std::string_view(member.node));
  };
  const auto votes =
      static_cast<size_t>(std::count_if(view.members.begin(), view.members.end(), votes_here));
  if (2 * votes != view.members.size()) return 2 * votes > view.members.size();
  return votes > 0 && votes_here(view.members[view.lowest()]);
}

void sort_into_ring(std::vector<Member>* members) {
  const auto by_rank = [](const RankInfo& a, const RankInfo& b) { return a.rank < b.rank; };
  for (Member& member : *members) std::sort(member.ranks.begin(), member.ranks.end(), by_rank);
  std::sort(members->begin(), members->end(), [](const Member& a, const Member& b) {
    if (a.ranks.empty() || b.ranks.empty()) {
      return a.ranks.empty() == b.ranks.empty() ? a.node < b.node : b.ranks.empty();
    }
    return a.ranks.front().rank < b.ranks.front().rank;
  });
}

std::string fault_of(const View& view) {
  if (view.size == 0 && !view.closed) return "the view has no ranks";
  std::vector<uint32_t> seen;
  std::set<std::string_view> nodes;  // there may be thousands
  for (const Member& member : view.members) {
    if (member.ranks.empty() && !view.closed) return "node " + member.node + " has no ranks";
    if (!nodes.insert(member.node).second) return "node " + member.node + " is listed twice";
    for (size_t k = 0; k < member.ranks.size(); ++k) {
      const uint32_t rank = member.ranks[k].rank;
      if (view.epoch == 1 && rank >= view.size) {
        return "rank " + std::to_string(rank) + " is outside the job's size " +
               std::to_string(view.size);
      }
      if (k > 0 && member.ranks[k - 1].rank > rank) {
        return "the ranks of node " + member.node + " are out of order";
      }
      seen.push_back(rank);
    }
  }
  std::sort(seen.begin(), seen.end());
  const auto twice = std::adjacent_find(seen.begin(), seen.end());
  if (twice != seen.end()) return "rank " + std::to_string(*twice) + " is there twice";
  if (seen.size() != view.size) {
    return std::to_string(seen.size()) + " of " + std::to_string(view.size) + " ranks are there";
  }
  return {};
}

}  // namespace gradring::core
