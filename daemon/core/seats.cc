#include "daemon/core/seats.h"

#include <algorithm>

namespace gradring::core {

std::vector<RankPlace> places_of(const View& view) {
  std::vector<RankPlace> places;
  for (const Member& member : view.members) {
    for (const RankInfo& info : member.ranks) places.push_back({info.rank, member.node});
  }
  std::sort(places.begin(), places.end(),
            [](const RankPlace& a, const RankPlace& b) { return a.rank < b.rank; });
  return places;
}

std::vector<Seat> seats_of(const Op& op, const View& view) {
  std::vector<Seat> seats;
  if (op.signature->collective == Collective::kBroadcast) {
    const uint32_t root = op.signature->root;
    const auto keeper = op.root_node.empty() ? std::nullopt : view.index_of(op.root_node);
    seats.push_back({root, keeper ? *keeper : view.has(root) ? view.host_of(root) : 0});
  }
  // Of thousands of ranks most are on the same node as the one before, or on the next.
  uint32_t guess = 0;
  for (const RankPlace& place : op.seats) {
    if (view.members[guess].node != place.node)
      guess = (guess + 1) % static_cast<uint32_t>(view.members.size());
    if (view.members[guess].node == place.node) {
      seats.push_back({place.rank, guess});
      continue;
    }
    const auto member = view.index_of(place.node);
    seats.push_back({place.rank, member.value_or(Seat::kNobody)});
    guess = member.value_or(guess);
  }
  return seats;
}

std::optional<MismatchBody> wrong_ranks(const Op& op, uint32_t rank, const Signature& signature,
                                        const View& view) {
  if (!needs_all_ranks(signature.collective)) return std::nullopt;
  if (signature.ranks == view.size) return std::nullopt;
  if (op.spared && op.seats.size() == signature.ranks) return std::nullopt;
  Signature wanted = signature;
  wanted.ranks = view.size;
  return MismatchBody{kNoRank, rank, wanted, signature};
}

}  // namespace gradring::core
