// The ways between nodes: lanes, round trips, and the slow link.
#include <fmt/format.h>

#include <algorithm>

#include "tools/common/text.h"
#include "tools/ctl/doctor/finding.h"

namespace gradring::tools::doctor {
namespace {

// A daemon that is busy answers late now and then; of several answers the quickest counts.
constexpr int64_t kFarNs = 5'000'000;
constexpr int64_t kFarTimes = 5;

Findings lanes(const Facts& facts) {
  Findings findings;
  int most = 0;
  size_t seen = 0;
  for (const NodeFacts& node : facts.nodes) {
    for (const wire::PeerReport& peer : node.peers.peers())
      most = std::max(most, peer.lanes_size());
  }
  for (const NodeFacts& node : facts.nodes) {
    for (const wire::PeerReport& peer : node.peers.peers()) {
      if (peer.state() != "up" || peer.lanes().empty()) continue;
      const std::string way = printable(node.node) + " -> " + printable(peer.node());
      int up = 0;
      std::string why;
      for (const wire::LaneReport& lane : peer.lanes()) {
        up += lane.state() == "up" ? 1 : 0;
        ++seen;
        if (lane.state() != "up")
          why += fmt::format(", {} is {}: {}", printable(lane.device()), printable(lane.state()),
                             printable(lane.reason()));
      }
      if (up == most) continue;
      const std::string found =
          fmt::format("{} of {}{}", up, counted(static_cast<uint64_t>(most), "lane"), why);
      findings.push_back(
          why.empty()
              ? warn("lanes " + way, found, "set net-device as often on both nodes")
              : fail("lanes " + way, found, "look at that device, its cable and its switch port"));
    }
  }
  if (!findings.empty()) return findings;
  const size_t answers = answered(facts);
  if (answers < 2) return {skip("lanes", "no other node answered")};
  return {ok("lanes",
             fmt::format("{} up between {}", counted(seen, "lane"), counted(answers, "node")))};
}

Findings round_trips(const Facts& facts) {
  std::vector<int64_t> times;
  for (const NodeFacts& node : facts.nodes) {
    if (node.round_trip_ns) times.push_back(*node.round_trip_ns);
  }
  if (times.empty()) return {skip("round trips", "no peer answered")};
  std::ranges::sort(times);
  const int64_t median = times[times.size() / 2];
  const auto milliseconds = [](int64_t ns) { return static_cast<double>(ns) / 1e6; };
  Findings findings;
  for (const NodeFacts& node : facts.nodes) {
    if (!node.round_trip_ns || *node.round_trip_ns < std::max(kFarNs, median * kFarTimes)) continue;
    findings.push_back(
        warn("round trip " + printable(node.node),
             fmt::format("{:.1f} ms, the median of all is {:.1f} ms",
                         milliseconds(*node.round_trip_ns), milliseconds(median)),
             "a longer way, a full queue or a busy machine? ping it; mtr shows where"));
  }
  if (findings.empty()) {
    findings.push_back(
        ok("round trips", fmt::format("{:.1f} to {:.1f} ms from daemon to daemon",
                                      milliseconds(times.front()), milliseconds(times.back()))));
  }
  return findings;
}

Findings speeds(const Facts& facts) {
  Findings findings;
  for (const SlowLink& link : slow_links(facts.rates)) {
    findings.push_back(fail(
        "slow link", describe(link),
        fmt::format("look at {}'s device and switch port: ethtool, its errors, its shaping; all "
                    "wait for the slowest",
                    printable(link.lane.from))));
  }
  if (!findings.empty()) return findings;
  const bool busy = std::ranges::any_of(
      facts.rates, [](const LaneRate& rate) { return rate.sent_bytes_per_second > 0; });
  if (!busy) return {skip("slow link", "no gradients travel; ask while a job runs")};
  const auto known = std::ranges::count_if(
      facts.rates, [](const LaneRate& rate) { return rate.path_bytes_per_second > 0; });
  if (known == 0)
    return {skip("slow link", "nobody measures these ways: RDMA, or all on one machine")};
  return {ok("slow link",
             fmt::format("none of {}", counted(static_cast<uint64_t>(known), "measured way")))};
}

}  // namespace

Findings check_links(const Facts& facts) {
  if (facts.nodes.empty() || facts.nodes.front().peers.peers().empty()) return {};
  Findings findings = lanes(facts);
  for (Finding& one : round_trips(facts)) findings.push_back(std::move(one));
  for (Finding& one : speeds(facts)) findings.push_back(std::move(one));
  return findings;
}

}  // namespace gradring::tools::doctor
