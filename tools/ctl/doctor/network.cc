// The interfaces that the daemon's lanes run over.
#include <fmt/format.h>

#include <algorithm>

#include "tools/common/text.h"
#include "tools/ctl/doctor/finding.h"

namespace gradring::tools::doctor {
namespace {

constexpr uint32_t kJumboMtu = 9000;
// At this rate and above, packets of 1500 bytes cost more of a processor than a lane has.
constexpr int64_t kFastMbps = 10'000;

const NetFacts* find(const Facts& facts, const std::string& name) {
  const auto it = std::ranges::find(facts.net, name, &NetFacts::name);
  return it == facts.net.end() ? nullptr : &*it;
}

std::string speed_of(const NetFacts& device) {
  return device.speed_mbps > 0 ? fmt::format("{} Mbit/s", device.speed_mbps) : "speed not told";
}

bool has_peers(const Facts& facts) {
  return !facts.nodes.empty() && facts.nodes.front().status.peers_configured() > 0;
}

// Peers on this very machine are dialled at such an address, and for them lo is right.
bool peers_elsewhere(const Facts& facts) {
  if (facts.nodes.empty()) return false;
  return std::ranges::any_of(facts.nodes.front().peers.peers(), [](const wire::PeerReport& peer) {
    const std::string& address = peer.address();
    return !address.starts_with("127.") && !address.starts_with("localhost") &&
           !address.starts_with("[::1]");
  });
}

Findings check_device(const Facts& facts, const NetFacts& device) {
  const std::string check = "device " + printable(device.name);
  const std::string name = printable(device.name);
  if (device.loopback) {
    if (has_peers(facts) && peers_elsewhere(facts)) {
      return {fail(check, "is loopback, and there are peers on other machines",
                   "set net-device, and listen to an address of the network")};
    }
    return {ok(check, "loopback: all peers are on this machine")};
  }
  if (!device.up) {
    return {fail(check, "is down",
                 fmt::format("ip link set {} up; then look at cable and switch port", name))};
  }
  Findings findings;
  if (device.duplex == "half") {
    findings.push_back(fail(check, "runs at half duplex, so it cannot send while it receives",
                            fmt::format("ethtool -s {} autoneg on, on the switch as well", name)));
  }
  const auto faster = std::ranges::max_element(facts.net, {}, [](const NetFacts& other) {
    return other.up && !other.bridge_or_virtual ? other.speed_mbps : -1;
  });
  if (device.speed_mbps > 0 && faster != facts.net.end() && faster->up &&
      !faster->bridge_or_virtual && faster->speed_mbps > device.speed_mbps) {
    findings.push_back(warn(
        check,
        fmt::format("{}, while {} has {} Mbit/s", speed_of(device), printable(faster->name),
                    faster->speed_mbps),
        fmt::format("net-device = {}, if the peers are reached by it", printable(faster->name))));
  }
  if (device.speed_mbps >= kFastMbps && device.mtu < kJumboMtu) {
    findings.push_back(
        warn(check, fmt::format("{} with an MTU of {}", speed_of(device), device.mtu),
             fmt::format("ip link set {} mtu {}, on all nodes and switches", name, kJumboMtu)));
  }
  if (findings.empty()) {
    findings.push_back(ok(check, fmt::format("up, {}, MTU {}{}", speed_of(device), device.mtu,
                                             device.duplex.empty() || device.duplex == "unknown"
                                                 ? ""
                                                 : ", " + printable(device.duplex) + " duplex")));
  }
  return findings;
}

}  // namespace

Findings check_network(const Facts& facts) {
  Findings findings;
  for (const wire::LaneChoice& lane : facts.topology.lanes()) {
    if (lane.device().find("(TCP)") == std::string::npos) continue;
    const std::string name = lane.device().substr(0, lane.device().find_first_of(", "));
    if (const NetFacts* device = find(facts, name)) {
      for (Finding& one : check_device(facts, *device)) findings.push_back(std::move(one));
    } else {
      findings.push_back(
          fail("device " + printable(name), "is not there any more",
               "was it renamed, or its driver unloaded? ip link lists what there is"));
    }
  }
  if (findings.empty()) findings.push_back(skip("device", "no lane goes by TCP"));
  return findings;
}

}  // namespace gradring::tools::doctor
