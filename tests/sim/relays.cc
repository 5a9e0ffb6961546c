// Where there are more nodes than links, others pass on what is said between two without one.

#include <algorithm>

#include "tests/sim/world.h"

namespace gradring::sim {

bool World::is_relayed(uint32_t a, uint32_t b) const {
  return overlay_ && a != b && !overlay_->linked(scenario_.places[a], scenario_.places[b]);
}

// In alphabetical order as in the circle.
std::string World::address_of(uint32_t node) const {
  return "at" + std::to_string(1000 + scenario_.places[node]);
}

uint32_t World::at_address(const std::string& address) const {
  const auto place = static_cast<uint32_t>(std::stoul(address.substr(2)) - 1000);
  const auto at = std::find(scenario_.places.begin(), scenario_.places.end(), place);
  return static_cast<uint32_t>(at - scenario_.places.begin());
}

// ---- what is said ----

std::string World::write_down(Said said) {
  said_.push_back(std::move(said));
  return std::to_string(said_.size() - 1);
}

auto World::read(const std::string& body, uint32_t from, uint32_t to) -> decltype(Said::what) {
  Said& said = said_.at(std::stoull(body));
  if (said.from != from || said.to != to) violation("a word went astray");
  uint64_t& last = last_read_[{from, to}];
  if (std::stoull(body) < last) violation("words overtake one another on their way over others");
  last = std::stoull(body);
  if (std::exchange(said.taken, true)) violation("a word comes twice over others");
  return said.what;
}

void World::carry(uint32_t from, uint32_t to, const core::Parcel& parcel) {
  // Not at the end: of those that wander round much that is broken too few would arrive.
  const uint32_t lost = quiet_since_ == 0 ? scenario_.parcels_lost_percent : 0;
  if (lost > 0 && random_.below(100) < lost) return;
  ++stats_.relayed;
  carry(from, to, [this, from, to, parcel] {
    SimNode* node = nodes_[to].get();
    node->run([node, from, parcel] { node->peers()->on_parcel(from, parcel); });
  });
}

void World::carry(uint32_t from, uint32_t to, const std::vector<core::Notice>& notices) {
  carry(from, to, [this, from, to, notices] {
    SimNode* node = nodes_[to].get();
    trace([&] {
      std::string text = "n" + std::to_string(from) + " tells " + node->name();
      for (const core::Notice& notice : notices) {
        text += " n" + std::to_string(at_address(notice.node)) + " boot " +
                std::to_string(notice.boot) + (notice.dead ? " is dead" : " lives");
      }
      return text;
    });
    node->run([node, from, notices] { node->peers()->on_notices(from, notices); });
  });
}

// ---- how two stand that have no link ----

void World::met(uint32_t self, uint32_t peer) {
  Link& l = link(self, peer);
  l.open = true;
  l.broken.reset();
  l.disturbed = events_.now();
  ++l.connection;
}

void World::part(uint32_t self, uint32_t peer) {
  link(self, peer).open = link(self, peer).up = false;
  cut(peer, self);
}

bool World::data_passes(uint32_t a, uint32_t b) const {
  return !link(a, b).data_cut && !link(b, a).data_cut;
}

// Else one hears of the end of the other from those between alone.
bool World::are_connected(uint32_t a, uint32_t b) const {
  return !is_relayed(a, b) || link(a, b).up || link(b, a).up;
}

void World::connect_data(uint32_t self, uint32_t peer) {
  if (!data_passes(self, peer)) {
    return lose(self, peer, Cause::kPeerLost, delay(3500 * core::kMillisecond));
  }
  Link& l = link(self, peer);
  l.up = true;
  ++l.generation;
}

void World::break_data(uint32_t a, uint32_t b, const Fault& fault) {
  const bool one_way = fault.kind == FaultKind::kOneWay;
  const bool notice = are_connected(a, b);
  link(b, a).data_cut = true;
  cut(b, a);
  if (!one_way) {
    link(a, b).data_cut = true;
    cut(a, b);
  }
  const Cause cause = fault.detected > core::kSecond ? Cause::kPeerSilent : Cause::kPeerLost;
  const Time at_a = delay(fault.detected);
  const Time at_b = delay(fault.detected);
  if (notice) {
    lose(a, b, cause, at_a);
    if (!one_way) lose(b, a, cause, at_b);
  }
  if (fault.lasts != 0) heal(a, b, std::max({at_a, at_b, fault.lasts}) + delay(core::kSecond));
}

// ---- what can be ----

bool World::reaches(uint32_t from, uint32_t to) const {
  if (from == to) return true;
  if (!is_relayed(from, to)) return link(from, to).up && link(to, from).up;
  if (!data_passes(from, to)) return false;
  std::vector<bool> seen(scenario_.nodes);
  std::vector<uint32_t> next{from};
  while (!next.empty()) {
    const uint32_t at = next.back();
    next.pop_back();
    if (at == to) return true;
    for (uint32_t other = 0; other < scenario_.nodes; ++other) {
      const bool linked = other != at && !is_relayed(at, other);
      if (!linked || seen[other] || !link(at, other).up || !link(other, at).up) continue;
      if (!nodes_[other]->alive() || nodes_[other]->paused()) continue;
      seen[other] = true;
      next.push_back(other);
    }
  }
  return false;
}

// Who can reach one another have met by now.
void World::check_all_met() {
  if (!has_overlay() || !relays_calm(kQuietAfter)) return;
  for (uint32_t a = 0; a < scenario_.nodes; ++a) {
    for (uint32_t b = 0; b < scenario_.nodes; ++b) {
      if (!is_relayed(a, b) || !nodes_[a]->alive() || !nodes_[b]->alive()) continue;
      if (link(a, b).open || !reaches(a, b)) continue;
      violation(
          "P4: n" + std::to_string(a) + " has not met n" + std::to_string(b) +
          " although others could pass on what they say: " + nodes_[a]->peers()->standing_with(b) +
          "; there: " + nodes_[b]->peers()->standing_with(a));
    }
  }
}

// For so long that all have found their ways round what was broken before.
bool World::relays_calm(Time since) const {
  const Time before = events_.now() - since;
  for (uint32_t a = 0; a < scenario_.nodes; ++a) {
    const SimNode& node = *nodes_[a];
    if (node.paused() || (node.alive() && node.woken() > before)) return false;
    for (uint32_t b = 0; b < scenario_.nodes; ++b) {
      if (a != b && !is_relayed(a, b) && link(a, b).disturbed > before) return false;
    }
  }
  return true;
}

}  // namespace gradring::sim
