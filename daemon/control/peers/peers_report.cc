#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "daemon/control/peers/peers.h"

namespace gradring::daemon {

std::string Peers::unreachable() const {
  std::string text;
  for (const Peer& peer : peers_) {
    if (peer.up || !is_shown(peer)) continue;
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", peer.link.address(),
                        is_stopped(peer) ? kPeerWasStopped : peer.link.reason());
  }
  return text;
}

std::unordered_map<std::string, uint32_t> Peers::lanes() const {
  std::unordered_map<std::string, uint32_t> lanes;
  for (const Peer& peer : peers_) {
    if (!peer.up) continue;
    uint32_t& count = lanes[peer.node];
    for (uint8_t lane = 0; lane < peer.lanes->count(); ++lane) {
      count += peer.lanes->state(lane) == core::PeerLanes::State::kUp ? 1 : 0;
    }
  }
  return lanes;
}

bool Peers::hears_control(const Peer& peer) const {
  return is_relayed(peer) ||
         control_watch_.health_of(peer.node) == core::FailureDetector::Health::kAlive;
}

bool Peers::hears_data(const Peer& peer) const {
  return !peer.data_watched ||
         data_watch_.health_of(peer.node) == core::FailureDetector::Health::kAlive;
}

uint32_t Peers::count_up() const {
  return static_cast<uint32_t>(std::count_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.up && hears_control(peer) && hears_data(peer);
  }));
}

void Peers::add_lanes(const Peer& peer, core::Time now, wire::PeerReport* report) const {
  using State = core::PeerLanes::State;
  for (uint8_t lane = 0; lane < peer.lanes->count(); ++lane) {
    wire::LaneReport* shown = report->add_lanes();
    const State state = peer.lanes->state(lane);
    shown->set_device(self_.devices[lane]);
    shown->set_state(state == State::kUp ? "up" : state == State::kTrying ? "trying" : "lost");
    shown->set_reason(state == State::kUp ? "" : peer.lanes->why(lane));
    if (lane >= peer.traffic.lanes.size()) continue;
    shown->set_sent_bytes(peer.traffic.lanes[lane].sent_bytes);
    shown->set_received_bytes(peer.traffic.lanes[lane].received_bytes);
    shown->set_path_bytes_per_second(paths_.rate(peer.link.id(), lane, now));
  }
}

wire::PeerReport Peers::report_of(const Peer& peer, core::Time now) const {
  const auto milliseconds = [](core::Time time) {
    return static_cast<uint64_t>(std::max<core::Time>(time, 0) / core::kMillisecond);
  };
  wire::PeerReport report;
  report.set_relayed(is_relayed(peer));
  report.set_node(peer.node);
  report.set_address(peer.link.address());
  report.set_version(peer.version);
  report.set_sent_bytes(peer.traffic.sent_bytes());
  report.set_received_bytes(peer.traffic.received_bytes());
  report.set_dropped_frames(peer.traffic.dropped_frames);
  report.set_damaged(peer.traffic.damaged);
  if (peer.heard != 0) report.set_silent_ms(milliseconds(now - peer.heard));
  if (peer.up) {
    add_lanes(peer, now, &report);
    report.set_connected_ms(milliseconds(now - peer.up_since));
    const bool control = hears_control(peer), data = hears_data(peer);
    report.set_state(control && data ? "up" : "suspect");
    if (!control || !data) {
      const core::FailureDetector& silent = control ? data_watch_ : control_watch_;
      report.set_reason(
          silence_of(peer, control ? "data" : "control", silent.silent_for(peer.node, now), now));
    }
    return report;
  }
  if (const auto away = away_.find(peer.node); away != away_.end() && !peer.refused) {
    report.set_state("away");
    const auto left = std::max<core::Time>(away->second.until - now, 0);
    report.set_reason(fmt::format("it is expected back within {:.0f} s (restart-grace)",
                                  std::ceil(static_cast<double>(left) / 1e9)));
    return report;
  }
  if (is_stopped(peer)) {
    report.set_state("stopped");
    report.set_reason(kPeerWasStopped);
    return report;
  }
  report.set_state(peer.refused ? "refused" : peer.up_since != 0 ? "lost" : "connecting");
  report.set_reason(
      peer.link.state() == PeerLink::State::kWelcomed
          ? fmt::format("it has not said hello yet: is {} in its peer list?", config_.listen)
          : peer.link.reason());
  return report;
}

wire::PeersReport Peers::report(core::Time now) const {
  wire::PeersReport report;
  report.set_counted_at(counted_at_);
  for (const Peer& peer : peers_) {
    if (is_shown(peer)) *report.add_peers() = report_of(peer, now);
  }
  return report;
}

std::vector<const PeerTraffic*> Peers::traffic() const {
  std::vector<const PeerTraffic*> traffic;
  for (const Peer& peer : peers_) {
    if (is_shown(peer)) traffic.push_back(&peer.traffic);
  }
  return traffic;
}

uint32_t Peers::count_stopped() const {
  return static_cast<uint32_t>(
      std::count_if(peers_.begin(), peers_.end(),
                    [this](const Peer& peer) { return peer.listed && is_stopped(peer); }));
}

uint32_t Peers::count() const {
  return static_cast<uint32_t>(std::count_if(
      peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.listed || peer.up; }));
}

}  // namespace gradring::daemon
