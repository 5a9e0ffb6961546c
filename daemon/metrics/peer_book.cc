#include "daemon/metrics/peer_book.h"

#include <algorithm>
#include <set>
#include <utility>

#include "daemon/metrics/labels.h"

namespace gradring::daemon::metrics {
namespace {

void add(PeerSeries* to, const PeerSeries& from) {
  to->dropped_frames += from.dropped_frames;
  to->damaged += from.damaged;
  to->lane_losses += from.lane_losses;
  for (size_t i = 0; i < from.losses.size(); ++i) to->losses[i] += from.losses[i];
  to->lanes.resize(std::max(to->lanes.size(), from.lanes.size()));
  for (size_t i = 0; i < from.lanes.size(); ++i) {
    to->lanes[i].sent_bytes += from.lanes[i].sent_bytes;
    to->lanes[i].received_bytes += from.lanes[i].received_bytes;
    to->lanes[i].sends += from.lanes[i].sends;
    to->lanes[i].send_time += from.lanes[i].send_time;
  }
}

}  // namespace

std::vector<PeerSeries> PeerBook::series(std::vector<PeerSeries> peers, size_t most) const {
  std::vector<PeerSeries> list;
  PeerSeries other;
  other.label = kOther;
  bool others = false;
  std::set<std::string> taken = {kOther};
  for (PeerSeries& peer : peers) {
    if (const auto it = incidents_.find(peer.label); it != incidents_.end()) {
      peer.losses = it->second.losses;
      peer.lane_losses = it->second.lane_losses;
    }
    peer.label = label_of(peer.label);
    // Two of one label would be one series twice, and Prometheus would take neither.
    if (list.size() < most && taken.insert(peer.label).second) {
      list.push_back(std::move(peer));
    } else {
      add(&other, peer);
      others = true;
    }
  }
  if (others) list.push_back(std::move(other));
  return list;
}

}  // namespace gradring::daemon::metrics
