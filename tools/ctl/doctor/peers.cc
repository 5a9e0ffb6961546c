// The other nodes: whether they are there, and whether they are alike.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tools/common/text.h"
#include "tools/ctl/doctor/finding.h"

namespace gradring::tools::doctor {
namespace {

// Beyond this, log lines of two nodes appear in the wrong order to whoever reads them.
constexpr int64_t kClockApartNs = 1'000'000'000;

std::string name_of(const wire::PeerReport& peer) {
  return printable(peer.node().empty() ? peer.address() : peer.node());
}

std::string how_to_reach(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos)
    return "is its daemon running, and the port open in the firewall?";
  std::string host = address.substr(0, colon);
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  const std::string port = printable(address.substr(colon + 1));
  return fmt::format(
      "nc -vz {} {}: refused, start its daemon; silent, open TCP port {} in the firewalls; open, "
      "see whether that daemon is stopped or hangs, and restart it",
      printable(host), port, port);
}

std::string remedy_for(const wire::PeerReport& peer) {
  if (peer.state() == "refused")
    return "keys, versions, node names and peer lists must fit; the reason says which";
  // It was reached at its port, and is connected still.
  if (peer.state() == "suspect") {
    return "is it stopped, or busy? Firewalls must let the data ports pass as well: "
           "docs/configure.md#ports";
  }
  return how_to_reach(peer.address());
}

Findings reachable(const NodeFacts& own) {
  Findings findings;
  for (const wire::PeerReport& peer : own.peers.peers()) {
    if (peer.state() == "up") continue;
    const std::string why = peer.reason().empty() ? "" : ": " + printable(peer.reason());
    if (peer.state() == "stopped") {
      findings.push_back(warn("peer " + name_of(peer), printable(peer.state()) + why,
                              "start gradringd there when it is to take part again"));
      continue;
    }
    findings.push_back(
        fail("peer " + name_of(peer), printable(peer.state()) + why, remedy_for(peer)));
  }
  if (findings.empty())
    findings.push_back(ok("peers", fmt::format("{} up", counted(own.peers.peers_size(), "peer"))));
  return findings;
}

// "a, b" have it
using Holders = std::map<std::string, std::vector<std::string>>;

std::string told(const Holders& holders) {
  constexpr size_t kShown = 4;
  std::string text;
  for (const auto& [value, nodes] : holders) {
    text += fmt::format("{}{} on ", text.empty() ? "" : "; ",
                        value.empty() ? "nothing" : printable(value));
    for (size_t i = 0; i < std::min(nodes.size(), kShown); ++i)
      text += (i == 0 ? "" : ", ") + printable(nodes[i]);
    if (nodes.size() > kShown) text += fmt::format(" and {} more", nodes.size() - kShown);
  }
  return text;
}

Findings silent(const Facts& facts) {
  Findings findings;
  for (const NodeFacts& node : facts.nodes) {
    if (node.fault.empty()) continue;
    findings.push_back(warn("node " + printable(node.node),
                            "gave no answer: " + printable(node.fault),
                            "is it busy, or of an older version? gradringctl --node NODE status"));
  }
  return findings;
}

// None while it has peers that never answered: one of them may be the other, by another address.
bool knows_all_of_its_peers(const NodeFacts& node) {
  return std::ranges::none_of(node.peers.peers(),
                              [](const wire::PeerReport& peer) { return peer.node().empty(); });
}

// Each of two may see no fault: whom nobody named to it a daemon does not miss.
Findings strangers(const Facts& facts) {
  std::map<std::string, std::set<std::string>> named;  // by each node that answered
  std::set<std::string> there;
  for (const NodeFacts& node : facts.nodes) {
    if (!node.fault.empty()) continue;
    there.insert(node.node);
    const bool knows_all = knows_all_of_its_peers(node);
    for (const wire::PeerReport& peer : node.peers.peers()) {
      if (peer.state() == "up") there.insert(peer.node());
      if (knows_all) named[node.node].insert(peer.node());
    }
  }
  std::set<std::pair<std::string, std::string>> pairs;
  for (const auto& [node, peers] : named) {
    for (const std::string& other : there) {
      if (other != node && !peers.contains(other)) pairs.insert(std::minmax(node, other));
    }
  }
  if (pairs.empty()) return {};
  constexpr size_t kShown = 4;
  std::vector<std::string> shown;
  for (const auto& [one, other] : pairs) {
    if (shown.size() == kShown) break;
    shown.push_back(fmt::format("{} and {}", printable(one), printable(other)));
  }
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (pairs.size() > kShown) text += fmt::format(", and {} more", pairs.size() - kShown);
  return {fail("peer lists", "not each other's peers: " + text,
               "a job on both never forms: name each to the other by peer, or discover, in "
               "gradringd.conf")};
}

// Whom this node is connected with may have lost one another: of that it has no sign of its own.
Findings apart(const Facts& facts) {
  std::set<std::string> up;  // as this node sees it
  for (const wire::PeerReport& peer : facts.nodes.front().peers.peers()) {
    if (peer.state() == "up") up.insert(peer.node());
  }
  up.insert(facts.nodes.front().node);
  std::map<std::pair<std::string, std::string>, std::string> pairs;
  for (size_t i = 1; i < facts.nodes.size(); ++i) {
    const NodeFacts& node = facts.nodes[i];
    if (!node.fault.empty() || !up.contains(node.node)) continue;
    for (const wire::PeerReport& peer : node.peers.peers()) {
      if (peer.state() == "up" || !up.contains(peer.node())) continue;
      pairs.try_emplace(std::minmax(node.node, peer.node()),
                        fmt::format("to {} node {} is {}{}", printable(node.node),
                                    printable(peer.node()), printable(peer.state()),
                                    peer.reason().empty() ? "" : ": " + printable(peer.reason())));
    }
  }
  constexpr size_t kShown = 8;
  Findings findings;
  for (const auto& [both, why] : pairs) {
    const std::string name = printable(both.first) + " and " + printable(both.second);
    if (findings.size() == kShown) {
      findings.push_back(fail("other pairs", fmt::format("{} more", pairs.size() - kShown),
                              "gradringctl --node NODE peers on each"));
      break;
    }
    findings.push_back(fail(name, why + ", and this node reaches both",
                            "look at the way between the two: firewalls, routes, cables, switch "
                            "ports; gradringctl doctor on either says more"));
  }
  return findings;
}

std::string on_whom(const Facts& facts) {
  const size_t answers = answered(facts);
  if (answers > static_cast<size_t>(facts.nodes.front().peers.peers_size())) return "on all nodes";
  return fmt::format("on the {} nodes that answered", answers);
}

Finding versions(const Facts& facts) {
  Holders holders;
  for (const NodeFacts& node : facts.nodes) {
    if (node.fault.empty()) holders[node.status.version()].push_back(node.node);
  }
  if (holders.size() == 1)
    return ok("versions", printable(holders.begin()->first) + " " + on_whom(facts));
  return warn("versions", told(holders),
              "finish the upgrade: install the same release on all nodes");
}

// Of daemons that share a machine each has its own.
Holders ports_of(const Facts& facts) {
  std::set<std::string> hosts;
  Holders ports;
  for (const NodeFacts& node : facts.nodes) {
    const std::string& listen = node.status.listen();
    const size_t colon = listen.rfind(':');
    if (colon == std::string::npos) continue;
    if (!hosts.insert(listen.substr(0, colon)).second) return {};
    ports[listen.substr(colon + 1)].push_back(node.node);
  }
  return ports;
}

const char* how_to_make_alike(const std::string& name) {
  if (name.starts_with("mtu ")) {
    return "set the same MTU on all nodes; larger packets than the way takes vanish";
  }
  if (name.starts_with("addresses ")) {
    return "RoCE v1 and v2, IPv4 and IPv6 do not meet: rdma-gid-index, or the same addresses on "
           "all "
           "nodes";
  }
  return "set the same in gradringd.conf of all nodes";
}

// That of lanes' MTUs is worst: what fits into one's packets is dropped by the other without a
// word.
Findings settings(const Facts& facts) {
  std::map<std::string, Holders> by_name;
  for (const NodeFacts& node : facts.nodes) {
    for (const wire::Setting& one : node.status.settings())
      by_name[one.name()][one.value()].push_back(node.node);
  }
  if (Holders ports = ports_of(facts); !ports.empty()) by_name["port"] = std::move(ports);
  Findings findings;
  for (const auto& [name, holders] : by_name) {
    if (holders.size() < 2) continue;
    findings.push_back(warn(printable(name), told(holders), how_to_make_alike(name)));
  }
  if (findings.empty()) {
    findings.push_back(ok("settings", fmt::format("{} alike {}", counted(by_name.size(), "setting"),
                                                  on_whom(facts))));
  }
  return findings;
}

Finding clocks(const Facts& facts) {
  std::string apart;
  int64_t most = 0;
  for (const NodeFacts& node : facts.nodes) {
    if (!node.fault.empty() || !node.round_trip_ns) continue;
    const int64_t ahead = std::abs(node.clock_ahead_ns);
    most = std::max(most, ahead);
    if (ahead <= kClockApartNs + *node.round_trip_ns / 2) continue;
    apart +=
        fmt::format("{}{} is {:.1f} s {}", apart.empty() ? "" : ", ", printable(node.node),
                    static_cast<double>(ahead) / 1e9, node.clock_ahead_ns > 0 ? "ahead" : "behind");
  }
  if (apart.empty())
    return ok("clocks", fmt::format("at most {:.3f} s apart {}", static_cast<double>(most) / 1e9,
                                    on_whom(facts)));
  return warn("clocks", apart, "synchronise them by NTP; only the order of log lines suffers");
}

}  // namespace

size_t answered(const Facts& facts) {
  return static_cast<size_t>(
      std::ranges::count_if(facts.nodes, [](const NodeFacts& node) { return node.fault.empty(); }));
}

Findings check_peers(const Facts& facts) {
  if (facts.nodes.empty()) return {};
  const NodeFacts& own = facts.nodes.front();
  if (own.peers.peers().empty())
    return {skip("peers", "none are configured: jobs stay on this node")};
  Findings findings = reachable(own);
  for (Finding& one : silent(facts)) findings.push_back(std::move(one));
  if (answered(facts) < 2) {
    for (const char* check : {"versions", "settings", "clocks"})
      findings.push_back(skip(check, "no other node answered"));
    return findings;
  }
  for (Finding& one : strangers(facts)) findings.push_back(std::move(one));
  for (Finding& one : apart(facts)) findings.push_back(std::move(one));
  findings.push_back(versions(facts));
  for (Finding& one : settings(facts)) findings.push_back(std::move(one));
  findings.push_back(clocks(facts));
  return findings;
}

}  // namespace gradring::tools::doctor
