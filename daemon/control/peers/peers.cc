#include "daemon/control/peers/peers.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/control/door/doorkeeper.h"
#include "daemon/control/door/router_names.h"
#include "daemon/control/door/unheard.h"
#include "daemon/control/sessions/sessions.h"
#include "proto/version.h"

namespace gradring::daemon {
namespace {

// A view of a very large job: a million ranks of some 16 bytes.
constexpr int64_t kPeerMessageMax = 32 << 20;

constexpr int kPeerMessagesPerTurn = 256;

// Of all greetings together; the largest view, once read, is some 200 MB.
constexpr size_t kEarlyGreetingsMax = 1024;
constexpr size_t kEarlyGreetingBytesMax = 512 << 20;

}  // namespace

Peers::Peers(zmq::context_t* context, const Config& config, const OwnIdentity& self,
             CommandBox* commands, PeerEvents* events)
    : context_(context),
      config_(config),
      self_(self),
      commands_(commands),
      events_(events),
      control_watch_(watch_options(config)),
      data_watch_(watch_options(config)) {
  for (PeerId id = 0; id < config.peers.size(); ++id) {
    peers_.emplace_back(PeerLink(id, config.peers[id]));
  }
}

Status Peers::open() {
  if (!config_.key_file.empty()) {
    // Both were readable a moment ago, when the configuration was checked.
    auto own = read_key_file(config_.key_file);
    if (!own) return {Code::kInvalidArgument, own.error()};
    auto allowed = read_allowed_keys(config_.allowed_keys_file);
    if (!allowed) return {Code::kInvalidArgument, allowed.error()};
    own_key_ = std::move(*own);
    keys_.emplace(context_, std::move(*allowed));
  }
  router_ = make_router(context_);
  router_.set(zmq::sockopt::linger, 0);
  router_.set(zmq::sockopt::maxmsgsize, kPeerMessageMax);
  router_.set(zmq::sockopt::handshake_ivl, 5000);
  // A host that vanished leaves its connection behind; the kernel clears it away.
  router_.set(zmq::sockopt::tcp_keepalive, 1);
  router_.set(zmq::sockopt::tcp_keepalive_idle, 10);
  router_.set(zmq::sockopt::tcp_keepalive_intvl, 5);
  router_.set(zmq::sockopt::tcp_keepalive_cnt, 3);
  const auto is_ipv6 = [](const std::string& address) { return address.front() == '['; };
  router_.set(zmq::sockopt::ipv6,
              is_ipv6(config_.listen) ||
                  std::any_of(config_.listen_also.begin(), config_.listen_also.end(), is_ipv6));
  if (own_key_) {
    router_.set(zmq::sockopt::curve_server, true);
    router_.set(zmq::sockopt::curve_secretkey, own_key_->secret_key);
    router_.set(zmq::sockopt::zap_domain, std::string(kZapDomain));
  }
  if (Status status = bind("listen", config_.listen); !status.ok()) return status;
  for (const std::string& also : config_.listen_also) {
    if (Status status = bind("listen-also", also); !status.ok()) return status;
  }
  give_all_names(&router_);
  open_net();
  return {};
}

Status Peers::bind(const char* option, const std::string& address) {
  if (zmq_bind(router_.handle(), ("tcp://" + address).c_str()) == 0) {
    if (const auto at = parse_host_port(address)) guard_peers_port(at->port);
    return {};
  }
  switch (zmq_errno()) {
    case EADDRINUSE:
      return {Code::kUnavailable,
              fmt::format("{}: {} is in use by another program; stop it or choose another port",
                          option, address)};
    case EADDRNOTAVAIL:
    case ENODEV:
      return {Code::kUnavailable,
              fmt::format("{}: no network interface of this machine has the address of {}", option,
                          address)};
    default:
      return {Code::kUnavailable,
              fmt::format("{}: {}: {}", option, address, zmq_strerror(zmq_errno()))};
  }
}

// What was let in by a key that is gone ends: the connection to such a node here, with the next
// turn, and the node's own to us in that nothing is believed of it any more, another hello either.
void Peers::set_allowed_keys(std::vector<AllowedKey> keys) {
  if (!keys_) return;
  const std::set<std::string> gone = keys_->set_keys(std::move(keys));
  for (Peer& peer : peers_) {
    if (gone.count(peer.node) == 0 || !peer.link.open()) continue;
    peer.link.mark_broken("its key was taken out of allowed-keys");
  }
  for (const std::string& node : gone) {
    const Peer* const peer = by_node(node);
    if (peer != nullptr && peer->up) continue;  // lose() does it
    forget_greeting(node);
  }
}

void Peers::add_poll_items(std::vector<zmq_pollitem_t>* items) {
  items->push_back({router_.handle(), 0, ZMQ_POLLIN, 0});
  items->push_back({nullptr, names_.event_fd(), ZMQ_POLLIN, 0});
  if (keys_) items->push_back({keys_->socket(), 0, ZMQ_POLLIN, 0});
  for (Peer& peer : peers_) {
    if (!peer.link.has_socket()) continue;
    items->push_back({peer.link.monitor(), 0, ZMQ_POLLIN, 0});
    items->push_back({peer.link.socket(), 0, ZMQ_POLLIN, 0});
  }
}

int Peers::do_work(std::span<const zmq_pollitem_t> items, core::Time now) {
  const bool anything = std::any_of(items.begin(), items.end(),
                                    [](const zmq_pollitem_t& item) { return item.revents != 0; });
  int work = 0;
  now_ = now;
  if (anything) {
    names_.hear();
    if (keys_) work += keys_->do_work(now);
    work += watch_links(items, now);
    work += hear(now);
  }
  work += settle_lanes();
  work += drop_broken(now);
  retire();
  work += dial_waiting(now);
  if (net_ && now >= net_->next_deadline()) net_->tick(now);
  greet_relayed(now);
  return work;
}

// What our own connections tell: made, broken, answered.
int Peers::watch_links(std::span<const zmq_pollitem_t> items, core::Time now) {
  int work = 0;
  for (Peer& peer : peers_) {
    if (!peer.link.has_socket()) continue;
    const bool readable = std::any_of(items.begin(), items.end(), [&](const zmq_pollitem_t& item) {
      return item.revents != 0 &&
             (item.socket == peer.link.monitor() || item.socket == peer.link.socket());
    });
    if (!readable) continue;
    while (const auto happening = peer.link.next_happening()) {
      ++work;
      if (*happening == PeerLink::Happening::kConnected) {
        say_hello(peer);
      } else {
        if (peer.link.handshake_refused()) {
          refuse(peer, peer.link.reason());
        } else {
          peer.link.mark_broken(peer.link.reason());
        }
      }
    }
    while (const auto message = peer.link.next_reply()) {
      ++work;
      on_reply(peer, *message, now);
    }
  }
  return work;
}

// What the peers say, on their own connections to us.
int Peers::hear(core::Time now) {
  for (int work = 0; work < kPeerMessagesPerTurn; ++work) {
    zmq::message_t id, body;
    if (!router_.recv(id, zmq::recv_flags::dontwait)) return work;
    if (!id.more()) continue;
    (void)router_.recv(body, zmq::recv_flags::dontwait);
    has_greeted(zmq_msg_get(body.handle(), ZMQ_SRCFD));
    bool whole = !body.more();
    for (zmq::message_t rest;
         !whole && router_.recv(rest, zmq::recv_flags::dontwait) && rest.more();) {
    }
    const std::string routing_id = id.to_string();
    if (routing_id.starts_with(kRelayedRoute)) {  // chosen by the other side, to seem another
      ++malformed_;
      continue;
    }
    wire::PeerMessage message;
    if (!whole || !message.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
        message.body_case() == wire::PeerMessage::BODY_NOT_SET) {
      ++malformed_;
      continue;
    }
    if (message.has_hello()) {
      const std::string user = user_of(body);
      if (!keys_ || !user.empty()) want_link(message.hello(), now);
      on_hello(routing_id, user, message, now);
    } else {
      take(routing_id, std::move(message), now);
    }
  }
  return kPeerMessagesPerTurn;
}

// Whose key the connection has by which this came, as the list is now; empty: nobody's, or there
// are no keys.
std::string Peers::user_of(zmq::message_t& message) const {
  const char* const let_in_by = zmq_msg_gets(message.handle(), "User-Id");
  if (!keys_ || let_in_by == nullptr) return "";
  const AllowedKey* const key = keys_->by_key(let_in_by);
  return key == nullptr ? "" : key->node;
}

void Peers::take(const std::string& routing_id, wire::PeerMessage message, core::Time now) {
  const auto greeter = greeters_.find(routing_id);
  if (greeter == greeters_.end()) {
    return reply(routing_id, false, "this connection is over; say hello again", 0);
  }
  Peer* peer = by_node(greeter->second);
  if (peer != nullptr && peer->up) {
    dispatch(*peer, message, now);
  } else if (!message.has_heartbeat()) {
    keep_early(greeter->second, std::move(message));
  }
}

void Peers::keep_early(const std::string& node, wire::PeerMessage message) {
  size_t kept = 0, bytes = message.SpaceUsedLong();
  for (const auto& [other, greeting] : greetings_) {
    kept += greeting.early.size();
    bytes += greeting.early_bytes;
  }
  Greeting& greeting = greetings_.at(node);
  if (kept < kEarlyGreetingsMax && bytes <= kEarlyGreetingBytesMax) {
    greeting.early_bytes += message.SpaceUsedLong();
    greeting.early.push_back(std::move(message));
    return;
  }
  // To go on without one of them would leave jobs that wait for its answer.
  const std::string routing_id = greeting.routing_id;
  forget_greeting(node);
  reply(routing_id, false, "too much was said before the welcome; say hello again", 0);
}

void Peers::dispatch(Peer& peer, const wire::PeerMessage& message, core::Time now) {
  peer.heard = now;
  control_watch_.heard(peer.node, now);
  if (take_relay(peer, message, now)) return;
  if (!message.has_heartbeat()) return events_->peer_message(peer.node, message);
  peer.ends = message.heartbeat().ends();
  if (message.heartbeat().has_heard_lanes()) {
    peer.lanes->peer_hears(message.heartbeat().heard_lanes(), now);
  }
  const auto& progress = message.heartbeat().progress();
  if (progress.empty() || progress[0] == peer.progress) return;
  peer.progress = progress[0];
  peer.progressed = now;
}

int Peers::drop_broken(core::Time now) {
  int work = 0;
  for (Peer& peer : peers_) {
    if (peer.lost) {
      lose(peer, Cause::kPeerLost, "data connection: " + *peer.lost, now);
      ++work;
    } else if (peer.link.broken()) {
      lose(peer, Cause::kPeerLost, peer.link.reason(), now);
      ++work;
    } else if (peer.link.open() && peer.link.state() != PeerLink::State::kWelcomed &&
               now >= peer.link.deadline()) {
      lose(peer, Cause::kPeerLost, peer.link.why_unanswered(), now);
      ++work;
    }
  }
  return work;
}

void Peers::shut_out(Peer& peer, core::Time now) {
  refuse(peer, "allowed-keys has no line for it any more");
  peer.link.drop("", now);
}

int Peers::dial_waiting(core::Time now) {
  int work = 0;
  for (Peer& peer : peers_) {
    if (peer.link.awaits_address()) peer.link.go_on(now);
    if (!(peer.listed || is_awaited(peer)) || peer.link.open() || now < peer.link.deadline() ||
        is_relayed(peer) || is_spare(peer)) {
      continue;
    }
    PeerLink::Dial dial;
    dial.context = context_;
    if (keys_) {
      const AllowedKey* key = keys_->by_address(peer.link.address());
      if (key == nullptr) {
        shut_out(peer, now);
        continue;
      }
      dial.own_public = own_key_->public_key;
      dial.own_secret = own_key_->secret_key;
      dial.server_key = key->public_key;
    }
    dial.names = &names_;
    dial.names_by_ipv6 = config_.listen.front() == '[';  // as the others listen, too
    dial.connection = random_u64();
    dial.token = random_u64() | 1;  // never 0, which means none
    peer.link.dial(dial, now);
    commands_->post(ExpectPeer{peer.link.id(), peer.link.token()});
    ++work;
  }
  return work;
}

core::Time Peers::next_deadline() const {
  core::Time next = std::numeric_limits<core::Time>::max();
  for (const Peer& peer : peers_) {
    const bool dialled = (peer.listed || is_awaited(peer)) && !is_spare(peer);
    if (!peer.link.open() && !dialled) continue;
    const bool waits_for_channel =
        !peer.link.open() && is_relayed(peer) && !net_->relayed_is_up(peer.link.address());
    if (peer.link.state() != PeerLink::State::kWelcomed && !waits_for_channel)
      next = std::min(next, peer.link.deadline());
    if (peer.link.broken() || peer.lost || (peer.up && peer.lanes->changed())) return 0;
  }
  if (net_) next = std::min(next, net_->next_deadline());
  return next;
}

void Peers::tick(core::Time now) {
  ++heartbeats_;
  now_ = now;
  for (Peer& peer : peers_) {
    // Who has forgotten our connection answers so.
    const bool half = !peer.up && peer.link.state() == PeerLink::State::kWelcomed;
    if (half && !is_relayed(peer)) say_heartbeat(peer);
    if (!peer.up) continue;
    // One that others speak for needs to hear of its lanes alone.
    const bool lanes = peer.data_watched && peer.lanes->count() > 1;
    if (!is_relayed(peer) || lanes) say_heartbeat(peer);
  }
  watch(control_watch_, "control", now);
  look_for_other_ways(now);
  give_up_absent(now);
}

void Peers::say_heartbeat(Peer& peer) {
  wire::PeerMessage message;
  message.set_protocol(kPeerProtocols.newest);
  message.mutable_heartbeat()->set_sequence(heartbeats_);
  message.mutable_heartbeat()->set_ends(ends_);
  message.mutable_heartbeat()->add_progress(own_progress_);
  if (peer.up) message.mutable_heartbeat()->set_heard_lanes(peer.lanes->heard_lanes());
  say(peer, message);
}

bool Peers::send(const std::string& node, wire::PeerMessage message) {
  Peer* peer = by_node(node);
  if (peer == nullptr || !peer->up) return false;
  message.set_protocol(kPeerProtocols.newest);
  if (is_relayed(*peer)) {
    return net_->send(peer->link.address(), message.SerializeAsString(), now_);
  }
  return peer->link.send(message);
}

Peers::Peer* Peers::by_node(const std::string& node) {
  return const_cast<Peer*>(std::as_const(*this).by_node(node));
}

const Peers::Peer* Peers::by_node(const std::string& node) const {
  const Peer* found = nullptr;
  for (const Peer& peer : peers_) {
    if (peer.node != node || peer.refused) continue;
    if (peer.up) return &peer;
    if (found == nullptr || peer.link.state() == PeerLink::State::kWelcomed) found = &peer;
  }
  return found;
}

void Peers::linger(int milliseconds) {
  router_.set(zmq::sockopt::linger, milliseconds);
  for (Peer& peer : peers_) {
    if (peer.link.has_socket()) peer.link.linger(milliseconds);
  }
}

}  // namespace gradring::daemon
