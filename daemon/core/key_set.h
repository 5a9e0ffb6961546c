#pragma once

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
  void insert(const OpKey& key) {
    Intervals& all = spaces_[key.space];
    const auto next = all.upper_bound(key.sequence);
    const auto before = next == all.begin() ? all.end() : std::prev(next);
    if (before != all.end() && key.sequence <= before->second) return;
    const bool joins_before = before != all.end() && before->second + 1 == key.sequence;
    const bool joins_next = next != all.end() && next->first == key.sequence + 1;
    if (joins_before) {
      before->second = joins_next ? next->second : key.sequence;
      if (joins_next) {
        all.erase(next);
        --intervals_;
      }
      return;
    }
    const uint64_t last = joins_next ? next->second : key.sequence;
    if (joins_next) {
      all.erase(next);
      --intervals_;
    }
    all[key.sequence] = last;
    ++intervals_;
  }
  bool contains(const OpKey& key) const {
    const auto space = spaces_.find(key.space);
    if (space == spaces_.end()) return false;
    const auto next = space->second.upper_bound(key.sequence);
    return next != space->second.begin() && key.sequence <= std::prev(next)->second;
  }
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
