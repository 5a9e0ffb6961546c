#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradring::core {

// Which daemons keep a control connection with one another. Like streets of a town: few from each
// house, and short ways all the same. All nodes stand in a circle in the order of their names, and
// each is linked with those at the distances 1, b, b^2, ... in both directions; the base b is 2, or
// the least that keeps a node's links within their bound. With 1,024 nodes that is 19 links and at
// most five hops. Where the bound allows it, everybody is linked with everybody.
//
// A function of the names alone: whoever was given the same ones computes the same links.
class Overlay {
 public:
  // The bound must be 4 at least: two neighbours, and two further away.
  static constexpr uint32_t kLinksLeast = 4;

  // The names of all nodes in any order; doubles count once.
  Overlay(std::vector<std::string> names, uint32_t links_max);

  uint32_t count() const { return static_cast<uint32_t>(names_.size()); }
  const std::string& name_at(uint32_t place) const { return names_[place]; }
  std::optional<uint32_t> place_of(const std::string& name) const;

  bool full_mesh() const { return full_mesh_; }
  bool linked(uint32_t a, uint32_t b) const;
  std::vector<uint32_t> links_of(uint32_t place) const;  // ascending
  // The shorter way round.
  uint32_t distance(uint32_t a, uint32_t b) const;
  // The most that a way needs from link to link, always to who is nearest, when all links are up.
  uint32_t hops_most() const { return hops_most_; }

 private:
  std::vector<uint32_t> steps_for(uint32_t base) const;
  uint32_t longest_way() const;

  std::vector<std::string> names_;
  bool full_mesh_ = false;
  std::vector<uint32_t> steps_;  // clockwise, ascending; with each there is its opposite
  uint32_t hops_most_ = 0;
};

}  // namespace gradring::core
