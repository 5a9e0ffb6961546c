#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/check.h"
#include "proto/types.h"

namespace gradring::daemon {

// Which buffer each receive slot has, and what lies in them. There are some more buffers than
// slots: so the final value of a slice can stay where it lies when its slot is needed again, and
// need not be copied for those who may still lack it (protocol rule D6), and so can what a GPU
// still works with. Buffers have numbers from 0.
class SlotBuffers {
 public:
  // A final value: a slice of an op, in the epoch in which it became final.
  struct Value {
    OpKey key;
    uint32_t slice = 0;
    uint64_t epoch = 0;

    bool operator==(const Value&) const = default;
  };

  SlotBuffers(uint32_t slots, uint32_t spares) : SlotBuffers(slots, spares, spares) {}
  // `pins_max`: values that may be pinned at one time, of the spares; the others are for what is in
  // use. Neither takes room from the other: what is pinned is not known when work is begun.
  SlotBuffers(uint32_t slots, uint32_t spares, uint32_t pins_max)
      : buffers_(slots + spares), pins_max_(pins_max), uses_max_(spares - pins_max) {
    for (uint32_t i = 0; i < slots; ++i) of_.push_back(i);
    for (uint32_t i = slots; i < slots + spares; ++i) idle_.push_back(i);
  }

  uint32_t count() const { return static_cast<uint32_t>(buffers_.size()); }
  uint32_t of(uint32_t slot) const { return of_[slot]; }
  const std::optional<Value>& value_in(uint32_t slot) const { return buffers_[of_[slot]].value; }

  // The slot has this value, until it is used again.
  void holds(uint32_t slot, const Value& value) { buffers_[of_[slot]].value = value; }

  // Somebody works with what is in the buffer, until as many calls of end_use().
  void begin_use(uint32_t buffer) { ++buffers_[buffer].uses; }
  void end_use(uint32_t buffer) { --buffers_[buffer].uses; }
  // So many slots more may be given back while somebody works with their buffers: there is another
  // for what comes next to each.
  uint32_t room() const {
    const auto in_use = [](const Buffer& buffer) { return buffer.uses > 0; };
    const auto used = std::count_if(buffers_.begin(), buffers_.end(), in_use);
    return uses_max_ - std::min(static_cast<uint32_t>(used), uses_max_);
  }

  // Something else is about to lie in the slot. What is there stays if it is pinned or in use, and
  // a value for as long as possible if it is `wanted`.
  void use_again(uint32_t slot, bool wanted) {
    Buffer& old = buffers_[of_[slot]];
    if (!old.is_held() && (!old.value || !wanted)) return old.value.reset();
    const auto next = std::find_if(idle_.begin(), idle_.end(),
                                   [this](uint32_t i) { return !buffers_[i].is_held(); });
    if (next == idle_.end()) {
      GRADRING_CHECK(!old.is_held(), "less is pinned and in use than there are spare buffers");
      return old.value.reset();
    }
    const uint32_t buffer = *next;
    idle_.erase(next);
    idle_.push_back(of_[slot]);
    buffers_[buffer].value.reset();
    of_[slot] = buffer;
  }

  // The buffer that has the value, which stays there until unpin(); nothing if it is gone, or if as
  // many are pinned as may be.
  std::optional<uint32_t> pin(const Value& value) {
    if (pinned_ == pins_max_) return std::nullopt;
    for (uint32_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].value != value || buffers_[i].pinned) continue;
      buffers_[i].pinned = true;
      ++pinned_;
      return i;
    }
    return std::nullopt;
  }
  void unpin(uint32_t buffer) {
    GRADRING_CHECK(buffers_[buffer].pinned, "a value is let go of once");
    buffers_[buffer].pinned = false;
    --pinned_;
  }

 private:
  struct Buffer {
    std::optional<Value> value;
    bool pinned = false;
    uint32_t uses = 0;

    bool is_held() const { return pinned || uses > 0; }
  };

  std::vector<Buffer> buffers_;
  std::vector<uint32_t> of_;    // by slot
  std::vector<uint32_t> idle_;  // no slot's; the one that has been so for longest first
  uint32_t pins_max_;
  uint32_t uses_max_;
  uint32_t pinned_ = 0;
};

}  // namespace gradring::daemon
