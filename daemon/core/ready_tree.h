#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/check.h"

namespace gradring::core {

// In views with more members READY goes along a tree, and so do small sums. Up to here it costs a
// member less to write to all others than to wait for some turns more: members that hear later than
// others that all are ready begin later, and a large sum around the ring gains nothing of that back
// (by the model of tests/scale 10 % of 48 MiB on 16 nodes at 25 Gbit/s).
inline constexpr uint32_t kReadyTreeAbove = 16;

// The members of a view as a tree, by their index: the first is the root, and each has up to eight
// below it. So 4,096 members have four levels below the root, and nobody speaks to more than nine
// others. Without members there is none. A value.
class ReadyTree {
 public:
  static constexpr uint32_t kArity = 8;

  ReadyTree() = default;
  // `arity`: at most kArity below each.
  ReadyTree(uint32_t members, uint32_t me, uint32_t arity = kArity)
      : members_(members), me_(me), arity_(arity) {
    GRADRING_CHECK(me < members && arity >= 1 && arity <= kArity,
                   "a tree is seen from one of its members");
  }

  explicit operator bool() const { return members_ > 0; }
  bool is_root() const { return me_ == 0; }
  uint32_t parent() const { return (me_ - 1) / arity_; }  // requires !is_root()
  uint32_t first_child() const { return me_ * arity_ + 1; }
  uint32_t children() const {
    return first_child() >= members_ ? 0 : std::min(members_ - first_child(), arity_);
  }
  bool is_child(uint32_t member) const {
    return member >= first_child() && member - first_child() < children();
  }
  bool is_parent(uint32_t member) const { return !is_root() && member == parent(); }
  // One bit for each child.
  uint8_t bit_of(uint32_t child) const {
    return static_cast<uint8_t>(1U << (child - first_child()));
  }
  uint8_t all_children() const { return static_cast<uint8_t>((1U << children()) - 1); }

  // Steps up to the root.
  uint32_t depth() const { return depth_of(me_); }
  uint32_t levels() const { return depth_of(members_ - 1); }

 private:
  uint32_t depth_of(uint32_t member) const {
    uint32_t depth = 0;
    for (; member > 0; member = (member - 1) / arity_) ++depth;
    return depth;
  }

  uint32_t members_ = 0;
  uint32_t me_ = 0;
  uint32_t arity_ = kArity;
};

}  // namespace gradring::core
