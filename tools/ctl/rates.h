#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client.pb.h"

namespace gradring::tools {

// nullptr: there is none of that name.
const wire::PeerReport* find_peer(const wire::PeersReport& peers, const std::string& node);

// What a node's daemon had sent to its peers by a moment of its own clock (counted_at).
struct SentSample {
  std::string node;
  wire::PeersReport peers;
};

// What went from one node to another by one lane, between two samples.
struct LaneRate {
  std::string from{};
  std::string to{};
  std::string device{};
  std::string state{};  // of the lane
  double sent_bytes_per_second = 0;
  double path_bytes_per_second = 0;  // of the way lately, see LaneReport; 0: not known
  // Of the sender's port lately, whatever went by it; not counted: its card does not.
  bool port_counted = false;
  double retransmits_per_second = 0;
  double pauses_per_second = 0;
};

// Of all nodes that are in both; each pair of nodes and each lane of it once. Daemons that were
// started anew in between, or have not counted again, are left out.
std::vector<LaneRate> rates_between(const std::vector<SentSample>& before,
                                    const std::vector<SentSample>& after);

// A lane whose way is far slower than those that the others have.
struct SlowLink {
  LaneRate lane{};
  double median = 0;  // of the ways of all lanes that carry, bytes per second
};
// Those with less than half the median that are about as slow as the slowest; of lanes that carry
// at least a tenth of what the busiest does, since an idle way is not measured. None of fewer than
// three.
std::vector<SlowLink> slow_links(const std::vector<LaneRate>& rates);

// "n2 -> n3 by eth0 (TCP) reaches 0.100 Gbit/s, the median is 0.500".
std::string describe(const SlowLink& link);

}  // namespace gradring::tools
