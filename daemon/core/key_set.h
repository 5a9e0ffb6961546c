#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "proto/types.h"

namespace gradring::core {

// The keys of ended ops, so that "completed and forgotten" is never mistaken for "never submitted".
// Per key space a watermark (everything below has ended) and the exceptions above it, of which
// there are no more than ops were open at once.
class KeySet {
 public:
  void insert(const OpKey& key) {
    Space& space = spaces_[key.space];
    if (key.sequence < space.watermark) return;
    space.above.insert(key.sequence);
    while (!space.above.empty() && *space.above.begin() == space.watermark) {
      space.above.erase(space.above.begin());
      ++space.watermark;
    }
  }
  bool contains(const OpKey& key) const {
    const auto it = spaces_.find(key.space);
    if (it == spaces_.end()) return false;
    return key.sequence < it->second.watermark || it->second.above.count(key.sequence) > 0;
  }
  bool knows_space(uint64_t space) const { return spaces_.count(space) > 0; }
  size_t spaces() const { return spaces_.size(); }

 private:
  struct Space {
    uint64_t watermark = 0;
    std::set<uint64_t> above;
  };
  std::map<uint64_t, Space> spaces_;
};

}  // namespace gradring::core
