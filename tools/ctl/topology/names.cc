#include "tools/ctl/topology/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/common/text.h"

namespace gradring::tools {
namespace {

// Between -1, for what is not known, and the end of the list.
bool fits(int64_t index, int size) { return index >= -1 && index < size; }

bool places_fit(const wire::MachineReport& machine) {
  const auto good = [&](const auto& device) {
    return fits(device.place().socket(), machine.sockets_size());
  };
  return std::all_of(machine.gpus().begin(), machine.gpus().end(), good) &&
         std::all_of(machine.nics().begin(), machine.nics().end(), good) &&
         std::all_of(machine.numa().begin(), machine.numa().end(),
                     [&](const auto& numa) { return fits(numa.socket(), machine.sockets_size()); });
}

bool links_fit(const wire::MachineReport& machine) {
  for (const auto& gpu : machine.gpus()) {
    for (const auto& link : gpu.nvlinks()) {
      if (!fits(link.gpu(), machine.gpus_size())) return false;
    }
  }
  return true;
}

bool choices_fit(const wire::MachineReport& machine) {
  const auto is_nic = [&](uint32_t nic) { return nic < uint32_t(machine.nics_size()); };
  for (const auto& rail : machine.rails()) {
    if (rail.nics().empty()) return false;
    if (!std::all_of(rail.nics().begin(), rail.nics().end(), is_nic)) return false;
  }
  for (const auto& one : machine.affinity()) {
    if (one.gpu() >= uint32_t(machine.gpus_size())) return false;
    for (const auto& choice : one.choices()) {
      if (!is_nic(choice.nic())) return false;
    }
  }
  return true;
}

}  // namespace

std::string nonsense_in(const wire::TopologyReport& report) {
  const wire::MachineReport& machine = report.machine();
  const int64_t devices = int64_t{machine.gpus_size()} + machine.nics_size();
  bool good = machine.distances_size() == devices * devices && places_fit(machine) &&
              links_fit(machine) && choices_fit(machine);
  for (const auto& lane : report.lanes()) good &= fits(lane.nic(), machine.nics_size());
  return good ? "" : "what it tells of its machine contradicts itself";
}

std::string gpu_name(int index) { return fmt::format("GPU{}", index); }
std::string nic_name(int index) { return fmt::format("NIC{}", index); }

std::string device_name(const wire::MachineReport& machine, int row) {
  return row < machine.gpus_size() ? gpu_name(row) : nic_name(row - machine.gpus_size());
}

std::string rate_name(uint64_t bits_per_second) {
  if (bits_per_second == 0) return "?";
  return fmt::format("{:g}G", static_cast<double>(bits_per_second) / 1e9);
}

std::string memory_name(uint64_t bytes) {
  return fmt::format("{:.0f} GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string short_pci(const std::string& pci) {
  constexpr std::string_view kUsual = "0000:";
  return printable(pci.rfind(kUsual, 0) == 0 ? pci.substr(kUsual.size()) : pci);
}

std::string short_model(const std::string& model) {
  std::string text = model.substr(0, model.find(" @ "));
  for (const std::string_view idle : {"NVIDIA ", "(R)", "(TM)", "(tm)", " CPU", " Processor"}) {
    for (size_t at = text.find(idle); at != std::string::npos; at = text.find(idle)) {
      text.erase(at, idle.size());
    }
  }
  return printable(text);
}

std::string short_cpus(const std::string& cpus) {
  constexpr size_t kLongest = 32, kShown = 3;
  std::string list = printable(cpus);
  if (list.size() <= kLongest) return list;
  size_t end = 0;
  for (size_t i = 0; i < kShown && end != std::string::npos; ++i) end = list.find(',', end + 1);
  if (end == std::string::npos || list.rfind(',') == end) return list;
  return list.substr(0, end) + ",..." + list.substr(list.rfind(','));
}

std::string kind_of(const wire::NicReport& nic) {
  if (!nic.has_rdma()) return "Ethernet";
  for (const auto& port : nic.rdma().ports()) {
    if (port.link_layer() == "InfiniBand") return "InfiniBand";
  }
  return "RoCE";
}

std::string interfaces_of(const wire::NicReport& nic) {
  std::string text;
  for (const auto& one : nic.interfaces()) {
    text += (text.empty() ? "" : ",") + printable(one.name());
  }
  return text;
}

std::string bond_of(const wire::NicReport& nic) {
  for (const auto& one : nic.interfaces()) {
    if (!one.bond().empty()) return printable(one.bond());
  }
  return "";
}

const wire::RailReport* rail_of(const wire::MachineReport& machine, int nic) {
  for (const auto& rail : machine.rails()) {
    if (std::count(rail.nics().begin(), rail.nics().end(), uint32_t(nic)) > 0) return &rail;
  }
  return nullptr;
}

std::string ranges_of(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace gradring::tools
