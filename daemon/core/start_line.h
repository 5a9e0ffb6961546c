#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "daemon/core/op.h"

namespace gradring::core {

// Ops whose slices may start: the most urgent first, and of those that are as urgent whoever came
// first. However many there are, to find a place takes a few looks.
class StartLine {
 public:
  using Iterator = std::deque<Op*>::iterator;

  // Its priority must not change from here on.
  void add(Op& op) {
    op.turn = ++turns_;
    line_.insert(place_of(op), &op);
  }
  // If it is here.
  void remove(const Op& op) {
    const Iterator at = place_of(op);
    if (at != line_.end() && *at == &op) line_.erase(at);
  }
  Iterator erase(const Iterator& at) { return line_.erase(at); }
  void clear() { line_.clear(); }

  bool empty() const { return line_.empty(); }
  Iterator begin() { return line_.begin(); }
  Iterator end() { return line_.end(); }

 private:
  Iterator place_of(const Op& op) {
    const auto is_before = [](const Op* one, const Op& other) {
      return one->priority != other.priority ? one->priority > other.priority
                                             : one->turn < other.turn;
    };
    return std::lower_bound(line_.begin(), line_.end(), op, is_before);
  }

  std::deque<Op*> line_;
  uint64_t turns_ = 0;
};

}  // namespace gradring::core
