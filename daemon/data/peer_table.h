#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/data/messages.h"

namespace gradring::daemon {

// A lane to a peer.
struct DataLane {
  std::string address;
  bool connected = false;  // heartbeats go there
  bool carries = false;    // and everything else
  bool heard = false;      // since the last pulse
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t sends = 0;        // of payloads that went from where they lay, where that is measured
  core::Time send_time = 0;  // for which these were lent to the transport, together
};

// A peer as the data thread knows it. The token is all that makes a frame credible: UCX does not
// say who sent one.
struct DataPeer {
  uint64_t link = 0;
  std::string node;
  uint64_t token_expected = 0;  // in frames from it; 0: none
  uint64_t token_to_send = 0;
  bool connected = false;  // from ConnectPeer to DisconnectPeer; each lane knows for itself
  bool probes = false;     // it answers them
  std::vector<DataLane> lanes;
  uint64_t dropped_frames = 0;
  uint64_t damaged = 0;  // slices and frames

  // The lane for a slice of this turn (and the first of those that carry, for what is no slice);
  // none when all are broken.
  std::optional<uint8_t> lane_for(uint32_t turn) const {
    uint32_t carrying = 0;
    for (const DataLane& lane : lanes) carrying += lane.carries ? 1 : 0;
    if (carrying == 0) return std::nullopt;
    uint32_t skip = turn % carrying;
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i].carries && skip-- == 0) return static_cast<uint8_t>(i);
    }
    return std::nullopt;
  }
  // Of these alone.
  std::optional<uint8_t> lane_for(uint32_t turn, std::span<const uint8_t> of) const {
    const auto carries = [this](uint8_t lane) {
      return lane < lanes.size() && lanes[lane].carries;
    };
    const auto carrying = std::count_if(of.begin(), of.end(), carries);
    if (carrying == 0) return std::nullopt;
    auto skip = turn % carrying;
    const auto taken = std::find_if(of.begin(), of.end(),
                                    [&](uint8_t lane) { return carries(lane) && skip-- == 0; });
    return *taken;
  }
};

class PeerTable {
 public:
  void expect(PeerId id, uint64_t token) {
    DataPeer& peer = at(id);
    if (by_token_.erase(peer.token_expected) > 0) retired_.push_back(peer.token_expected);
    if (retired_.size() > kRetiredMost) retired_.pop_front();
    peer.token_expected = token;
    by_token_[token] = id;
  }
  void connected(const ConnectPeer& connect) {
    DataPeer& peer = at(connect.peer);
    if (peer.node != connect.node) {  // what was counted is another's
      peer.lanes.clear();
      peer.dropped_frames = peer.damaged = 0;
    }
    peer.link = connect.link;
    peer.node = connect.node;
    peer.token_to_send = connect.token;
    peer.connected = true;
    peer.probes = connect.probes;
    peer.lanes.resize(connect.addresses.size());
    for (size_t i = 0; i < peer.lanes.size(); ++i) {
      DataLane& lane = peer.lanes[i];
      lane.address = connect.addresses[i];
      lane.connected = lane.carries = lane.heard = false;
    }
  }

  // Grows as needed: ids are small and dense.
  DataPeer& at(PeerId id) {
    if (id >= peers_.size()) peers_.resize(id + 1);
    return peers_[id];
  }
  std::optional<PeerId> by_token(uint64_t token) const {
    const auto it = by_token_.find(token);
    if (it == by_token_.end() || token == 0) return std::nullopt;
    return it->second;
  }
  // A peer had it before its connection broke: its last frames may come late.
  bool was_expected(uint64_t token) const {
    return std::find(retired_.begin(), retired_.end(), token) != retired_.end();
  }
  std::optional<PeerId> by_node(const std::string& node) const {
    for (PeerId id = 0; id < peers_.size(); ++id) {
      if (peers_[id].connected && peers_[id].node == node) return id;
    }
    return std::nullopt;
  }
  std::vector<DataPeer>& all() { return peers_; }

 private:
  static constexpr size_t kRetiredMost = 256;

  std::vector<DataPeer> peers_;
  std::unordered_map<uint64_t, PeerId> by_token_;
  std::deque<uint64_t> retired_;
};

}  // namespace gradring::daemon
