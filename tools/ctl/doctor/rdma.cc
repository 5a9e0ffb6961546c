// RDMA cards, as verbs and their driver describe them.
#include <fmt/format.h>

#include <algorithm>

#include "tools/common/text.h"
#include "tools/ctl/doctor/finding.h"

namespace gradring::tools::doctor {
namespace {

constexpr uint32_t kMtuMost = 4096;  // that verbs have

// The lane that runs over this port, if one does.
const wire::LaneChoice* lane_of(const Facts& facts, const std::string& card, uint32_t number) {
  for (const wire::LaneChoice& lane : facts.topology.lanes()) {
    if (lane.device() == fmt::format("{}:{} (RDMA)", card, number)) return &lane;
  }
  return nullptr;
}

// Whether what the daemon sends by is still there, and fits the port.
Findings check_choice(const wire::LaneChoice& lane, const wire::RdmaPortReport& port,
                      const std::string& check) {
  Findings findings;
  if (lane.has_gid()) {
    const wire::GidReport& used = lane.gid();
    const bool there = std::ranges::any_of(port.gids(), [&](const wire::GidReport& gid) {
      return gid.index() == used.index() && gid.type() == used.type() &&
             gid.address() == used.address();
    });
    const std::string what = fmt::format("GID {} ({}, {})", used.index(), printable(used.type()),
                                         printable(used.address()));
    if (!there) {
      findings.push_back(fail(check, what + " is in use, and is not there any more",
                              "give its interface that address again, or restart gradringd"));
    } else if (used.type() == "RoCE v1") {
      findings.push_back(
          warn(check, what + " is in use: no router passes RoCE v1 on, and it has no ECN",
               "rdma-gid-index = auto, or the index of one of RoCE v2, on all nodes"));
    }
  }
  if (lane.path_mtu() > port.mtu() && port.mtu() != 0) {
    findings.push_back(
        fail(check,
             fmt::format("rdma-path-mtu is {}, and the port's active MTU {}: longer packets are "
                         "lost",
                         lane.path_mtu(), port.mtu()),
             "raise the MTU of its interface (9000 for 4096), or lower rdma-path-mtu"));
  }
  return findings;
}

bool is_used(const Facts& facts, const std::string& card) {
  return std::ranges::any_of(facts.topology.lanes(), [&](const wire::LaneChoice& lane) {
    return lane.device().starts_with(card + ":") || lane.device().starts_with(card + " ");
  });
}

// The fastest active port of all cards.
uint64_t fastest(const wire::MachineReport& machine) {
  uint64_t rate = 0;
  for (const wire::NicReport& nic : machine.nics()) {
    for (const wire::RdmaPortReport& port : nic.rdma().ports()) {
      if (port.state() == "active") rate = std::max<uint64_t>(rate, port.rate_bps());
    }
  }
  return rate;
}

constexpr double kManyPerSecond = 100;  // of what a network with ECN and PFC does now and then

// What a counter says when it is not still, and what to do.
struct Sign {
  const char* counter;
  bool now_and_then;  // a few are as it should be
  const char* found;  // after the number
  const char* remedy;
};
constexpr const char* kLoss =
    "turn on priority flow control for RoCE's class, on cards (mlnx_qos) and switches";
constexpr const char* kCongestion =
    "look at the switches on the way for a link that is too slow or shared, and at their ECN "
    "thresholds; gradringctl bandwidth --matrix shows which ways are slow";
constexpr Sign kSigns[] = {
    {"retransmits", false, "packets were sent again: the network drops some", kLoss},
    {"out_of_sequence", false, "packets came out of sequence: the network drops some", kLoss},
    {"rnr", false, "times the far end had no buffer ready: it is slow to receive",
     "look there at what takes its processors; gradringctl job NAME says who is slow"},
    {"cnp_handled", true, "times it was told to slow down: the network is congested", kCongestion},
    {"cnp_sent", true, "times it told a sender to slow down: the network is congested",
     kCongestion},
    {"pauses_received", true, "times the switch asked it to stop: the network is congested",
     kCongestion},
    {"pauses_sent", true, "times it asked the switch to stop: this node receives slowly",
     "look at what takes this node's processors and memory, and at the width of the card's slot "
     "(lspci -vv, LnkSta)"},
    {"errors", false, "errors of the link or the card",
     "clean or change cable and transceiver; `rdma statistic` and ethtool -S say which kind"},
    {"link_downed", false, "times its link was lost",
     "look at cable, transceiver and switch port; gradringctl events says when"},
};

// What came before the daemon was started is history.
template <typename Counters>
void add_signs(const Counters& counters, const std::string& check, Findings* findings) {
  for (const Sign& sign : kSigns) {
    for (const wire::PortCounterReport& one : counters) {
      if (one.name() != sign.counter || one.of_daemon() == 0) continue;
      if (sign.now_and_then && one.per_second() < kManyPerSecond) continue;
      findings->push_back(
          warn(check,
               fmt::format("{} {} (since gradringd was started; {:.1f} a second of late)",
                           one.of_daemon(), sign.found, one.per_second()),
               sign.remedy));
    }
  }
}

void check_ecn(const Facts& facts, const std::string& card, uint32_t number,
               const std::string& check, Findings* findings) {
  for (const RdmaFacts& port : facts.rdma) {
    if (port.device != card || port.port != number || port.ecn.value_or(true)) continue;
    findings->push_back(
        warn(check, "ECN is off for all priorities, so congestion shows as loss",
             "echo 1 > /sys/class/net/IF/ecn/roce_np/enable/PRIO, and roce_rp likewise"));
  }
}

Findings check_port(const Facts& facts, const std::string& card, const wire::RdmaPortReport& port) {
  const std::string check = fmt::format("RDMA {}:{}", printable(card), port.number());
  if (port.state() != "active") {
    const std::string found = "its port is " + printable(port.state());
    const char* remedy =
        "look at cable, switch port and, on InfiniBand, the subnet manager; ibstat shows it";
    return {is_used(facts, card) ? fail(check, found, remedy) : warn(check, found, remedy)};
  }
  const bool ethernet = port.link_layer() == "Ethernet";
  Findings findings;
  if (const uint64_t most = fastest(facts.topology.machine()); port.rate_bps() < most) {
    findings.push_back(
        warn(check,
             fmt::format("{} Gbit/s, another card has {}", port.rate_bps() / 1'000'000'000,
                         most / 1'000'000'000),
             "a cable, a transceiver or a switch port of a lesser kind? ibstat, ethtool"));
  }
  if (ethernet && port.mtu() < kMtuMost) {
    findings.push_back(
        warn(check, fmt::format("its active MTU is {}, {} is possible", port.mtu(), kMtuMost),
             "raise the MTU of its interface to 9000, on all nodes and switches"));
  }
  const bool routable = std::ranges::any_of(port.gids(), [](const wire::GidReport& gid) {
    return gid.type() == "RoCE v2" && !gid.address().starts_with("fe80");
  });
  if (ethernet && !routable) {
    findings.push_back(fail(check, "has no RoCE v2 address but the link's own",
                            "give its interface an IP address; show_gids lists what it has"));
  }
  if (const wire::LaneChoice* lane = lane_of(facts, card, port.number())) {
    for (Finding& one : check_choice(*lane, port, check)) findings.push_back(std::move(one));
  }
  add_signs(port.counters(), check, &findings);
  check_ecn(facts, card, port.number(), check, &findings);
  if (findings.empty()) {
    findings.push_back(ok(
        check,
        fmt::format("active, {} Gbit/s, MTU {}, {}{}", port.rate_bps() / 1'000'000'000, port.mtu(),
                    printable(port.link_layer()), is_used(facts, card) ? "" : ", not used")));
  }
  return findings;
}

// Lanes over devices that are no card: made of software.
Findings check_soft_ports(const Facts& facts) {
  Findings findings;
  for (const wire::LaneChoice& lane : facts.topology.lanes()) {
    if (!lane.device().ends_with("(RDMA)") || lane.nic() >= 0) continue;
    for (const wire::PortReport& port : lane.ports()) {
      const std::string check = "RDMA " + printable(port.port());
      const size_t before = findings.size();
      if (port.state() != "active") {
        findings.push_back(fail(check, "its port is " + printable(port.state()),
                                "look at the interface below it; `rdma link` names that"));
      }
      add_signs(port.counters(), check, &findings);
      if (findings.size() == before) findings.push_back(ok(check, "active, made of software"));
    }
  }
  return findings;
}

}  // namespace

Findings check_rdma(const Facts& facts) {
  const wire::MachineReport& machine = facts.topology.machine();
  if (!machine.fault().empty())
    return {skip("RDMA", "the machine could not be looked at: " + printable(machine.fault()))};
  Findings findings;
  for (const wire::NicReport& nic : machine.nics()) {
    for (const wire::RdmaPortReport& port : nic.rdma().ports()) {
      for (Finding& one : check_port(facts, nic.rdma().name(), port))
        findings.push_back(std::move(one));
    }
  }
  for (Finding& one : check_soft_ports(facts)) findings.push_back(std::move(one));
  if (findings.empty()) findings.push_back(skip("RDMA", "no card here"));
  return findings;
}

}  // namespace gradring::tools::doctor
