#include "daemon/core/view.h"

#include <algorithm>

#include "proto/check.h"

namespace gradring::core {

std::optional<uint32_t> View::index_of(const std::string& node) const {
  for (uint32_t i = 0; i < members.size(); ++i) {
    if (members[i].node == node) return i;
  }
  return std::nullopt;
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

void sort_into_ring(std::vector<Member>* members) {
  const auto by_rank = [](const RankInfo& a, const RankInfo& b) { return a.rank < b.rank; };
  for (Member& member : *members) std::sort(member.ranks.begin(), member.ranks.end(), by_rank);
  std::sort(members->begin(), members->end(), [](const Member& a, const Member& b) {
    return a.ranks.front().rank < b.ranks.front().rank;
  });
}

std::string fault_of(const View& view) {
  if (view.size == 0) return "the view has no ranks";
  std::vector<bool> seen(view.size, false);
  uint32_t count = 0;
  for (size_t i = 0; i < view.members.size(); ++i) {
    const Member& member = view.members[i];
    if (member.ranks.empty()) return "node " + member.node + " has no ranks";
    if (view.index_of(member.node) != i) return "node " + member.node + " is listed twice";
    for (size_t k = 0; k < member.ranks.size(); ++k) {
      const uint32_t rank = member.ranks[k].rank;
      if (rank >= view.size) {
        return "rank " + std::to_string(rank) + " is outside the job's size " +
               std::to_string(view.size);
      }
      if (seen[rank]) return "rank " + std::to_string(rank) + " is there twice";
      if (k > 0 && member.ranks[k - 1].rank > rank) {
        return "the ranks of node " + member.node + " are out of order";
      }
      seen[rank] = true;
      ++count;
    }
  }
  if (count != view.size) {
    return std::to_string(count) + " of " + std::to_string(view.size) + " ranks are there";
  }
  return {};
}

}  // namespace gradring::core
