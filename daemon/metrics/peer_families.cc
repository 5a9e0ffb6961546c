// The other nodes, and the lanes to them.

#include <array>

#include "daemon/metrics/page.h"

namespace gradring::daemon::metrics {
namespace {

using Peers = std::vector<PeerSeries>;

// As Peers::report says them.
constexpr std::array<const char*, 7> kPeerStates = {"up",      "suspect",    "away",   "lost",
                                                    "stopped", "connecting", "refused"};
constexpr std::array<const char*, 3> kLaneStates = {"up", "trying", "lost"};

template <typename Visit>
void for_each_lane(const Peers& peers, Visit visit) {
  for (const PeerSeries& peer : peers) {
    for (size_t lane = 0; lane < peer.lanes.size(); ++lane) {
      visit(Labels{{"peer", peer.label}, {"lane", std::to_string(lane)}}, peer.lanes[lane]);
    }
  }
}

void write_states(const Snapshot& snapshot, Page* page) {
  const Peers& peers = snapshot.peer_series;
  Family counts = page->gauge("gradring_peers", "Peers of this node, by state");
  for (const char* state : kPeerStates) {
    const auto it = snapshot.peers_by_state.find(state);
    counts.add({{"state", state}}, it == snapshot.peers_by_state.end() ? 0 : it->second);
  }
  Family states = page->gauge("gradring_peer_state", "1 for the state that the peer is in");
  for (const PeerSeries& peer : peers) {
    if (peer.state.empty()) continue;
    for (const char* state : kPeerStates) {
      states.add({{"peer", peer.label}, {"state", state}}, peer.state == state ? 1 : 0);
    }
  }
  Family silent = page->gauge("gradring_peer_silent_seconds",
                              "Since the peer was heard last on the control connection");
  for (const PeerSeries& peer : peers) {
    if (peer.silent) silent.add({{"peer", peer.label}}, seconds(*peer.silent));
  }
  Family lanes = page->gauge("gradring_lane_state", "1 for the state that the lane is in");
  for_each_lane(peers, [&](Labels labels, const LaneSeries& lane) {
    if (lane.state.empty()) return;
    labels.emplace_back("state", "");
    for (const char* state : kLaneStates) {
      labels.back().second = state;
      lanes.add(labels, lane.state == state ? 1 : 0);
    }
  });
}

// A slow way shows as sends that take long: each lane is dealt as many slices as its siblings.
void write_sends(const Peers& peers, Page* page) {
  Family sends = page->counter(
      "gradring_lane_sends_total",
      "Slices of more than 4 KiB that the transport took to send from where they lay");
  for_each_lane(
      peers, [&](const Labels& labels, const LaneSeries& lane) { sends.add(labels, lane.sends); });
  Family took = page->counter("gradring_lane_send_seconds_total",
                              "For how long it had them, one after the other");
  for_each_lane(peers, [&](const Labels& labels, const LaneSeries& lane) {
    took.add(labels, seconds(lane.send_time));
  });
}

// In a ring all lanes carry as much as the slowest, so that bytes do not tell which one that is.
void write_paths(const Peers& peers, Page* page) {
  Family rates = page->gauge("gradring_lane_path_bytes_per_second",
                             "How fast the way to the peer is, by TCP in the last five seconds");
  for_each_lane(peers, [&](const Labels& labels, const LaneSeries& lane) {
    if (lane.path_rate > 0) rates.add(labels, static_cast<double>(lane.path_rate));
  });
}

void write_bytes(const Peers& peers, Page* page) {
  Family sent = page->counter("gradring_lane_sent_bytes_total", "Bytes of gradients to the peer");
  for_each_lane(peers, [&](const Labels& labels, const LaneSeries& lane) {
    sent.add(labels, lane.sent_bytes);
  });
  Family received =
      page->counter("gradring_lane_received_bytes_total", "Bytes of gradients from the peer");
  for_each_lane(peers, [&](const Labels& labels, const LaneSeries& lane) {
    received.add(labels, lane.received_bytes);
  });
}

void write_incidents(const Peers& peers, Page* page) {
  Family losses =
      page->counter("gradring_peer_losses_total", "How often the peer was given up, by cause");
  for (const PeerSeries& peer : peers) {
    for (const Cause cause : {Cause::kPeerLost, Cause::kPeerSilent}) {
      losses.add({{"peer", peer.label}, {"cause", std::string(name_of(cause))}},
                 peer.losses[static_cast<size_t>(cause)]);
    }
  }
  Family failovers = page->counter("gradring_lane_failovers_total",
                                   "How often a lane to the peer was lost and others went on");
  for (const PeerSeries& peer : peers) failovers.add({{"peer", peer.label}}, peer.lane_losses);
  Family dropped = page->counter("gradring_peer_dropped_frames_total",
                                 "Frames of the peer that were of no use here");
  for (const PeerSeries& peer : peers) dropped.add({{"peer", peer.label}}, peer.dropped_frames);
  Family damaged = page->counter("gradring_peer_damaged_total",
                                 "Slices and frames that came damaged from the peer");
  for (const PeerSeries& peer : peers) damaged.add({{"peer", peer.label}}, peer.damaged);
}

}  // namespace

void write_peers(const Snapshot& snapshot, Page* page) {
  write_states(snapshot, page);
  write_bytes(snapshot.peer_series, page);
  write_sends(snapshot.peer_series, page);
  write_paths(snapshot.peer_series, page);
  write_incidents(snapshot.peer_series, page);
}

}  // namespace gradring::daemon::metrics
