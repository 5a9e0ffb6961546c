#pragma once

#include <cstdint>
#include <vector>

#include "daemon/core/ready_tree.h"
#include "proto/frame.h"

namespace gradring::scale {

// A ring looks the same from each of its members. So of `members` only a window is run, which is
// the last of them, and a frame that one of them sends to a member outside comes back as the one
// that its like, as many places back, sends at that moment into the window: from another member, of
// other slices. If the window is all members, nothing changes.
//
// A tree does not look the same from each. But nobody is below the last members, and all that they
// say to whoever is above is READY, to which the answer is that all are: so that comes back.
class Mirror {
 public:
  Mirror(uint32_t members, uint32_t window) : members_(members), window_(window) {}

  uint32_t members() const { return members_; }
  uint32_t window() const { return window_; }
  uint32_t first() const { return members_ - window_; }
  // Whether a frame from there goes up a tree, and what comes back is the word from its top.
  bool is_for_the_tree(uint32_t to, const Frame& frame) const {
    return frame.type == FrameType::kReady && to < first() && members_ > core::kReadyTreeAbove;
  }

  struct Arrival {
    uint32_t from = 0;
    uint32_t to = 0;  // in the window
    Frame frame;
  };
  // Most often one; a map of slices may become two. `ranks`: of each member.
  std::vector<Arrival> of(uint32_t from, uint32_t to, const Frame& frame, uint32_t ranks) const;

 private:
  uint32_t back(uint32_t number, uint32_t places) const {
    return (number + members_ - places % members_) % members_;
  }
  // The slice of the same round that starts as many places before.
  uint32_t slice_back(uint32_t slice, uint32_t places) const {
    return slice / members_ * members_ + back(slice % members_, places);
  }

  uint32_t members_;
  uint32_t window_;
};

}  // namespace gradring::scale
