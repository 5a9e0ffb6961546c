// Peers that come and go by what discover says, and those that have more than one address.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "daemon/control/peers/peers.h"

namespace gradring::daemon {

bool Peers::is_own(const std::string& address) const {
  const auto& also = config_.listen_also;
  return address == config_.listen || own_addresses_.count(address) > 0 ||
         std::find(also.begin(), also.end(), address) != also.end();
}

// As long as the other way to the same daemon stands this one is not dialled: it would take the
// place of the first, and what is under way there would be lost.
bool Peers::is_spare(const Peer& peer) const {
  const Peer* const used = peer.spare_of.empty() ? nullptr : by_node(peer.spare_of);
  return used != nullptr && used != &peer && used->link.state() == PeerLink::State::kWelcomed;
}

// Its jobs wait for it, whatever a list says meanwhile: a name server leaves out who is not ready.
bool Peers::is_awaited(const Peer& peer) const {
  return !peer.up && !peer.node.empty() && away_.count(peer.node) > 0;
}

bool Peers::is_shown(const Peer& peer) const {
  // A name may have two addresses of each node: one of each family.
  return peer.up || is_awaited(peer) || (peer.listed && (peer.configured || !is_spare(peer)));
}

void Peers::found(const std::vector<std::string>& addresses) {
  std::set<std::string> fresh(addresses.begin(), addresses.end());
  std::erase_if(fresh, [this](const std::string& address) { return is_own(address); });
  if (fresh.size() > kPeersMax) {
    spdlog::error(
        "discover: {} addresses are named; the first {} are taken, which is what a "
        "daemon can have",
        fresh.size(), kPeersMax);
    fresh.erase(std::next(fresh.begin(), kPeersMax), fresh.end());
  }
  size_t gone = 0;
  for (Peer& peer : peers_) {
    const bool named = fresh.erase(peer.link.address()) > 0;
    if (peer.configured) continue;
    if (peer.listed && !named) ++gone;
    peer.listed = named;
  }
  for (const std::string& address : fresh) add(address);
  spdlog::info("discover: {} peers, {} of them new, {} gone", count(), fresh.size(), gone);
}

void Peers::add(const std::string& address) {
  retire();
  const auto free = std::find_if(peers_.begin(), peers_.end(), [this](const Peer& peer) {
    return !peer.listed && !peer.up && !is_awaited(peer);
  });
  Peer* peer = free == peers_.end() ? nullptr : &*free;
  if (peer == nullptr) {
    peer = &peers_.emplace_back(PeerLink(static_cast<PeerId>(peers_.size()), address));
  } else {
    peer->link.readdress(address);
  }
  peer->configured = false;
  peer->listed = true;
  peer->spare_of.clear();
}

// One that is up stays in use: that a list has lost it says nothing of it.
void Peers::retire() {
  for (Peer& peer : peers_) {
    if (peer.listed || peer.up || is_awaited(peer) || (!peer.link.open() && peer.node.empty())) {
      continue;
    }
    peer.link.drop("no longer in discover", now_);
    peer.node.clear();
    peer.version.clear();
    peer.told.clear();
    peer.boot_id = 0;
    peer.refused = false;
    peer.up_since = peer.heard = 0;
    peer.traffic = {};
    paths_.forget(peer.link.id());
  }
}

const Peers::Peer* Peers::met_elsewhere(const Peer& peer, const wire::HelloReply& answer) const {
  if (peer.link.state() != PeerLink::State::kGreeting ||
      answer.connection() != peer.link.connection()) {
    return nullptr;
  }
  const Peer* const same = by_node(answer.node());
  return same != nullptr && same != &peer && same->link.state() == PeerLink::State::kWelcomed &&
                 same->boot_id == answer.boot_id()
             ? same
             : nullptr;
}

void Peers::set_aside(Peer& peer, const Peer& same) {
  peer.spare_of = same.node;
  peer.node.clear();
  const std::string why =
      fmt::format("it is node {}, which is connected as {}", same.node, same.link.address());
  if (peer.configured) return refuse(peer, why + "; name each node once");
  peer.told = why;
  peer.link.mark_broken(why);
}

}  // namespace gradring::daemon
