#pragma once

#include <deque>
#include <vector>

namespace gradring::transport {

// Objects whose address UCX holds while it works: they stay where they are and are used again.
// Grows to the largest number that were in use at once, which the owners bound.
template <typename Item>
class Pool {
 public:
  Item* take() {
    if (free_.empty()) return &items_.emplace_back();
    Item* item = free_.back();
    free_.pop_back();
    return item;
  }
  void give_back(Item* item) { free_.push_back(item); }

 private:
  std::deque<Item> items_;
  std::vector<Item*> free_;
};

}  // namespace gradring::transport
