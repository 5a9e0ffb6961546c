// gradringctl topology, for scripts: tools/schema/topology.json.
#include "tools/ctl/topology/show.h"

namespace gradring::tools {
namespace {

using Json = nlohmann::ordered_json;

template <typename List, typename Make>
Json array_of(const List& list, Make make) {
  Json array = Json::array();
  for (const auto& one : list) array.push_back(make(one));
  return array;
}

template <typename List>
Json plain(const List& list) {
  return array_of(list, [](const auto& one) { return one; });
}

Json json_of(const wire::PlaceReport& place) {
  return {{"pci", place.pci()},
          {"numa", place.numa()},
          {"socket", place.socket()},
          {"cpus", place.cpus()},
          {"bridges", plain(place.bridges())}};
}

Json json_of(const wire::GpuReport& gpu) {
  Json json = json_of(gpu.place());
  json.update({{"name", gpu.name()},
               {"uuid", gpu.uuid()},
               {"memory_bytes", gpu.memory_bytes()},
               {"nvlinks", array_of(gpu.nvlinks(), [](const wire::NvLinkReport& link) {
                  return Json{{"gpu", link.gpu()}, {"count", link.count()}};
                })}});
  return json;
}

Json json_of(const wire::GpuErrorReport& error) {
  return {{"gpu", error.gpu()},     {"pci", error.pci()},
          {"error", error.error()}, {"verdict", error.verdict()},
          {"what", error.what()},   {"remedy", error.remedy()},
          {"count", error.count()}, {"last_seconds", seconds(error.last_ms())}};
}

template <typename List>
Json counters_of(const List& list) {
  return array_of(list, [](const wire::PortCounterReport& counter) {
    return Json{{"name", counter.name()},
                {"value", counter.value()},
                {"of_daemon", counter.of_daemon()},
                {"per_second", counter.per_second()}};
  });
}

Json json_of(const wire::PortReport& port) {
  return {{"port", port.port()},
          {"state", port.state()},
          {"seconds", seconds(port.state_ms())},
          {"last_change", port.last_change()},
          {"last_change_seconds", seconds(port.last_change_ms())},
          {"changes", port.changes()},
          {"counters", counters_of(port.counters())}};
}

Json json_of(const wire::GidReport& gid) {
  return {{"index", gid.index()},
          {"type", gid.type()},
          {"address", gid.address()},
          {"interface", gid.interface()}};
}

Json json_of(const wire::LaneChoice& lane) {
  Json json{{"device", lane.device()},
            {"nic", lane.nic()},
            {"reaches_gpus", lane.reaches_gpus()},
            {"reason", lane.reason()},
            {"ports", array_of(lane.ports(), [](const auto& port) { return json_of(port); })}};
  if (lane.has_gid()) json["gid"] = json_of(lane.gid());
  return json;
}

Json json_of(const wire::RdmaReport& rdma) {
  return {{"name", rdma.name()},
          {"ports", array_of(rdma.ports(), [](const wire::RdmaPortReport& port) {
             return Json{
                 {"number", port.number()},
                 {"state", port.state()},
                 {"link_layer", port.link_layer()},
                 {"rate_bits_per_second", port.rate_bps()},
                 {"mtu", port.mtu()},
                 {"gids", array_of(port.gids(), [](const auto& gid) { return json_of(gid); })},
                 {"counters", counters_of(port.counters())}};
           })}};
}

Json json_of(const wire::NicReport& nic) {
  Json json = json_of(nic.place());
  json.update(
      {{"name", nic.name()},
       {"up", nic.up()},
       {"rate_bits_per_second", nic.rate_bps()},
       {"interfaces", array_of(nic.interfaces(), [](const wire::NetDeviceReport& one) {
          return Json{
              {"name", one.name()}, {"up", one.up()},     {"rate_bits_per_second", one.rate_bps()},
              {"mtu", one.mtu()},   {"bond", one.bond()}, {"addresses", plain(one.addresses())}};
        })}});
  if (nic.has_rdma()) json["rdma"] = json_of(nic.rdma());
  return json;
}

Json json_of(const wire::MachineReport& machine) {
  return {
      {"host", machine.host()},
      {"recording", machine.recording()},
      {"fault", machine.fault()},
      {"notes", plain(machine.notes())},
      {"nvidia_driver", machine.driver()},
      {"sockets",
       array_of(
           machine.sockets(),
           [](const wire::SocketReport& socket) {
             return Json{{"id", socket.id()}, {"model", socket.model()}, {"cpus", socket.cpus()}};
           })},
      {"numa", array_of(machine.numa(),
                        [](const wire::NumaReport& numa) {
                          return Json{{"id", numa.id()},
                                      {"socket", numa.socket()},
                                      {"cpus", numa.cpus()},
                                      {"memory_bytes", numa.memory_bytes()}};
                        })},
      {"gpus", array_of(machine.gpus(), [](const auto& gpu) { return json_of(gpu); })},
      {"nics", array_of(machine.nics(), [](const auto& nic) { return json_of(nic); })},
      {"distances", plain(machine.distances())},
      {"rails", array_of(machine.rails(),
                         [](const wire::RailReport& rail) {
                           return Json{{"nics", plain(rail.nics())},
                                       {"used", rail.used()},
                                       {"rate_bits_per_second", rail.rate_bps()},
                                       {"reason", rail.reason()}};
                         })},
      {"affinity", array_of(machine.affinity(), [](const wire::AffinityReport& one) {
         return Json{{"gpu", one.gpu()},
                     {"choices", array_of(one.choices(), [](const wire::RailChoice& choice) {
                        return Json{{"nic", choice.nic()},
                                    {"distance", choice.distance()},
                                    {"reason", choice.reason()}};
                      })}};
       })}};
}

Json json_of(const wire::NodeReport& peer) {
  return {{"node", peer.node()},
          {"address", peer.address()},
          {"state", peer.state()},
          {"lanes", array_of(peer.lanes(), [](const wire::NodeLane& lane) {
             return Json{{"device", lane.device()}, {"state", lane.state()}};
           })}};
}

Json json_of(const wire::RingReport& ring) {
  return {
      {"job", ring.job()},
      {"incarnation", ring.incarnation()},
      {"epoch", ring.epoch()},
      {"members", array_of(ring.members(),
                           [](const wire::RingMember& member) {
                             return Json{{"node", member.node()}, {"ranks", plain(member.ranks())}};
                           })},
      {"reason", ring.reason()}};
}

}  // namespace

nlohmann::ordered_json json_of(const wire::TopologyReport& report) {
  return {{"node", report.node()},
          {"machine", json_of(report.machine())},
          {"lanes", array_of(report.lanes(), [](const auto& lane) { return json_of(lane); })},
          {"peers", array_of(report.peers(), [](const auto& peer) { return json_of(peer); })},
          {"rings", array_of(report.rings(), [](const auto& ring) { return json_of(ring); })},
          {"gpu_sums",
           {{"on_gpus", report.gpu_sums().on_gpus()},
            {"by", report.gpu_sums().by()},
            {"reason", report.gpu_sums().reason()},
            {"way", report.gpu_sums().way()},
            {"mps", report.gpu_sums().mps()},
            {"network", report.gpu_sums().network()}}},
          {"gpu_errors",
           {{"watched", report.gpu_errors().watched()},
            {"reason", report.gpu_errors().reason()},
            {"errors", array_of(report.gpu_errors().errors(),
                                [](const auto& error) { return json_of(error); })}}}};
}

}  // namespace gradring::tools
