#pragma once

#include <map>
#include <string>
#include <vector>

#include "daemon/metrics/snapshot.h"

namespace gradring::daemon::metrics {

// What became of peers and lanes since the daemon began, and which peers have series of their own:
// the first of the list, which does not change while the daemon runs. Pure; one thread.
class PeerBook {
 public:
  // A peer has about as many series as it has lanes, times seven.
  static constexpr size_t kPeersMost = 64;

  void lost(const std::string& node, Cause cause) {
    ++incidents_[node].losses[static_cast<size_t>(cause)];
  }
  void lane_lost(const std::string& node) { ++incidents_[node].lane_losses; }

  // `peers` in their lasting order, named by their node, or by their address before they have told
  // it. Those behind the first `most` are summed in one last series.
  std::vector<PeerSeries> series(std::vector<PeerSeries> peers, size_t most = kPeersMost) const;

 private:
  struct Incidents {
    CauseCounts losses{};
    uint64_t lane_losses = 0;
  };
  std::map<std::string, Incidents> incidents_;  // by node, of which there are no more than peers
};

}  // namespace gradring::daemon::metrics
