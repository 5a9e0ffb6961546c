#include "tools/ctl/rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/common/text.h"

namespace gradring::tools {
namespace {

constexpr double kSlow = 0.5;     // of the median
constexpr double kCarries = 0.1;  // of the busiest lane's bytes
// Of its way: nobody waits long for one that has less to carry, and what TCP tells of such a way is
// of single packets, or old.
constexpr double kUsed = 0.1;
// A way whose acknowledgements come over a slow one looks slower than it is.
constexpr double kLikeTheSlowest = 1.5;
constexpr size_t kFewest = 3;  // of two nobody can say which one is slow

}  // namespace

const wire::PeerReport* find_peer(const wire::PeersReport& peers, const std::string& node) {
  const auto it = std::ranges::find_if(
      peers.peers(), [&](const wire::PeerReport& peer) { return peer.node() == node; });
  return it == peers.peers().end() ? nullptr : &*it;
}

std::vector<LaneRate> rates_between(const std::vector<SentSample>& before,
                                    const std::vector<SentSample>& after) {
  std::vector<LaneRate> rates;
  for (const SentSample& later : after) {
    const auto earlier = std::ranges::find(before, later.node, &SentSample::node);
    if (earlier == before.end()) continue;
    const int64_t took = later.peers.counted_at() - earlier->peers.counted_at();
    if (took <= 0) continue;
    const double seconds = static_cast<double>(took) / 1e9;
    for (const wire::PeerReport& peer : later.peers.peers()) {
      const wire::PeerReport* const known = find_peer(earlier->peers, peer.node());
      if (peer.node().empty() || known == nullptr) continue;
      for (int i = 0; i < std::min(peer.lanes_size(), known->lanes_size()); ++i) {
        const wire::LaneReport& lane = peer.lanes(i);
        if (lane.sent_bytes() < known->lanes(i).sent_bytes()) continue;  // counted anew
        const auto bytes = static_cast<double>(lane.sent_bytes() - known->lanes(i).sent_bytes());
        rates.push_back({later.node, peer.node(), lane.device(), lane.state(), bytes / seconds,
                         static_cast<double>(lane.path_bytes_per_second()), lane.port_counted(),
                         lane.retransmits_per_second(), lane.pauses_per_second()});
      }
    }
  }
  return rates;
}

std::vector<SlowLink> slow_links(const std::vector<LaneRate>& rates) {
  double busiest = 0;
  for (const LaneRate& rate : rates) busiest = std::max(busiest, rate.sent_bytes_per_second);
  std::vector<LaneRate> carrying;
  std::ranges::copy_if(rates, std::back_inserter(carrying), [&](const LaneRate& rate) {
    return rate.path_bytes_per_second > 0 && rate.sent_bytes_per_second >= busiest * kCarries &&
           rate.sent_bytes_per_second > 0;
  });
  if (carrying.size() < kFewest) return {};
  std::ranges::sort(carrying, {}, &LaneRate::path_bytes_per_second);
  const double median = carrying[carrying.size() / 2].path_bytes_per_second;
  const double limit =
      std::min(median * kSlow, carrying.front().path_bytes_per_second * kLikeTheSlowest);
  std::vector<SlowLink> slow;
  for (const LaneRate& rate : carrying) {
    const bool used = rate.sent_bytes_per_second >= rate.path_bytes_per_second * kUsed;
    if (rate.path_bytes_per_second < limit && used) slow.push_back({rate, median});
  }
  return slow;
}

std::string describe(const SlowLink& link) {
  constexpr double kBitsOfGigabit = 8 / 1e9;
  return fmt::format("{} -> {} by {} reaches {:.3f} Gbit/s, the median of all is {:.3f}",
                     printable(link.lane.from), printable(link.lane.to),
                     printable(link.lane.device), link.lane.path_bytes_per_second * kBitsOfGigabit,
                     link.median * kBitsOfGigabit);
}

}  // namespace gradring::tools
