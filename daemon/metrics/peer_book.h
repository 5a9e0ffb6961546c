#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/metrics/snapshot.h"

namespace gradring::daemon::metrics {

// What became of peers and lanes since the daemon began, and which peers have series of their own:
// the first that come, as long as they are there. Whoever comes when all places are taken is
// counted under kOther, for good, and what it has counted stays there when discover names it no
// more: a counter that lost a peer would go backwards. Pure; one thread.
class PeerBook {
 public:
  // A peer has about as many series as it has lanes, times seven.
  static constexpr size_t kPeersMost = 64;
  // Of the others, that are told apart after they have gone: who comes back counts on.
  static constexpr size_t kGoneMost = 1024;

  void lost(const std::string& node, Cause cause) {
    ++incidents_[node].losses[static_cast<size_t>(cause)];
  }
  void lane_lost(const std::string& node) { ++incidents_[node].lane_losses; }

  // `peers` in their lasting order, named by their node, or by their address before they have told
  // it. Those that have no series of their own are summed in one last series.
  std::vector<PeerSeries> series(std::vector<PeerSeries> peers, size_t most = kPeersMost);

 private:
  struct Incidents {
    CauseCounts losses{};
    uint64_t lane_losses = 0;
  };
  // What one of the others has counted, without incidents.
  struct Other {
    PeerSeries before;  // it began anew
    PeerSeries last;
  };

  void count(std::map<std::string, PeerSeries> others);
  void add_incidents(const std::string& node, PeerSeries* to) const;
  void add_other(const std::string& key, const Other& other, PeerSeries* to) const;

  std::map<std::string, Incidents> incidents_;  // by node
  std::set<std::string> own_;                   // labels
  std::map<std::string, Other> others_;
  PeerSeries gone_;  // of others that are told apart no more
};

}  // namespace gradring::daemon::metrics
