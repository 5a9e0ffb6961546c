// What makes and what breaks a peer.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/control/peers/peers.h"
#include "daemon/notice.h"

namespace gradring::daemon {

void Peers::try_up(const std::string& node, core::Time now) {
  Peer* peer = by_node(node);
  const auto greeting = greetings_.find(node);
  if (peer == nullptr || peer->up || peer->link.state() != PeerLink::State::kWelcomed ||
      greeting == greetings_.end() || greeting->second.boot_id != peer->boot_id) {
    return;
  }
  peer->up = true;
  peer->ends = false;
  peer->told.clear();
  peer->up_since = peer->heard = peer->progressed = now;
  peer->version = greeting->second.version;
  peer->lane_hosts = greeting->second.lane_hosts;
  const bool relayed = is_relayed(*peer);
  if (!relayed) control_watch_.add(node, now);
  peer->data_watched = !relayed;
  if (!relayed) data_watch_.add(node, now);
  std::vector<std::string> addresses = greeting->second.data_addresses;
  addresses.resize(std::min(addresses.size(), self_.data_addresses.size()));
  peer->lanes.emplace(addresses.size(), watch_options(config_), now);
  if (!relayed) hold_ports(*peer, now);
  if (!relayed) peer->link.set_also_at(greeting->second.also_at);
  peer->data = ConnectPeer{
      peer->link.id(),        peer->link.number(),         node,
      std::move(addresses),   greeting->second.data_token, greeting->second.bundle_bytes,
      greeting->second.probes};
  // Where there is a connection there are few of them; else only who needs one has it.
  if (!relayed || needed_.count(node) > 0) connect_data(*peer);
  tell(Notice::kPeerUp, spdlog::level::info, {{"GRADRING_PEER", node}},
       fmt::format("peer {} at {} is up{} (gradringd {})", node, peer->link.address(),
                   relayed ? ", over others" : "", peer->version));
  if (net_ && !relayed) {
    net_->link_up(peer->link.address(), peer->boot_id, greeting->second.relays, now);
  }
  if (const auto away = away_.find(node); away != away_.end()) {
    const bool same = away->second.life == 0 || away->second.life == greeting->second.life;
    for (uint8_t lane = 0; lane < peer->lanes->count(); ++lane) {
      if ((away->second.doubtful_lanes >> lane & 1) == 0) continue;
      peer->lanes->broke(lane, "silent when its control connection was lost", now);
    }
    away_.erase(away);
    if (!same) {
      events_->peer_lost(node, Cause::kPeerLost, "its daemon was restarted and has forgotten all");
    }
  }
  if (ends_) say_heartbeat(*peer);
  events_->peer_up(node);
  greeting->second.early_bytes = 0;
  for (const wire::PeerMessage& message : std::exchange(greeting->second.early, {})) {
    dispatch(*peer, message, now);
  }
}

void Peers::forget_greeting(const std::string& node) {
  const auto greeting = greetings_.find(node);
  if (greeting == greetings_.end()) return;
  greeters_.erase(greeting->second.routing_id);
  greetings_.erase(greeting);
}

bool Peers::may_come_round(const Peer& peer, core::Time now) const {
  return peer.link.has_other_ways() && data_watch_.silent_for(peer.node, now) < config_.suspect;
}

void Peers::lose(Peer& peer, Cause cause, const std::string& how, core::Time now,
                 bool comes_round) {
  const bool was_up = std::exchange(peer.up, false);
  if (was_up && cause != Cause::kPeerLost) peer.ends = false;  // it hangs, whatever it said
  const bool ended = was_up && peer.ends;
  const std::string evidence = ended ? kPeerWasStopped : how;
  const bool gave_us_up = std::exchange(peer.gave_us_up, false);
  const std::string doubt = was_up && gave_us_up ? doubt_of(peer, now) : "";
  const auto was = was_up ? how_it_stood(peer, gave_us_up, now) : PeerLink::Was::kNothing;
  peer.lost.reset();
  peer.link.drop(evidence, now, was);
  if (!was_up) {
    // It is tried again and again; a person wants to read of it once.
    if (peer.told != evidence && !peer.refused) {
      spdlog::info("peer {} is not connected yet: {}", peer.link.address(), evidence);
    }
    peer.told = evidence;
    return;
  }
  control_watch_.remove(peer.node);
  data_watch_.remove(peer.node);
  Away away;
  if (const auto greeting = greetings_.find(peer.node); greeting != greetings_.end()) {
    away = {greeting->second.life, greeting->second.restart_grace, 0};
    forget_greeting(peer.node);
  }
  const bool data_connected = !std::exchange(peer.data, std::nullopt).has_value();
  if (data_connected) commands_->post(DisconnectPeer{peer.link.id()});
  peer.data_watched = false;
  if (net_ && is_relayed(peer)) {
    net_->close(peer.link.address(), evidence, now);
  } else if (net_) {
    net_->link_lost(peer.link.address(), cause == Cause::kPeerSilent, evidence, now);
  }
  // A silent one has no kernel that closes connections for it, and will not be back soon, unless
  // it is heard on the data network and can be dialled elsewhere.
  if (ended) {
    tell(Notice::kPeerStopped, spdlog::level::info, {{"GRADRING_PEER", peer.node}},
         fmt::format("peer {} at {} is gone: {}", peer.node, peer.link.address(), kPeerWasStopped));
    return events_->peer_stopped(peer.node);
  }
  if (comes_round || (cause == Cause::kPeerLost && away.until > 0)) {
    if (comes_round) away.until = std::max(away.until, 2 * config_.decide);
    if (comes_round) away.doubtful_lanes = peer.lanes->doubtful_lanes(now);
    tell(Notice::kPeerAway, spdlog::level::warn, {{"GRADRING_PEER", peer.node}},
         fmt::format("peer {} at {} went away ({}); it may come back within {} s", peer.node,
                     peer.link.address(), evidence, away.until / core::kSecond));
    away.until += now;
    away_[peer.node] = away;
    return events_->peer_away(peer.node, evidence);
  }
  const core::Time slept = slept_until_given_up(peer, gave_us_up, now);
  const std::string why =
      slept == 0 ? evidence + doubt
                 : fmt::format("this daemon stood still for {:.1f} s, and node {} gave it up ({})",
                               static_cast<double>(slept) / core::kSecond, peer.node, evidence);
  tell(Notice::kPeerLost, spdlog::level::warn, {{"GRADRING_PEER", peer.node}},
       fmt::format("peer {} at {} is lost: {}", peer.node, peer.link.address(), why));
  events_->peer_lost(peer.node, slept == 0 ? cause : Cause::kExcluded, why);
}

// Also to those that our own connection has only greeted: to them this daemon may be up already.
void Peers::say_farewell() {
  ends_ = true;
  for (Peer& peer : peers_) {
    if (peer.link.state() >= PeerLink::State::kGreeting) say_heartbeat(peer);
  }
}

bool Peers::is_missed() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.up && !peer.ends; });
}

}  // namespace gradring::daemon
