#include "daemon/control/hardware/gpu_lanes.h"

#include <algorithm>

#include "daemon/control/hardware/gpu_health.h"

namespace gradring::daemon {
namespace {

std::vector<uint8_t> lanes_of(const wire::MachineReport& machine,
                              const wire::AffinityReport& affinity,
                              std::span<const std::string> lanes) {
  std::vector<uint8_t> near;
  for (const wire::RailChoice& choice : affinity.choices()) {
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (nic_of(machine, lanes[lane]) == static_cast<int32_t>(choice.nic())) {
        near.push_back(static_cast<uint8_t>(lane));
      }
    }
    if (!near.empty()) break;
  }
  return near;
}

}  // namespace

int32_t nic_of(const wire::MachineReport& machine, const std::string& lane) {
  const std::string word = lane.substr(0, lane.find_first_of(":, "));
  for (int32_t i = 0; i < machine.nics_size(); ++i) {
    const wire::NicReport& nic = machine.nics(i);
    if (nic.name() == word) return i;
    for (const wire::NetDeviceReport& one : nic.interfaces()) {
      if (one.name() == word || (!word.empty() && one.bond() == word)) return i;
    }
  }
  return -1;
}

std::vector<std::vector<uint8_t>> lanes_near(const wire::MachineReport& machine,
                                             std::span<const std::array<std::byte, 16>> gpus,
                                             std::span<const std::string> lanes) {
  std::vector<std::vector<uint8_t>> near;
  for (const auto& uuid : gpus) {
    const auto known =
        std::find_if(machine.gpus().begin(), machine.gpus().end(),
                     [&](const auto& gpu) { return bare_uuid(gpu.uuid()) == uuid_text(uuid); });
    const auto index = static_cast<int>(known - machine.gpus().begin());
    near.push_back(index < machine.affinity_size()
                       ? lanes_of(machine, machine.affinity(index), lanes)
                       : std::vector<uint8_t>());
  }
  return near;
}

}  // namespace gradring::daemon
