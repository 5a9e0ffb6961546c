#include "transport/machine/distance.h"
#include "transport/machine/look.h"

namespace gradring::machine {
namespace {

void add(const Place& place, wire::PlaceReport* to) {
  to->set_pci(text_of(place.pci));
  to->set_numa(place.numa);
  to->set_socket(place.socket);
  to->set_cpus(place.cpus);
  for (const std::string& bridge : place.bridges) to->add_bridges(bridge);
}

void add(const Gpu& gpu, wire::GpuReport* to) {
  add(gpu.place, to->mutable_place());
  to->set_name(gpu.name);
  to->set_uuid(gpu.uuid);
  to->set_memory_bytes(gpu.memory_bytes);
  for (const NvLink& link : gpu.nvlinks) {
    wire::NvLinkReport* shown = to->add_nvlinks();
    shown->set_gpu(link.gpu);
    shown->set_count(link.count);
  }
}

void add(const RdmaDevice& device, wire::RdmaReport* to) {
  to->set_name(device.name);
  for (const RdmaPort& port : device.ports) {
    wire::RdmaPortReport* shown = to->add_ports();
    shown->set_number(port.number);
    shown->set_state(port.state);
    shown->set_link_layer(port.link_layer);
    shown->set_rate_bps(port.rate_bps);
    shown->set_mtu(port.mtu);
    for (const Gid& gid : port.gids) {
      wire::GidReport* entry = shown->add_gids();
      entry->set_index(gid.index);
      entry->set_type(gid.type);
      entry->set_address(gid.address);
      entry->set_interface(gid.interface);
    }
    for (size_t i = 0; i < kPortCounters; ++i) {
      if (!port.counters.values[i]) continue;
      wire::PortCounterReport* counter = shown->add_counters();
      counter->set_name(name_of(static_cast<PortCounter>(i)));
      counter->set_value(*port.counters.values[i]);
    }
  }
}

void add(const Nic& nic, wire::NicReport* to) {
  add(nic.place, to->mutable_place());
  to->set_name(nic.name);
  to->set_up(nic.up());
  to->set_rate_bps(nic.rate_bps());
  if (nic.rdma) add(*nic.rdma, to->mutable_rdma());
  for (const NetDevice& device : nic.interfaces) {
    wire::NetDeviceReport* shown = to->add_interfaces();
    shown->set_name(device.name);
    shown->set_up(device.up);
    shown->set_rate_bps(device.rate_bps);
    shown->set_mtu(device.mtu);
    shown->set_bond(device.bond);
    for (const std::string& address : device.addresses) shown->add_addresses(address);
  }
}

void add_choices(const Machine& machine, const Wishes& wishes, wire::MachineReport* report) {
  const std::vector<Rail> rails = rails_of(machine, wishes);
  for (const Rail& rail : rails) {
    wire::RailReport* shown = report->add_rails();
    for (const size_t nic : rail.nics) shown->add_nics(static_cast<uint32_t>(nic));
    shown->set_used(rail.used);
    shown->set_reason(rail.reason);
    shown->set_rate_bps(rail.rate_bps);
  }
  const Affinity affinity = affinity_of(machine, rails, wishes);
  for (size_t gpu = 0; gpu < affinity.choices.size(); ++gpu) {
    wire::AffinityReport* shown = report->add_affinity();
    shown->set_gpu(static_cast<uint32_t>(gpu));
    for (const Choice& choice : affinity.choices[gpu]) {
      wire::RailChoice* one = shown->add_choices();
      one->set_nic(static_cast<uint32_t>(choice.nic));
      one->set_distance(name_of(choice.distance));
      one->set_reason(choice.reason);
    }
  }
  for (const std::string& complaint : affinity.complaints) report->add_notes(complaint);
}

}  // namespace

wire::MachineReport report_of(const Machine& machine, const Wishes& wishes) {
  wire::MachineReport report;
  report.set_host(machine.host);
  report.set_driver(machine.driver);
  for (const std::string& note : machine.notes) report.add_notes(note);
  for (const Socket& socket : machine.sockets) {
    wire::SocketReport* to = report.add_sockets();
    to->set_id(socket.id);
    to->set_model(socket.model);
    to->set_cpus(socket.cpus);
  }
  for (const NumaNode& numa : machine.numa) {
    wire::NumaReport* to = report.add_numa();
    to->set_id(numa.id);
    to->set_socket(numa.socket);
    to->set_cpus(numa.cpus);
    to->set_memory_bytes(numa.memory_bytes);
  }
  for (const Gpu& gpu : machine.gpus) add(gpu, report.add_gpus());
  for (const Nic& nic : machine.nics) add(nic, report.add_nics());
  for (const std::string& code : distances_of(machine)) report.add_distances(code);
  add_choices(machine, wishes, &report);
  return report;
}

}  // namespace gradring::machine
