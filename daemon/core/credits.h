#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/check.h"

namespace gradring::core {

// The sender's side of a lane: how many receive slots its successor has free. Counts totals, so a
// CREDIT that is repeated or overtaken does no harm.
class SendCredits {
 public:
  // `free` of the successor's `slots` are known to be free from the start.
  SendCredits(uint32_t slots, uint32_t free) : slots_(slots), initial_(free) {}

  uint32_t free() const { return static_cast<uint32_t>(initial_ + freed_ - sent_); }
  // Of these, for slices that begin here: no more are to be under way than the window allows. What
  // only moves on is not asked, or a window that shrinks could stop a whole ring.
  uint32_t free_to_start() const {
    const uint64_t under_way = slots_ - free();
    return under_way < window_ ? std::min(free(), static_cast<uint32_t>(window_ - under_way)) : 0;
  }
  // Two at least, without which nothing begins.
  void limit(uint32_t window) {
    GRADRING_CHECK(window >= 2, "something can begin");
    window_ = window;
  }
  void take() {
    GRADRING_CHECK(free() > 0, "a slice is sent only with a credit");
    ++sent_;
  }
  // False when the successor claims to have more slots free than it has.
  bool on_freed_total(uint64_t total) {
    if (total > slots_ - initial_ + sent_) return false;
    if (total > freed_) freed_ = total;
    return true;
  }

 private:
  uint64_t slots_;
  uint64_t window_ = slots_;
  uint64_t initial_;
  uint64_t sent_ = 0;
  uint64_t freed_ = 0;
};

// The receiver's side: C slots that belong to no op (protocol rule D2).
class ReceiveSlots {
 public:
  explicit ReceiveSlots(uint32_t slots) {
    for (uint32_t i = slots; i > 0; --i) free_.push_back(i - 1);
  }

  std::optional<uint32_t> take() {
    if (free_.empty()) return std::nullopt;
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(uint32_t slot) {
    free_.push_back(slot);
    ++freed_total_;
  }
  // In a new epoch the predecessor, who may be another, knows of no free slot until it is told.
  void begin_epoch() { freed_total_ = free_.size(); }
  uint64_t freed_total() const { return freed_total_; }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  std::vector<uint32_t> free_;
  uint64_t freed_total_ = 0;
};

}  // namespace gradring::core
