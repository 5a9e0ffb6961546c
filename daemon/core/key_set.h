#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

#include "proto/types.h"

namespace gradring::core {

// The keys of ended ops, so that "completed and forgotten" is never mistaken for "never submitted".
// Per key space a list of closed intervals of sequence numbers: in ordinary use one, that grows at
// its end.
class KeySet {
 public:
  void insert(const OpKey& key) { insert_interval(key.space, key.sequence, key.sequence); }
  // All of first .. last; the cost is that of the intervals they join, not of the keys.
  void insert_interval(uint64_t space, uint64_t first, uint64_t last) {
    Intervals& all = spaces_[space];
    auto it = all.upper_bound(first);
    // Written so that nothing is added to the last number there is.
    if (it != all.begin() &&
        (std::prev(it)->second >= first || std::prev(it)->second == first - 1)) {
      --it;
      if (it->second >= last) return;
      it->second = last;
    } else {
      it = all.emplace_hint(it, first, last);
      ++intervals_;
    }
    auto next = std::next(it);
    while (next != all.end() && (next->first <= it->second || next->first - 1 == it->second)) {
      it->second = std::max(it->second, next->second);
      next = all.erase(next);
      --intervals_;
    }
  }
  bool contains(const OpKey& key) const {
    const auto space = spaces_.find(key.space);
    if (space == spaces_.end()) return false;
    const auto next = space->second.upper_bound(key.sequence);
    return next != space->second.begin() && key.sequence <= std::prev(next)->second;
  }
  // Calls visit(space, first, last) for every interval, in order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [space, intervals] : spaces_) {
      for (const auto& [first, last] : intervals) visit(space, first, last);
    }
  }
  bool operator==(const KeySet& other) const { return spaces_ == other.spaces_; }
  bool knows_space(uint64_t space) const { return spaces_.count(space) > 0; }
  size_t spaces() const { return spaces_.size(); }
  // What this costs: grows only with gaps, that is with keys that were passed over.
  size_t intervals() const { return intervals_; }

 private:
  using Intervals = std::map<uint64_t, uint64_t>;  // first to last
  std::map<uint64_t, Intervals> spaces_;
  size_t intervals_ = 0;
};

}  // namespace gradring::core
