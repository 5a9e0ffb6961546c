#include "tests/tools/doctor_facts.h"

#include <algorithm>

namespace gradring::tools::doctor {
namespace {

wire::PeerReport peer_named(const std::string& node) {
  wire::PeerReport peer;
  peer.set_node(node);
  peer.set_address(node + ".example:7300");
  peer.set_state("up");
  wire::LaneReport* lane = peer.add_lanes();
  lane->set_device("eth0 (TCP)");
  lane->set_state("up");
  return peer;
}

NodeFacts node_named(const std::string& name) {
  NodeFacts node;
  node.node = name;
  node.status.set_node(name);
  node.status.set_state("ready");
  node.status.set_version("0.1.0");
  node.status.set_peers_configured(2);
  for (const auto& [key, value] :
       {std::pair{"checksum", "on"}, std::pair{"mtu of lane 0", "9000"}}) {
    wire::Setting* setting = node.status.add_settings();
    setting->set_name(key);
    setting->set_value(value);
  }
  for (const char* other : {"a", "b", "c"}) {
    if (name != other) *node.peers.add_peers() = peer_named(other);
  }
  if (name != "a") node.round_trip_ns = 400'000;
  return node;
}

void add_card(wire::MachineReport* machine, const std::string& name) {
  wire::RdmaReport* rdma = machine->add_nics()->mutable_rdma();
  rdma->set_name(name);
  wire::RdmaPortReport* port = rdma->add_ports();
  port->set_number(1);
  port->set_state("active");
  port->set_link_layer("Ethernet");
  port->set_rate_bps(100'000'000'000);
  port->set_mtu(4096);
  wire::GidReport* gid = port->add_gids();
  gid->set_type("RoCE v2");
  gid->set_address("::ffff:10.0.0.1");
}

}  // namespace

Facts healthy_facts() {
  Facts facts;
  facts.runtime_dir = "/run/gradring";
  facts.limits = {true, UINT64_MAX, false, 65536, 0};
  facts.memory.shm_bytes = uint64_t{8} << 30;
  facts.memory.total_bytes = uint64_t{256} << 30;
  facts.memory.huge_pages = 0;
  facts.memory.processors = 64;
  facts.folder = {"/run/gradring", true, 0755, 998, 998};
  facts.clock.synchronised = true;
  facts.clock.governors = {{"performance", 64}};
  facts.net = {{"lo", true, true, true, -1, 65536, ""},
               {"eth0", false, true, false, 25'000, 9000, "full"}};
  facts.rdma = {{"mlx5_0", 1, true}, {"mlx5_1", 1, true}};
  facts.pci.iommu = "identity";
  facts.pci.acs_readable = true;
  facts.pci.peer_memory = true;
  facts.pci.unified_memory = true;
  wire::LaneChoice* lane = facts.topology.add_lanes();
  lane->set_device("eth0 (TCP)");
  facts.topology.mutable_gpu_sums()->set_network("from the host's memory: gpu-direct is off");
  facts.topology.mutable_gpu_sums()->set_on_gpus(true);
  facts.topology.mutable_gpu_sums()->set_by("4 GPUs, NVIDIA H100");
  facts.topology.mutable_gpu_sums()->set_mps(true);
  wire::MachineReport* machine = facts.topology.mutable_machine();
  for (int gpu = 0; gpu < 2; ++gpu) {
    wire::NvLinkReport* link = machine->add_gpus()->add_nvlinks();
    link->set_gpu(1 - gpu);
    link->set_count(12);
  }
  facts.topology.mutable_gpu_errors()->set_watched(true);
  add_card(machine, "mlx5_0");
  add_card(machine, "mlx5_1");
  facts.nodes = {node_named("a"), node_named("b"), node_named("c")};
  for (const auto& [from, to] : {std::pair{"a", "b"}, std::pair{"b", "c"}, std::pair{"c", "a"}}) {
    facts.rates.push_back({from, to, "eth0 (TCP)", "up", 1e9, 3e9});
  }
  return facts;
}

Finding finding_of(const Findings& findings, const std::string& check) {
  const auto it = std::ranges::find(findings, check, &Finding::check);
  return it == findings.end() ? Finding{} : *it;
}

}  // namespace gradring::tools::doctor
