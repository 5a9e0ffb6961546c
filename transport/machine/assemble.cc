#include "transport/machine/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace gradring::machine {
namespace {

constexpr uint16_t kNvidia = 0x10de;
constexpr uint16_t kDisplay = 0x03;  // the upper byte of PCI's class
constexpr uint16_t kNetwork = 0x02;

const PciDevice* find(const Tree& tree, const PciAddress& pci) {
  const auto it = std::find_if(tree.devices.begin(), tree.devices.end(),
                               [&](const PciDevice& d) { return d.place.pci == pci; });
  return it == tree.devices.end() ? nullptr : &*it;
}

Place place_of(const Tree& tree, const PciAddress& pci, const std::string& name, Machine* machine) {
  if (const PciDevice* device = find(tree, pci)) return device->place;
  machine->notes.push_back(
      fmt::format("{} is at {}, where hwloc sees nothing: how near it is to others is not known",
                  name, text_of(pci)));
  Place place;
  place.pci = pci;
  return place;
}

int index_of(const std::vector<Gpu>& gpus, const PciAddress& pci) {
  const auto it =
      std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.place.pci == pci; });
  return it == gpus.end() ? -1 : static_cast<int>(it - gpus.begin());
}

std::vector<NvLink> links_of(const NvmlGpu& told, const std::vector<Gpu>& gpus,
                             std::vector<std::string>* notes) {
  std::map<int, uint32_t> counts;  // by neighbour
  uint32_t astray = 0;
  for (const NvLinkEnd& end : told.nvlinks) {
    const int gpu = end.to_switch ? -1 : index_of(gpus, end.gpu);
    if (gpu < 0 && !end.to_switch) {
      ++astray;  // to a GPU that was given to another virtual machine, or container
    } else {
      ++counts[gpu];
    }
  }
  if (astray > 0) {
    notes->push_back(fmt::format("{} NVLinks of the GPU at {} lead to none that is visible here",
                                 astray, text_of(told.pci)));
  }
  std::vector<NvLink> links;
  for (const auto& [gpu, count] : counts) links.push_back({gpu, count});
  return links;
}

void add_gpus(const Tree& tree, const NvmlAnswers& nvml, Machine* machine) {
  for (const NvmlGpu& told : nvml.gpus) {
    machine->gpus.push_back({place_of(tree, told.pci, told.name, machine),
                             told.name,
                             told.uuid,
                             told.memory_bytes,
                             {}});
  }
  for (const PciDevice& device : tree.devices) {
    if (device.vendor != kNvidia || device.kind >> 8 != kDisplay) continue;
    if (index_of(machine->gpus, device.place.pci) >= 0) continue;
    machine->gpus.push_back(
        {device.place, device.name.empty() ? "NVIDIA GPU" : device.name, "", 0, {}});
    machine->notes.push_back(
        fmt::format("the GPU at {} is on the bus, but {}", text_of(device.place.pci),
                    nvml.absent.empty() ? std::string("NVML does not show it") : nvml.absent));
  }
  std::sort(machine->gpus.begin(), machine->gpus.end(),
            [](const Gpu& a, const Gpu& b) { return a.place.pci < b.place.pci; });
  for (const NvmlGpu& told : nvml.gpus) {
    Gpu& gpu = machine->gpus[static_cast<size_t>(index_of(machine->gpus, told.pci))];
    gpu.nvlinks = links_of(told, machine->gpus, &machine->notes);
  }
}

Nic* nic_at(const Tree& tree, const PciAddress& pci, const std::string& name, Machine* machine) {
  for (Nic& nic : machine->nics) {
    if (nic.place.pci == pci) return &nic;
  }
  machine->nics.push_back({place_of(tree, pci, name, machine), name, {}, {}});
  return &machine->nics.back();
}

void add_nics(const Tree& tree, const Answers& answers, Machine* machine) {
  for (const RdmaDevice& device : answers.rdma) {
    if (!device.pci) continue;  // made of software, over an interface that is there as well
    nic_at(tree, *device.pci, device.name, machine)->rdma = device;
  }
  for (const NetDevice& device : answers.net) {
    if (device.pci) nic_at(tree, *device.pci, device.name, machine)->interfaces.push_back(device);
  }
  // On the bus, but nobody drives it.
  for (const PciDevice& device : tree.devices) {
    if (device.kind >> 8 != kNetwork || device.os_names.empty()) continue;
    nic_at(tree, device.place.pci, device.os_names.front(), machine);
  }
  std::sort(machine->nics.begin(), machine->nics.end(), [](const Nic& a, const Nic& b) {
    return std::pair(!a.rdma, a.place.pci) < std::pair(!b.rdma, b.place.pci);
  });
}

}  // namespace

bool Nic::up() const {
  if (!rdma) {
    return std::any_of(interfaces.begin(), interfaces.end(),
                       [](const NetDevice& device) { return device.up; });
  }
  return std::any_of(rdma->ports.begin(), rdma->ports.end(),
                     [](const RdmaPort& port) { return port.state == "active"; });
}

uint64_t Nic::rate_bps() const {
  uint64_t of_ports = 0, of_interfaces = 0;
  if (rdma) {
    for (const RdmaPort& port : rdma->ports) of_ports += port.rate_bps;
  }
  for (const NetDevice& device : interfaces) of_interfaces += device.rate_bps;
  return of_ports > 0 ? of_ports : of_interfaces;
}

std::string Nic::bond() const {
  for (const NetDevice& device : interfaces) {
    if (!device.bond.empty()) return device.bond;
  }
  return "";
}

Machine assemble(const Tree& tree, const Answers& answers) {
  Machine machine;
  machine.host = answers.host;
  machine.driver = answers.nvml.driver;
  machine.sockets = tree.sockets;
  machine.numa = tree.numa;
  add_gpus(tree, answers.nvml, &machine);
  add_nics(tree, answers, &machine);
  return machine;
}

}  // namespace gradring::machine
