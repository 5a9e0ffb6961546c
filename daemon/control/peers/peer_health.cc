// Who is heard, on which lanes, and what follows from silence.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/control/peers/peers.h"
#include "daemon/notice.h"

namespace gradring::daemon {

core::FailureDetector::Options watch_options(const Config& config) {
  return {config.suspect, config.decide};
}

// A control connection that is as silent as a lane, while other lanes are heard: that is one card.
void Peers::look_for_other_ways(core::Time now) {
  for (Peer& peer : peers_) {
    if (!peer.up || peer.lanes->doubtful_lanes(now) == 0 || !may_come_round(peer, now)) continue;
    const core::Time silent = control_watch_.silent_for(peer.node, now);
    if (silent < config_.suspect) continue;
    lose(peer, Cause::kPeerSilent, silence_of(peer, "control", silent, now), now, true);
  }
}

// It may well be back, started anew with other settings or another release.
std::string Peers::why_absent(const std::string& node) const {
  for (const Peer& peer : peers_) {
    if (peer.node == node && peer.refused) {
      return fmt::format("its daemon is there and cannot be used: {}", peer.told);
    }
  }
  return "its daemon did not come back in time";
}

void Peers::give_up_absent(core::Time now) {
  for (auto it = away_.begin(); it != away_.end();) {
    if (now < it->second.until) {
      ++it;
      continue;
    }
    const std::string node = it->first;
    const std::string why = why_absent(node);
    it = away_.erase(it);
    tell(Notice::kPeerLost, spdlog::level::warn, {{"GRADRING_PEER", node}},
         fmt::format("peer {} is lost: {}", node, why));
    events_->peer_lost(node, Cause::kPeerLost, why);
  }
}

void Peers::on_pulse(const Pulse& pulse, core::Time now) {
  own_progress_ = pulse.progress;
  counted_at_ = pulse.at;
  for (Peer& peer : peers_) {
    if (peer.link.id() >= pulse.peers.size()) continue;
    peer.traffic = pulse.peers[peer.link.id()];
    if (!peer.up || peer.traffic.link != peer.link.number()) continue;
    const auto lanes = static_cast<uint8_t>(peer.traffic.lanes.size());
    for (uint8_t lane = 0; lane < lanes; ++lane) {
      if (!peer.traffic.lanes[lane].heard) continue;
      data_watch_.heard(peer.node, now);
      peer.lanes->heard(lane, now);
      peer.link.heard();
    }
  }
  measure_paths(now);
  // Driven by our data thread's own pulse: when it does not run, it may blame nobody for silence.
  watch(data_watch_, "data", now);
  for (Peer& peer : peers_) {
    if (peer.up && peer.data_watched && peer.lanes->count() > 1) peer.lanes->tick(now);
  }
  settle_lanes();
}

// Not while nothing is sent: then there is nothing to learn.
void Peers::measure_paths(core::Time now) {
  uint64_t sent = 0;
  for (const Peer& peer : peers_) sent += peer.traffic.sent_bytes();
  if (std::exchange(measured_at_, sent) == sent) return;
  // Of an address: several daemons may share a machine, ours too.
  std::map<std::string, int> owners;
  for (const std::string& host : self_.lane_hosts) ++owners[host];
  for (const Peer& peer : peers_) {
    for (const std::string& host : peer.lane_hosts) owners[host] += peer.up ? 1 : 0;
  }
  const std::vector<TcpPath> paths = own_tcp_paths();
  for (const Peer& peer : peers_) {
    if (!peer.up) continue;
    const size_t lanes = std::min(peer.lane_hosts.size(), self_.lane_hosts.size());
    for (size_t lane = 0; lane < lanes; ++lane) {
      const std::string& host = peer.lane_hosts[lane];
      if (owners[host] > 1) continue;
      const uint64_t rate = delivery_rate_between(paths, self_.lane_hosts[lane], host);
      if (rate > 0) paths_.measured(peer.link.id(), static_cast<uint8_t>(lane), rate, now);
    }
  }
}

// What the lanes' loss and recovery ask for.
int Peers::settle_lanes() {
  int work = 0;
  for (Peer& peer : peers_) {
    if (!peer.up) continue;
    for (const core::PeerLanes::Change& change : peer.lanes->take_changes()) {
      ++work;
      using State = core::PeerLanes::State;
      const SetLane::To to = change.to == State::kUp       ? SetLane::To::kCarries
                             : change.to == State::kTrying ? SetLane::To::kTried
                                                           : SetLane::To::kClosed;
      commands_->post(SetLane{peer.link.id(), peer.link.number(), change.lane, to});
      const std::string name = fmt::format("lane {} ({})", change.lane, self_.devices[change.lane]);
      if (change.to == State::kUp) {
        tell(Notice::kLaneBack, spdlog::level::info, {{"GRADRING_PEER", peer.node}},
             fmt::format("peer {}: {} carries slices again", peer.node, name));
      } else if (change.was_used && !peer.lanes->any_up()) {
        peer.lost = peer.lanes->count() == 1 ? change.why : "the last lane is lost: " + change.why;
      } else if (change.was_used) {
        const std::string why =
            fmt::format("{} to node {} was lost: {}", name, peer.node, change.why);
        tell(Notice::kLaneLost, spdlog::level::warn, {{"GRADRING_PEER", peer.node}},
             fmt::format("peer {}: {}; the others go on", peer.node, why));
        events_->lane_lost(peer.node, why);
      }
    }
  }
  return work;
}

void Peers::port_down(uint8_t lane, const std::string& why, core::Time now) {
  ports_down_[lane] = why;
  now_ = now;
  for (Peer& peer : peers_) {
    if (!peer.up || !peer.data_watched) continue;
    hold_ports(peer, now);
    // The other end gives the lane up when it hears of it, and need not wait for the next beat.
    if (peer.lanes->changed()) say_heartbeat(peer);
  }
  settle_lanes();
}

void Peers::port_active(uint8_t lane) {
  ports_down_.erase(lane);
  for (Peer& peer : peers_) {
    if (peer.up && peer.data_watched) peer.lanes->port_active(lane);
  }
}

void Peers::hold_ports(Peer& peer, core::Time now) {
  for (const auto& [lane, why] : ports_down_) peer.lanes->port_down(lane, why, now);
}

void Peers::watch(core::FailureDetector& detector, const char* plane, core::Time now) {
  using Health = core::FailureDetector::Health;
  for (const auto& change : detector.tick(now)) {
    Peer* peer = by_node(change.peer);
    if (peer == nullptr || !peer->up) continue;
    if (change.health == Health::kAlive) {
      tell(Notice::kPeerUp, spdlog::level::info, {{"GRADRING_PEER", change.peer}},
           fmt::format("peer {} is heard again", change.peer));
      events_->peer_suspect(change.peer, false);
      continue;
    }
    const std::string silence = silence_of(*peer, plane, change.silent, now);
    const bool comes_round = plane == std::string_view("control") && may_come_round(*peer, now);
    if (change.health == Health::kSuspect) {
      tell(Notice::kPeerSuspected, spdlog::level::warn, {{"GRADRING_PEER", change.peer}},
           fmt::format("peer {}: {}", change.peer, silence));
      if (!comes_round) events_->peer_suspect(change.peer, true);
    } else {
      lose(*peer, Cause::kPeerSilent, silence, now, comes_round);
    }
  }
}

std::string Peers::silence_of(const Peer& peer, const char* plane, core::Time silent,
                              core::Time now) const {
  const double seconds = static_cast<double>(silent) / core::kSecond;
  const bool control_silent = control_watch_.silent_for(peer.node, now) >= config_.suspect;
  const bool data_silent = data_watch_.silent_for(peer.node, now) >= config_.suspect;
  if (control_silent && data_silent) return fmt::format("silent for {:.1f} s", seconds);
  if (plane == std::string_view("control")) {
    return fmt::format("control connection silent for {:.1f} s while the data network is alive",
                       seconds);
  }
  if (!is_relayed(peer) && now - peer.progressed >= config_.suspect) {
    return fmt::format(
        "its data thread has not moved for {:.1f} s while its control thread is alive", seconds);
  }
  const std::string devices = fmt::format("{}", fmt::join(self_.devices, ", "));
  // Mostly a firewall that lets the control port alone pass.
  if (is_unheard(peer, now)) {
    return fmt::format(
        "nothing came by the data network ({}) in the {:.1f} s since the control connection "
        "stands; do firewalls let the data ports pass (docs/configure.md#ports)?",
        devices, seconds);
  }
  return fmt::format("data network ({}) silent for {:.1f} s while the control connection is alive",
                     devices, seconds);
}

// Not one heartbeat by the data network, though there was time, or there is no way by it: a
// firewall may say so at once.
bool Peers::is_unheard(const Peer& peer, core::Time now) const {
  const core::Time stands = now - peer.up_since;
  return peer.data_watched && (stands >= config_.suspect || peer.lost) &&
         data_watch_.silent_for(peer.node, now) >= stands;
}

PeerLink::Was Peers::how_it_stood(const Peer& peer, bool gave_us_up, core::Time now) const {
  if (is_unheard(peer, now)) return PeerLink::Was::kUnheard;
  // Given up at once: it may not have known our connection, nor we that it did not. Time to find
  // out, else the two of us would give each other up in turn for ever.
  const bool brief = gave_us_up && peer.link.broken() && now - peer.up_since < 2 * config_.pulse();
  return brief ? PeerLink::Was::kBrief : PeerLink::Was::kNothing;
}

// For how long this daemon stood still, where that is why a connection is lost; else 0. Who did for
// so long that all have given it up hears of that by any connection.
core::Time Peers::slept_until_given_up(const Peer& peer, bool gave_us_up, core::Time now) const {
  const core::Time slept = control_watch_.slept(now, peer.up_since);
  return gave_us_up || slept >= config_.decide ? slept : 0;
}

// What was wrong seen from here, if anything was, where the other end was the first to give up.
std::string Peers::doubt_of(const Peer& peer, core::Time now) const {
  const core::Time control = control_watch_.silent_for(peer.node, now);
  const core::Time data = data_watch_.silent_for(peer.node, now);
  if (std::max(control, data) < config_.suspect) return "";
  const char* const plane = control >= config_.suspect ? "control" : "data";
  return fmt::format("; seen from here: {}", silence_of(peer, plane, std::max(control, data), now));
}

void Peers::on_data_lost(const PeerDataLost& lost, core::Time now) {
  Peer& peer = peers_[lost.peer];
  if (peer.up && peer.link.number() == lost.link) peer.lanes->broke(lost.lane, lost.why, now);
}

}  // namespace gradring::daemon
