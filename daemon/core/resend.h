#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "daemon/core/staging.h"
#include "proto/frame.h"

namespace gradring::core {

// How often a slice is sent before its link is taken for bad (protocol rule D9).
inline constexpr uint8_t kAttempts = 3;

// The sender's side of a lane: staging memory that is lent to the transport, or may be asked for
// again because its slice has a checksum and the successor has not confirmed it. As many entries as
// there is staging memory.
class SentSlices {
 public:
  SentSlices(uint32_t slots, uint32_t start_buffers) : slots_(slots), starts_(start_buffers) {}

  // About to be sent for the first time: a checked frame is numbered here.
  void add(Frame* frame, Staging from) {
    Entry& entry = at(from);
    entry.lent = true;
    entry.unconfirmed = frame->slice.checked;
    entry.again = false;
    if (frame->slice.checked) {
      order_.push_back(from);
      frame->slice.serial = confirmed_ + order_.size();
      frame->slice.attempt = 1;
    }
    entry.frame = *frame;
  }
  // The transport has let go of it. kAgain: it was asked for meanwhile, see again().
  enum class Next : uint8_t { kFree, kWait, kAgain };
  Next on_sent(Staging from) {
    Entry& entry = at(from);
    entry.lent = false;
    if (entry.again) return Next::kAgain;
    return entry.unconfirmed ? Next::kWait : Next::kFree;
  }
  // Everything up to this serial has come undamaged; `free` is called for memory that nobody needs
  // any more. False when so much was never sent.
  template <typename Free>
  bool confirm(uint64_t total, Free free) {
    if (total > confirmed_ + order_.size()) return false;
    while (confirmed_ < total) {
      const Staging from = order_.front();
      order_.pop_front();
      ++confirmed_;
      settle(from, free);
    }
    return true;
  }
  template <typename Free>
  void confirm_all(Free free) {
    confirm(confirmed_ + order_.size(), free);
  }
  // What is meant by a NACK; nothing if it is repeated, or of a slice that was confirmed.
  std::optional<Staging> damaged(const NackBody& nack) const {
    if (nack.serial <= confirmed_ || nack.serial > confirmed_ + order_.size()) return std::nullopt;
    const Staging from = order_[nack.serial - confirmed_ - 1];
    const Entry& entry = at(from);
    if (entry.frame.slice.attempt != nack.attempt || entry.again) return std::nullopt;
    return from;
  }
  const Frame& frame_of(Staging from) const { return at(from).frame; }
  // The frame of its next attempt; nothing while the transport has the memory: then on_sent() says
  // so.
  std::optional<Frame> again(Staging from) {
    Entry& entry = at(from);
    entry.again = entry.lent;
    if (entry.lent) return std::nullopt;
    entry.lent = true;
    ++entry.frame.slice.attempt;
    return entry.frame;
  }
  // The epoch is over: nothing will be asked for again.
  template <typename Free>
  void clear(Free free) {
    for (const Staging from : order_) settle(from, free);
    order_.clear();
    confirmed_ = 0;
  }

 private:
  struct Entry {
    Frame frame;
    bool lent = false;
    bool unconfirmed = false;
    bool again = false;
  };
  Entry& at(Staging from) {
    return (from.kind == Staging::Kind::kSlot ? slots_ : starts_)[from.index];
  }
  const Entry& at(Staging from) const {
    return (from.kind == Staging::Kind::kSlot ? slots_ : starts_)[from.index];
  }
  template <typename Free>
  void settle(Staging from, Free free) {
    Entry& entry = at(from);
    entry.unconfirmed = entry.again = false;
    if (!entry.lent) free(from);
  }

  std::vector<Entry> slots_;
  std::vector<Entry> starts_;
  std::deque<Staging> order_;  // unconfirmed, by serial
  uint64_t confirmed_ = 0;
};

// The receiver's side: which checked slices have come undamaged, and which are awaited once more,
// each in the slot that it had.
class ReceivedSlices {
 public:
  struct Awaited {
    uint32_t slot = 0;
    uint8_t attempt = 0;
  };

  bool has(uint64_t serial) const { return serial <= upto_ || ahead_.count(serial) > 0; }
  // Far more are ahead than any sender has memory for.
  bool beyond(uint64_t serial) const {
    constexpr uint64_t kMost = 65536;
    return serial > upto_ + kMost;
  }
  void accept(uint64_t serial) {
    ahead_.insert(serial);
    while (!ahead_.empty() && *ahead_.begin() == upto_ + 1) {
      ahead_.erase(ahead_.begin());
      ++upto_;
    }
  }
  // Every slice up to this serial has come.
  uint64_t confirmed() const { return upto_; }

  void await(uint64_t serial, Awaited awaited) { awaited_[serial] = awaited; }
  const Awaited* awaited(uint64_t serial) const {
    const auto it = awaited_.find(serial);
    return it == awaited_.end() ? nullptr : &it->second;
  }
  void arrives(uint64_t serial) { awaited_.erase(serial); }

  // The epoch is over; `free` is called for every slot that was kept for a slice.
  template <typename Free>
  void clear(Free free) {
    for (const auto& [serial, awaited] : awaited_) free(awaited.slot);
    awaited_.clear();
    ahead_.clear();
    upto_ = 0;
  }

 private:
  uint64_t upto_ = 0;
  std::set<uint64_t> ahead_;
  std::map<uint64_t, Awaited> awaited_;
};

}  // namespace gradring::core
