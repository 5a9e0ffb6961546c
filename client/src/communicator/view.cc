#include "client/src/communicator/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "client/src/api/error.h"

namespace gradring::client {

uint32_t View::position_of(uint32_t rank) const {
  return static_cast<uint32_t>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
}

tl::expected<View, std::string> view_from(const wire::View& from, uint32_t rank,
                                          const std::string& node) {
  View view;
  view.epoch = from.epoch();
  view.grown = from.grown();
  view.closed = from.has_closed();
  view.explanation = from.explanation();
  view.incarnation = from.incarnation();
  if (view.epoch == 0) return tl::unexpected(std::string("it has no epoch"));
  if (view.grown > view.epoch) {
    return tl::unexpected(
        fmt::format("it is of epoch {} and grew in epoch {}", view.epoch, view.grown));
  }
  const wire::RankInfo* oldest = nullptr;
  const wire::RankInfo* own = nullptr;
  for (const wire::Member& member : from.members()) {
    for (int i = 0; i < member.ranks_size(); ++i) {
      const wire::RankInfo& info = member.ranks(i);
      view.ranks.push_back(info.rank());
      if (oldest == nullptr || info.since() < oldest->since() ||
          (info.since() == oldest->since() && info.rank() < oldest->rank())) {
        oldest = &info;
      }
      if (info.rank() != rank) continue;
      own = &info;
      if (member.node() == node) view.local_position = i;
    }
    if (member.node() == node) view.local_size = member.ranks_size();
  }
  std::ranges::sort(view.ranks);
  if (const auto twice = std::ranges::adjacent_find(view.ranks); twice != view.ranks.end()) {
    return tl::unexpected(fmt::format("rank {} is in it twice", *twice));
  }
  if (view.size() != from.size()) {
    return tl::unexpected(
        fmt::format("it says that it has {} ranks and lists {}", from.size(), view.size()));
  }
  // A job that is over may name only whoever it is over for.
  if (own == nullptr && !view.closed) {
    return tl::unexpected(fmt::format("rank {}, which is told of it, is not in it", rank));
  }
  if (oldest != nullptr) view.oldest = oldest->rank();
  if (own != nullptr) view.since = own->since();
  return view;
}

void write_view(const View& view, uint32_t rank, gradring_view* to) {
  if (to == nullptr) return;
  gradring_view full{};
  full.struct_size = to->struct_size;
  full.epoch = view.epoch;
  full.grew = view.grown;
  full.size = view.size();
  full.rank = rank;
  full.position = view.position_of(rank);
  full.oldest = view.oldest;
  copy_text(view.explanation, full.explanation, sizeof(full.explanation));
  std::memcpy(to, &full, std::min(to->struct_size, sizeof(full)));
}

void Views::add(View view) {
  const uint64_t epoch = view.epoch;
  views_.insert_or_assign(epoch, std::move(view));
  if (views_.size() > kKept) views_.erase(views_.begin());
}

const View& Views::at(uint64_t epoch) const {
  const auto later = views_.upper_bound(epoch);
  return later == views_.begin() ? later->second : std::prev(later)->second;
}

const View* Views::find(uint64_t epoch) const {
  const auto found = views_.find(epoch);
  return found == views_.end() ? nullptr : &found->second;
}

}  // namespace gradring::client
