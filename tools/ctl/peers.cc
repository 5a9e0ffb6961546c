// gradringctl peers: the daemons this one is connected with.
#include <fmt/format.h>

#include "tools/common/size.h"
#include "tools/common/table.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"

namespace gradring::tools {
namespace {

constexpr std::string_view kUp = "up";
constexpr std::string_view kStopped = "stopped";  // by somebody: nothing to mend

std::string name_of(const wire::PeerReport& peer) {
  return printable(peer.node().empty() ? peer.address() : peer.node());
}

std::string lanes_of(const wire::PeerReport& peer) {
  if (peer.lanes().empty()) return "-";
  int up = 0;
  for (const wire::LaneReport& lane : peer.lanes()) up += lane.state() == kUp ? 1 : 0;
  return fmt::format("{} of {}", up, peer.lanes_size());
}

nlohmann::ordered_json json_of(const wire::LaneReport& lane) {
  return {{"device", lane.device()},
          {"state", lane.state()},
          {"reason", lane.reason()},
          {"sent_bytes", lane.sent_bytes()},
          {"received_bytes", lane.received_bytes()},
          {"path_bytes_per_second", lane.path_bytes_per_second()},
          {"port_state", lane.port_state()},
          {"retransmits_per_second", lane.retransmits_per_second()},
          {"pauses_per_second", lane.pauses_per_second()}};
}

nlohmann::ordered_json json_of(const wire::PeerReport& peer) {
  auto lanes = nlohmann::ordered_json::array();
  for (const wire::LaneReport& lane : peer.lanes()) lanes.push_back(json_of(lane));
  return {{"node", peer.node()},
          {"address", peer.address()},
          {"state", peer.state()},
          {"reason", peer.reason()},
          {"version", peer.version()},
          {"silent_seconds", seconds(peer.silent_ms())},
          {"connected_seconds", seconds(peer.connected_ms())},
          {"sent_bytes", peer.sent_bytes()},
          {"received_bytes", peer.received_bytes()},
          {"dropped_frames", peer.dropped_frames()},
          {"damaged", peer.damaged()},
          {"relayed", peer.relayed()},
          {"lanes", lanes}};
}

}  // namespace

Answer show(const wire::PeersReport& report, const Style& style) {
  Answer answer;
  auto peers = nlohmann::ordered_json::array();
  Table table({{"node"},
               {"address"},
               {"state"},
               {"lanes"},
               {"for", Table::Align::kRight},
               {"heard"},
               {"sent", Table::Align::kRight},
               {"received", Table::Align::kRight},
               {"dropped", Table::Align::kRight},
               {"damaged", Table::Align::kRight},
               {"way"},
               {"version"}});
  for (const auto& peer : report.peers()) {
    const bool up = peer.state() == kUp;
    const std::string state = printable(peer.state());
    table.add({peer.node().empty() ? "?" : printable(peer.node()), printable(peer.address()),
               up                         ? style.good(state)
               : peer.state() == kStopped ? style.faint(state)
                                          : style.bad(state),
               lanes_of(peer), up ? format_duration(peer.connected_ms()) : "-",
               peer.version().empty() ? "never" : format_ago(peer.silent_ms()),
               format_bytes(peer.sent_bytes()), format_bytes(peer.received_bytes()),
               std::to_string(peer.dropped_frames()), std::to_string(peer.damaged()),
               peer.relayed() ? "relayed" : "link", printable(peer.version())});
    peers.push_back(json_of(peer));
    for (const wire::LaneReport& lane : peer.lanes()) {
      // Left in use where there is no other.
      if (lane.state() == kUp && !lane.port_state().empty() && lane.port_state() != "active") {
        answer.problems.push_back(fmt::format("our port of the lane on {} to {} is {}",
                                              printable(lane.device()), name_of(peer),
                                              printable(lane.port_state())));
      }
      if (lane.state() == kUp) continue;
      answer.problems.push_back(fmt::format("the lane on {} to {} is not used: {}",
                                            printable(lane.device()), name_of(peer),
                                            printable(lane.reason())));
    }
    if (!up && peer.state() != kStopped) {
      answer.problems.push_back(
          fmt::format("{} is {}{}", name_of(peer), state,
                      peer.reason().empty() ? "" : ": " + printable(peer.reason())));
    }
  }
  answer.text =
      table.empty() ? "this daemon has no peers: its jobs stay on this node\n" : table.str();
  answer.json = {{"peers", peers}};
  return answer;
}

Result run_peers(const Context& context, const Arguments& arguments) {
  if (Status status = no_arguments(arguments); !status.ok()) return tl::unexpected(status);
  wire::Query query;
  query.set_what(wire::Query::PEERS);
  const auto reply = ask(context, query);
  if (!reply) return tl::unexpected(reply.error());
  return show(reply->peers(), context.style);
}

}  // namespace gradring::tools
