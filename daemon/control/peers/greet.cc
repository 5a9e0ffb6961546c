// How two daemons meet: hello, and the answer to it.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/control/peers/peers.h"
#include "daemon/wire/peer_wire.h"
#include "proto/bundle.h"
#include "proto/version.h"

namespace gradring::daemon {
namespace {

// Mostly the addresses of its lanes, of some hundred bytes each.
constexpr size_t kHelloMax = 256 << 10;

// A year; keeps sums with the clock in range.
constexpr uint64_t kGraceMax = 365ull * 24 * 3600 * 1000;

// Nodes that greet us without being our peers; more than any cluster has.
constexpr size_t kGreetingsMax = 4096;

std::vector<std::string> other_ways_to(const wire::Hello& hello) {
  std::vector<std::string> ways;
  for (const std::string& also : hello.also_listens_at()) {
    if (parse_host_port(also)) ways.push_back(also);
  }
  return ways;
}

std::vector<std::string> data_addresses_of(const wire::Hello& hello) {
  std::vector<std::string> addresses = {hello.data_address()};
  for (const std::string& address : hello.more_data_addresses()) addresses.push_back(address);
  return addresses;
}

}  // namespace

void Peers::say_hello(Peer& peer) {
  peer.link.greeted();
  wire::PeerMessage message;
  message.set_protocol(kPeerProtocols.newest);
  wire::Hello* hello = message.mutable_hello();
  hello->set_oldest_protocol(kPeerProtocols.oldest);
  hello->set_node(self_.node);
  hello->set_boot_id(self_.boot_id);
  hello->set_connection(peer.link.connection());
  hello->set_product_version(kProductVersion);
  hello->set_transport(self_.transport);
  hello->set_data_address(self_.data_addresses.front());
  for (size_t lane = 1; lane < self_.data_addresses.size(); ++lane) {
    hello->add_more_data_addresses(self_.data_addresses[lane]);
  }
  for (const std::string& host : self_.lane_hosts) hello->add_lane_hosts(host);
  hello->set_data_token(peer.link.token());
  for (const std::string& also : config_.listen_also) hello->add_also_listens_at(also);
  hello->set_slice_bytes(self_.slice_bytes);
  hello->set_slots(self_.slots);
  hello->set_bundle_bytes(kBundleBytesMax);
  hello->set_probes(true);
  hello->set_relays(net_.has_value());
  hello->set_listens_at(net_ ? net_->self() : config_.listen);
  hello->set_life(life_);
  hello->set_restart_grace_ms(static_cast<uint64_t>(restart_grace_ / core::kMillisecond));
  for (const Peer& other : peers_) {
    const bool may_be_it = peer.node.empty() || peer.node == other.node;
    if (&other == &peer || !may_be_it || other.link.state() != PeerLink::State::kWelcomed) continue;
    hello->add_standing(other.link.connection());
  }
  say(peer, message);
}

// ---- the answer to our hello ----

void Peers::on_reply(Peer& peer, const wire::PeerMessage& message, core::Time now) {
  if (!message.has_hello_reply()) return;
  const wire::HelloReply& answer = message.hello_reply();
  if (answer.ByteSizeLong() > kHelloMax || answer.node().size() > kNodeNameMax) {
    return peer.link.mark_broken("it answers with a malformed hello");
  }
  if (answer.boot_id() == self_.boot_id && !peer.configured) {  // the list is the same on all nodes
    own_addresses_.insert(peer.link.address());
    peer.listed = false;
    return;  // retire() follows in the same turn
  }
  if (const Peer* same = met_elsewhere(peer, answer)) return set_aside(peer, *same);
  if (!answer.welcome()) {
    // To an old connection of ours that the peer has given up, or a refusal for a person to read.
    if (peer.link.state() != PeerLink::State::kWelcomed) {
      if (peer.node.empty()) peer.node = answer.node();  // whom jobs may wait for
      return refuse(peer, answer.reason());
    }
    peer.gave_us_up = true;
    return peer.link.mark_broken("it gave up the connection");
  }
  if (answer.connection() != peer.link.connection() ||
      peer.link.state() != PeerLink::State::kGreeting) {
    return;
  }
  if (answer.node() == self_.node) {
    return refuse(peer, answer.boot_id() == self_.boot_id
                            ? "it is this daemon itself; take it out of peer"
                            : fmt::format("its node id is {} too; give each daemon its own node",
                                          answer.node()));
  }
  if (keys_) {
    const AllowedKey* key = keys_->by_address(peer.link.address());
    if (key == nullptr || key->node != answer.node()) {
      return refuse(peer,
                    fmt::format("it says it is node {}, and allowed-keys lists that address as {}",
                                answer.node(), key == nullptr ? "nobody" : key->node));
    }
  }
  for (const Peer& other : peers_) {
    if (&other == &peer || other.node != answer.node() || other.refused ||
        other.link.state() != PeerLink::State::kWelcomed) {
      continue;
    }
    return refuse(
        peer, fmt::format("it says it is node {}, and so does {}; give each daemon its own node",
                          answer.node(), other.link.address()));
  }
  peer.node = answer.node();
  peer.boot_id = answer.boot_id();
  peer.refused = false;
  peer.spare_of.clear();
  peer.link.welcomed();
  // A ROUTER does not hear that a connection has ended: the hello that came by it would do for a
  // greeting, we would call the peer up, and its next hello would have us give it up in turn.
  const auto old = greetings_.find(peer.node);
  if (answer.gave_up() != 0 && old != greetings_.end() &&
      old->second.connection == answer.gave_up()) {
    forget_greeting(peer.node);
  }
  try_up(peer.node, now);
}

void Peers::refuse(Peer& peer, const std::string& why) {
  if (peer.told != why) spdlog::error("peer {} cannot be used: {}", peer.link.address(), why);
  peer.told = why;
  peer.refused = true;
  peer.link.mark_broken(why);
}

// ---- a hello to us ----

void Peers::on_hello(const std::string& routing_id, const std::string& user,
                     const wire::PeerMessage& message, core::Time now) {
  const wire::Hello& hello = message.hello();
  const std::string objection = objection_to(hello, user, message.protocol());
  if (!objection.empty()) return reply(routing_id, false, objection, hello.connection());

  uint64_t gave_up = 0;
  const auto known = greetings_.find(hello.node());
  if (known != greetings_.end()) {
    // Else a second name of this node in a list would end the connection that jobs use.
    const auto& standing = hello.standing();
    if (known->second.boot_id == hello.boot_id() &&
        std::find(standing.begin(), standing.end(), known->second.connection) != standing.end()) {
      return reply(routing_id, false, "your connection by another address stands",
                   hello.connection());
    }
    const bool restarted = known->second.boot_id != hello.boot_id();
    Peer* peer = by_node(hello.node());
    if (peer != nullptr && peer->up) {
      peer->gave_us_up = !restarted;
      gave_up = peer->link.connection();
      lose(*peer, Cause::kPeerLost, restarted ? "was restarted" : "connected anew", now,
           !restarted && may_come_round(*peer, now));
    }
  }
  // That may have ended the channel that it came by.
  if (routing_id.starts_with(kRelayedRoute) &&
      !net_->relayed_is_up(routing_id.substr(std::strlen(kRelayedRoute)))) {
    return;
  }
  forget_greeting(hello.node());
  greeters_[routing_id] = hello.node();
  greetings_[hello.node()] = {
      routing_id,
      hello.boot_id(),
      hello.connection(),
      other_ways_to(hello),
      data_addresses_of(hello),
      {hello.lane_hosts().begin(), hello.lane_hosts().end()},
      hello.data_token(),
      hello.bundle_bytes(),
      hello.probes(),
      hello.product_version(),
      hello.life(),
      static_cast<core::Time>(std::min(hello.restart_grace_ms(), kGraceMax)) * core::kMillisecond,
      hello.relays(),
      {},
      0};
  reply(routing_id, true, "", hello.connection(), gave_up);
  try_up(hello.node(), now);
}

std::string Peers::objection_to(const wire::Hello& hello, const std::string& user,
                                uint32_t protocol) const {
  const Protocols theirs{hello.oldest_protocol(), protocol};
  if (!common_protocol(kPeerProtocols, theirs)) {
    return fmt::format(
        "node {} (gradringd {}) speaks peer protocol {}, {} ({}) speaks {}; install the "
        "same release on both",
        self_.node, kProductVersion, describe(kPeerProtocols), hello.node(),
        hello.product_version(), describe(theirs));
  }
  if (hello.node().empty() || hello.node().size() > kNodeNameMax || hello.data_token() == 0 ||
      hello.ByteSizeLong() > kHelloMax) {
    return "malformed hello";
  }
  if (hello.node() == self_.node) {
    return fmt::format("node id {} is also that of the daemon at {}; give each its own node",
                       self_.node, config_.listen);
  }
  if (keys_ && user.empty()) {
    return fmt::format(
        "node {} has another key in allowed-keys of node {}, or none; restart it with "
        "its new key",
        hello.node(), self_.node);
  }
  if (keys_ && user != hello.node()) {
    return fmt::format("the key of node {} was used by a daemon that says it is node {}", user,
                       hello.node());
  }
  if (hello.transport() != self_.transport) {
    return fmt::format(
        "node {} moves data with {}, node {} with {}; install the same release on both, with one "
        "tcp-by",
        self_.node, self_.transport, hello.node(), hello.transport());
  }
  if (hello.slice_bytes() != self_.slice_bytes || hello.slots() != self_.slots) {
    return fmt::format(
        "node {} cuts slices of {} bytes and has {} slots, node {} says {} and {}; set "
        "slice-bytes and slots alike on all nodes",
        self_.node, self_.slice_bytes, self_.slots, hello.node(), hello.slice_bytes(),
        hello.slots());
  }
  // Who comes to a cluster may find us before we find it, and who was refused may come mended.
  const bool all_known =
      config_.discover.empty() && std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
        return !peer.node.empty() && !peer.refused;
      });
  const Peer* const same = by_node(hello.node());
  if (same == nullptr) {
    if (all_known || greetings_.size() >= kGreetingsMax) {
      return fmt::format(
          "node {} is not in the peer list of node {}; add its address there as peer", hello.node(),
          self_.node);
    }
  } else if (same->link.state() == PeerLink::State::kWelcomed && same->boot_id != hello.boot_id()) {
    // After a restart our own connection to the old life breaks within moments, and the next try is
    // let in.
    return fmt::format(
        "node id {} belongs to the daemon at {}, which is alive; give each its own node",
        hello.node(), same->link.address());
  }
  return "";
}

void Peers::reply(const std::string& routing_id, bool welcome, const std::string& reason,
                  uint64_t connection, uint64_t gave_up) {
  wire::PeerMessage message;
  message.set_protocol(kPeerProtocols.newest);
  wire::HelloReply* answer = message.mutable_hello_reply();
  answer->set_welcome(welcome);
  answer->set_reason(reason);
  answer->set_node(self_.node);
  answer->set_connection(connection);
  answer->set_boot_id(self_.boot_id);
  answer->set_gave_up(gave_up);
  const std::string bytes = message.SerializeAsString();
  if (routing_id.starts_with(kRelayedRoute)) {
    net_->send(routing_id.substr(std::strlen(kRelayedRoute)), bytes, now_);
    return;
  }
  // Whoever does not read the answer will try again.
  if (zmq_send(router_.handle(), routing_id.data(), routing_id.size(),
               ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) {
    zmq_send(router_.handle(), bytes.data(), bytes.size(), ZMQ_DONTWAIT);
  }
}

}  // namespace gradring::daemon
