#include "daemon/core/overlay.h"

#include <algorithm>
#include <utility>

namespace gradring::core {

Overlay::Overlay(std::vector<std::string> names, uint32_t links_max) : names_(std::move(names)) {
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  links_max = std::max(links_max, kLinksLeast);
  full_mesh_ = count() <= links_max + 1;
  if (full_mesh_) {
    hops_most_ = count() > 1 ? 1 : 0;
    return;
  }
  uint32_t base = 2;
  while (steps_for(base).size() > links_max) ++base;
  steps_ = steps_for(base);
  hops_most_ = longest_way();
}

std::vector<uint32_t> Overlay::steps_for(uint32_t base) const {
  std::vector<uint32_t> steps;
  for (uint64_t step = 1; step <= count() / 2; step *= base) {
    steps.push_back(static_cast<uint32_t>(step));
    steps.push_back(static_cast<uint32_t>(count() - step));
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());  // half the circle
  return steps;
}

uint32_t Overlay::longest_way() const {
  uint32_t most = 0;
  for (uint32_t start = 1; start <= count() / 2; ++start) {
    uint32_t left = start, hops = 0;
    for (; left != 0; ++hops) {
      uint32_t nearest = left;
      for (const uint32_t step : steps_) {
        nearest = std::min(nearest, distance(left, step));
      }
      left = nearest;
    }
    most = std::max(most, hops);
  }
  return most;
}

std::optional<uint32_t> Overlay::place_of(const std::string& name) const {
  const auto it = std::lower_bound(names_.begin(), names_.end(), name);
  if (it == names_.end() || *it != name) return std::nullopt;
  return static_cast<uint32_t>(it - names_.begin());
}

bool Overlay::linked(uint32_t a, uint32_t b) const {
  if (a == b) return false;
  if (full_mesh_) return true;
  return std::binary_search(steps_.begin(), steps_.end(), (b + count() - a) % count());
}

std::vector<uint32_t> Overlay::links_of(uint32_t place) const {
  std::vector<uint32_t> links;
  if (full_mesh_) {
    for (uint32_t other = 0; other < count(); ++other) {
      if (other != place) links.push_back(other);
    }
    return links;
  }
  for (const uint32_t step : steps_) links.push_back((place + step) % count());
  std::sort(links.begin(), links.end());
  return links;
}

uint32_t Overlay::distance(uint32_t a, uint32_t b) const {
  const uint32_t clockwise = (b + count() - a) % count();
  return std::min(clockwise, count() - clockwise);
}

}  // namespace gradring::core
