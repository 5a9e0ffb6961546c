#include "daemon/core/relay.h"

#include <algorithm>
#include <utility>

namespace gradring::core {
namespace {

constexpr size_t kMixed = 3;

}  // namespace

Relay::Relay(const Overlay* overlay, uint32_t self) : overlay_(overlay), self_(self) {
  for (uint32_t place = 0; place < overlay->count(); ++place) {
    prints_.push_back(print_of(overlay->name_at(place)));
  }
}

uint32_t Relay::print_of(std::string_view name) {
  uint32_t print = 2166136261u;  // FNV-1a
  for (const char c : name) print = (print ^ static_cast<uint8_t>(c)) * 16777619u;
  return print;
}

std::optional<uint32_t> Relay::way_back(const std::vector<uint32_t>& passed) const {
  const auto first = std::find(passed.begin(), passed.end(), prints_[self_]);
  if (first == passed.begin() || first == passed.end()) return std::nullopt;
  for (const auto& [place, passes_on] : links_) {
    if (passes_on && prints_[place] == *(first - 1)) return place;
  }
  return std::nullopt;
}

std::optional<uint32_t> Relay::next_hop(uint32_t to, const std::vector<uint32_t>& passed,
                                        uint32_t attempt) const {
  if (is_up(to)) return to;
  std::vector<std::pair<uint32_t, uint32_t>> ways;  // distance that is left, link
  for (const auto& [place, passes_on] : links_) {
    if (!passes_on) continue;
    if (std::find(passed.begin(), passed.end(), prints_[place]) != passed.end()) continue;
    ways.emplace_back(overlay_->distance(place, to), place);
  }
  if (ways.empty()) return way_back(passed);
  size_t which = 0;
  if (passed.size() <= 1) {
    which = attempt % ways.size();
  } else if (attempt != 0) {
    // Somebody silent may be on the best way from here: each attempt mixes the next best in, as
    // long as they lead nearer.
    const uint32_t left = overlay_->distance(self_, to);
    const auto nearer = static_cast<size_t>(std::count_if(
        ways.begin(), ways.end(), [left](const auto& way) { return way.first < left; }));
    const size_t choice = std::clamp<size_t>(nearer, 1, kMixed);
    which = ((attempt * 2654435761u) ^ prints_[self_]) / 7 % choice;
  }
  std::nth_element(ways.begin(), ways.begin() + static_cast<ptrdiff_t>(which), ways.end());
  return ways[which].second;
}

}  // namespace gradring::core
