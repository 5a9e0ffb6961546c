// Peers that there is no connection to: what is said to them goes over those that there are.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/control/peers/peers.h"
#include "daemon/control/sessions/sessions.h"
#include "daemon/wire/relay_wire.h"
#include "proto/version.h"

namespace gradring::daemon {

void Peers::open_net() {
  if (config_.peers.size() <= config_.control_links) return;
  core::PeerNetOptions options;
  options.self = config_.listen;
  if (keys_) {
    const AllowedKey* own = keys_->by_node(config_.node);
    if (own != nullptr) options.self = own->address;
  }
  options.boot = self_.boot_id;
  options.peers = config_.peers;
  options.links_max = static_cast<uint32_t>(config_.control_links);
  net_.emplace(std::move(options), static_cast<core::PeerNetActions*>(this));
  spdlog::info("{} peers and control-links = {}: the others pass on what is for those without one",
               config_.peers.size(), config_.control_links);
}

bool Peers::is_relayed(const Peer& peer) const {
  return net_ && !net_->wants_link(peer.link.address());
}

Peers::Peer* Peers::by_address(const std::string& address) {
  const auto it = std::find_if(peers_.begin(), peers_.end(), [&address](const Peer& peer) {
    return peer.link.address() == address;
  });
  return it == peers_.end() ? nullptr : &*it;
}

// Who dials us wants a connection, whatever our configuration says.
void Peers::want_link(const wire::Hello& hello, core::Time now) {
  if (!net_) return;
  const AllowedKey* key = keys_ ? keys_->by_node(hello.node()) : nullptr;
  const std::string& address = key != nullptr ? key->address : hello.listens_at();
  if (by_address(address) != nullptr) return net_->link_wanted(address, now);
  // It names itself otherwise than it is named here: it may be any of those not met yet.
  for (const Peer& peer : peers_) {
    if (!peer.up) net_->link_wanted(peer.link.address(), now);
  }
}

// A channel that stands is what a connection is for the others: the hello comes next.
void Peers::greet_relayed(core::Time now) {
  if (!net_) return;
  for (Peer& peer : peers_) {
    if (peer.link.open() || now < peer.link.deadline() || !is_relayed(peer) ||
        !net_->relayed_is_up(peer.link.address())) {
      continue;
    }
    if (keys_ && keys_->by_address(peer.link.address()) == nullptr) {
      shut_out(peer, now);
      continue;
    }
    peer.link.begin_relayed(random_u64(), random_u64() | 1, now);
    commands_->post(ExpectPeer{peer.link.id(), peer.link.token()});
    say_hello(peer);
  }
}

void Peers::say(Peer& peer, const wire::PeerMessage& message) {
  if (is_relayed(peer)) {
    net_->send(peer.link.address(), message.SerializeAsString(), now_);
  } else {
    peer.link.send(message);
  }
}

bool Peers::take_relay(const Peer& peer, const wire::PeerMessage& message, core::Time now) {
  if (!message.has_relay() && !message.has_notices()) return false;
  if (!net_ || is_relayed(peer)) return true;
  if (message.has_notices()) {
    net_->on_notices(peer.link.address(), notices_of(message.notices()), now);
  } else if (auto parcel = parcel_of(message.relay())) {
    net_->on_parcel(peer.link.address(), std::move(*parcel), now);
  } else {
    ++malformed_;
  }
  return true;
}

// ---- what the net wants done ----

void Peers::pass(const std::string& link, const core::Parcel& parcel) {
  wire::PeerMessage message = to_wire(parcel);
  message.set_protocol(kPeerProtocols.newest);
  if (Peer* peer = by_address(link)) peer->link.offer(message);
}

void Peers::pass(const std::string& link, const std::vector<core::Notice>& notices) {
  wire::PeerMessage message = to_wire(notices);
  message.set_protocol(kPeerProtocols.newest);
  if (Peer* peer = by_address(link)) peer->link.send(message);
}

void Peers::relayed_up(const std::string&) {}  // greet_relayed() follows in the same turn

void Peers::relayed_down(const std::string& address, bool silent, const std::string& why) {
  // What it said of itself was for that channel.
  const auto greeter = greeters_.find(kRelayedRoute + address);
  const std::string greeted = greeter == greeters_.end() ? "" : greeter->second;
  Peer* peer = by_address(address);
  if (peer != nullptr && peer->link.open()) {
    lose(*peer, silent ? Cause::kPeerSilent : Cause::kPeerLost, why, now_);
  }
  if (!greeted.empty() && greeters_.count(kRelayedRoute + address) > 0) forget_greeting(greeted);
}

void Peers::relayed_message(const std::string& address, const std::string& body) {
  wire::PeerMessage message;
  if (!message.ParseFromString(body) || message.has_relay() || message.has_notices() ||
      message.body_case() == wire::PeerMessage::BODY_NOT_SET) {
    ++malformed_;
    return;
  }
  if (message.has_hello_reply()) {
    Peer* peer = by_address(address);
    if (peer != nullptr && peer->link.open()) on_reply(*peer, message, now_);
    return;
  }
  const std::string route = kRelayedRoute + address;
  if (!message.has_hello()) return take(route, std::move(message), now_);
  const AllowedKey* key = keys_ ? keys_->by_address(address) : nullptr;
  on_hello(route, key == nullptr ? "" : key->node, message, now_);
}

// ---- the data network ----

void Peers::connect_data(Peer& peer) {
  if (!peer.data) return;
  commands_->post(*std::exchange(peer.data, std::nullopt));
}

void Peers::need_data(const std::string& node) {
  needed_.insert(node);
  Peer* peer = by_node(node);
  if (peer != nullptr && peer->up) connect_data(*peer);
}

void Peers::watch_data(const std::string& node) {
  Peer* peer = by_node(node);
  if (peer == nullptr || !peer->up || peer->data_watched) return;
  peer->data_watched = true;
  data_watch_.add(node, now_);
  if (peer->lanes->count() > 1) {
    peer->lanes.emplace(peer->lanes->count(), watch_options(config_), now_);
    hold_ports(*peer, now_);
  }
}

}  // namespace gradring::daemon
