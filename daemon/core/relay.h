#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "daemon/core/overlay.h"

namespace gradring::core {

// Picks the next of the links for what is on its way to a node that is not linked with this one:
// that which is nearest to the goal. A parcel names those that had it, and goes on to nobody twice;
// so where the straight way is broken it tries the next best and never runs in a circle. Where no
// way is left it goes back to whom it came from. It may be lost all the same: who sent it notices
// (courier.h), and sends it another way.
class Relay {
 public:
  Relay(const Overlay* overlay, uint32_t self);

  // `passes_on`: the daemon there knows what to do with a parcel for others.
  void link_up(uint32_t place, bool passes_on) { links_[place] = passes_on; }
  void link_down(uint32_t place) { links_.erase(place); }
  bool any_link() const { return !links_.empty(); }
  bool is_up(uint32_t place) const { return links_.count(place) > 0; }

  // Of each that had the parcel, who sent it included, the print (print_of). `attempt` is a number
  // of the sender's: each takes another way, the first the shortest. Nothing: there is no way.
  std::optional<uint32_t> next_hop(uint32_t to, const std::vector<uint32_t>& passed,
                                   uint32_t attempt) const;
  // A parcel that passed so many is lost. Four times the longest way, and some for those around
  // dead nodes and back from dead ends.
  uint32_t hops_max() const { return 4 * overlay_->hops_most() + 16; }

  // Of a name, the same on all nodes. If two of a thousand are alike, a way is closed that was
  // there, once.
  static uint32_t print_of(std::string_view name);

 private:
  // To the link that it came from first, which may know of another way.
  std::optional<uint32_t> way_back(const std::vector<uint32_t>& passed) const;

  const Overlay* const overlay_;
  const uint32_t self_;
  std::vector<uint32_t> prints_;    // by place
  std::map<uint32_t, bool> links_;  // up; whether it passes parcels on
};

}  // namespace gradring::core
