#include "tests/sim/peers.h"

#include <algorithm>
#include <utility>

#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

constexpr Time kPauseFirst = 100 * core::kMillisecond;
constexpr Time kPauseMost = 2 * core::kSecond;
// Of one that is met each time and then not heard where slices go.
constexpr Time kPauseUnheardFirst = core::kSecond;
constexpr Time kPauseUnheardMost = 30 * core::kSecond;

core::PeerNetOptions options_of(const World& world, const SimNode& node, uint64_t boot) {
  core::PeerNetOptions options;
  options.boot = boot;
  options.links_max = world.scenario().links_max;
  for (uint32_t other = 0; other < world.scenario().nodes; ++other) {
    if (other != node.index()) options.peers.push_back(world.address_of(other));
  }
  options.self = world.address_of(node.index());
  return options;
}

}  // namespace

SimPeers::SimPeers(World* world, SimNode* node, uint64_t boot)
    : world_(world),
      node_(node),
      boot_(boot),
      memory_(boot),
      others_(world->scenario().nodes),
      net_(options_of(*world, *node, boot), this) {}

void SimPeers::go_on_from(const SimPeers& before) { memory_ = before.memory_; }

// ---- those with a link ----

void SimPeers::link_up(uint32_t peer) {
  net_.link_up(world_->address_of(peer), world_->node(peer).peers()->boot(), true,
               world_->events().now());
}

void SimPeers::link_lost(uint32_t peer, bool silent) {
  net_.link_lost(world_->address_of(peer), silent, "the link broke", world_->events().now());
}

void SimPeers::on_parcel(uint32_t link, const core::Parcel& parcel) {
  net_.on_parcel(world_->address_of(link), parcel, world_->events().now());
}

void SimPeers::on_notices(uint32_t link, const std::vector<core::Notice>& notices) {
  net_.on_notices(world_->address_of(link), notices, world_->events().now());
}

void SimPeers::pass(const std::string& link, const core::Parcel& parcel) {
  world_->carry(node_->index(), world_->at_address(link), parcel);
}

void SimPeers::pass(const std::string& link, const std::vector<core::Notice>& notices) {
  world_->carry(node_->index(), world_->at_address(link), notices);
}

void SimPeers::tick() {
  if (world_->events().now() >= net_.next_deadline()) net_.tick(world_->events().now());
}

// ---- those without ----

void SimPeers::send(uint32_t to, const core::JobMessage& message) {
  if (others_[to].up) say(to, {node_->index(), to, false, message});
}

void SimPeers::say(uint32_t to, Said said) {
  net_.send(world_->address_of(to), world_->write_down(std::move(said)), world_->events().now());
}

void SimPeers::relayed_up(const std::string& peer) { greet(world_->at_address(peer)); }

void SimPeers::greet(uint32_t peer) {
  Other& other = others_[peer];
  const Time now = world_->events().now();
  if (other.hello != 0 || !net_.relayed_is_up(world_->address_of(peer))) return;
  if (now < other.greet_at) return greet_later(peer);
  other.hello = world_->new_connection();
  say(peer, {node_->index(), peer, false, RelayedHello{memory_, other.hello}});
}

void SimPeers::greet_later(uint32_t peer) {
  world_->events().at(others_[peer].greet_at,
                      [this, peer] { node_->run([this, peer] { greet(peer); }); });
}

void SimPeers::relayed_message(const std::string& peer, const std::string& body) {
  const uint32_t from = world_->at_address(peer);
  Other& other = others_[from];
  const auto said = world_->read(body, from, node_->index());
  if (const auto* hello = std::get_if<RelayedHello>(&said)) {
    if (other.up) lose(from, false);
    if (!net_.relayed_is_up(peer)) return;  // that has ended the channel that it came by
    other.greeted = true;
    other.memory = hello->memory;
    other.early.clear();
    say(from, {node_->index(), from, false, RelayedWelcome{hello->connection}});
    return try_up(from);
  }
  if (const auto* welcome = std::get_if<RelayedWelcome>(&said)) {
    if (other.hello == 0 || welcome->connection != other.hello || other.welcomed) return;
    other.welcomed = true;
    other.pause = 0;
    return try_up(from);
  }
  const auto& message = std::get<core::JobMessage>(said);
  if (!other.greeted)
    return world_->violation(node_->name() + ": a word of one that did not greet");
  if (!other.up) return other.early.push_back(message);
  take(from, message);
}

void SimPeers::take(uint32_t from, const core::JobMessage& message) {
  world_->deliver_control(from, node_->index(), message);
}

void SimPeers::try_up(uint32_t peer) {
  Other& other = others_[peer];
  if (other.up || !other.welcomed || !other.greeted) return;
  other.up = true;
  const std::string name = "n" + std::to_string(peer);
  world_->trace([&] { return node_->name() + " has met " + name + " over others"; });
  world_->met(node_->index(), peer);
  if (other.needed) connect_data(peer);
  const uint64_t was = std::exchange(other.away_with, 0);
  if (was != 0 && was != other.memory) {
    node_->membership().peer_lost(name, Cause::kPeerLost, "was restarted and has forgotten all");
  }
  node_->membership().peer_up(name);
  for (const core::JobMessage& message : std::exchange(other.early, {})) take(peer, message);
}

void SimPeers::relayed_down(const std::string& address, bool silent, const std::string& why) {
  const uint32_t peer = world_->at_address(address);
  world_->trace([&] {
    return node_->name() + " has no channel to n" + std::to_string(peer) + " any more: " + why;
  });
  if (others_[peer].hello != 0) lose(peer, silent);
  others_[peer].greeted = false;
}

void SimPeers::lose(uint32_t peer, bool silent) {
  Other& other = others_[peer];
  other.hello = 0;
  other.welcomed = false;
  other.pause = other.pause == 0 ? kPauseFirst : std::min(2 * other.pause, kPauseMost);
  other.greet_at = world_->events().now() + other.pause;
  const bool was_up = std::exchange(other.up, false);
  if (was_up && other.needed && !world_->data_passes(node_->index(), peer)) {
    other.pause_unheard =
        std::clamp(2 * other.pause_unheard, kPauseUnheardFirst, kPauseUnheardMost);
    other.greet_at = world_->events().now() + other.pause_unheard;
  }
  greet_later(peer);
  if (!was_up) return;
  other.greeted = false;
  other.early.clear();
  world_->part(node_->index(), peer);
  net_.close(world_->address_of(peer), "the peer is lost", world_->events().now());
  if (!silent && world_->has_grace(peer)) return wait_for(peer);
  const std::string name = "n" + std::to_string(peer);
  world_->trace([&] { return node_->name() + " has lost " + name; });
  node_->membership().peer_lost(name, silent ? Cause::kPeerSilent : Cause::kPeerLost,
                                "the channel broke");
}

std::string SimPeers::standing_with(uint32_t peer) const {
  const Other& other = others_[peer];
  return std::string(net_.relayed_is_up(world_->address_of(peer)) ? "channel" : "no channel") +
         (other.hello != 0 ? ", said hello" : "") + (other.welcomed ? ", welcomed" : "") +
         (other.greeted ? ", greeted" : "");
}

void SimPeers::wait_for(uint32_t peer) {
  const std::string name = "n" + std::to_string(peer);
  others_[peer].away_with = others_[peer].memory;
  others_[peer].away_until = world_->events().now() + kRestartGrace;
  world_->trace([&] { return node_->name() + " waits for " + name + " to come back"; });
  world_->events().at(others_[peer].away_until, [this, peer, name] {
    node_->run([this, peer, name] {
      Other& other = others_[peer];
      if (other.away_with == 0 || world_->events().now() < other.away_until) return;
      other.away_with = 0;
      world_->trace([&] { return node_->name() + " waits for " + name + " no more"; });
      node_->membership().peer_lost(name, Cause::kPeerLost, "did not come back");
    });
  });
  node_->membership().peer_away(name);
}

void SimPeers::need(uint32_t peer) {
  if (!std::exchange(others_[peer].needed, true) && others_[peer].up) connect_data(peer);
}

void SimPeers::connect_data(uint32_t peer) {
  if (world_->data_passes(node_->index(), peer)) others_[peer].pause_unheard = 0;
  world_->connect_data(node_->index(), peer);
}

}  // namespace gradring::sim
