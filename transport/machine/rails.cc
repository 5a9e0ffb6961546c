#include <fmt/format.h>

#include <algorithm>

#include "transport/machine/affinity.h"

namespace gradring::machine {
namespace {

std::string rate_text(uint64_t bps) {
  return bps == 0 ? "of unknown rate" : fmt::format("{:g} Gbit/s", static_cast<double>(bps) / 1e9);
}

// Cards of one bond are one rail.
std::vector<Rail> bundled(const Machine& machine) {
  std::vector<Rail> rails;
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const std::string bond = machine.nics[i].bond();
    const auto same = std::find_if(rails.begin(), rails.end(), [&](const Rail& rail) {
      return !bond.empty() && machine.nics[rail.nics.front()].bond() == bond;
    });
    if (same == rails.end()) {
      rails.push_back({{i}, false, "", 0});
    } else if (machine.nics[i].rdma && !machine.nics[same->nics.front()].rdma) {
      same->nics.insert(same->nics.begin(), i);
    } else {
      same->nics.push_back(i);
    }
  }
  for (Rail& rail : rails) {
    // An RDMA device over a bond tells the rate of one port or of both; its interfaces are sure.
    uint64_t of_interfaces = 0;
    for (const size_t nic : rail.nics) {
      for (const NetDevice& device : machine.nics[nic].interfaces) of_interfaces += device.rate_bps;
    }
    rail.rate_bps = rail.nics.size() > 1 && of_interfaces > 0
                        ? of_interfaces
                        : machine.nics[rail.nics.front()].rate_bps();
  }
  return rails;
}

bool is_up(const Machine& machine, const Rail& rail) {
  return std::any_of(rail.nics.begin(), rail.nics.end(),
                     [&](size_t nic) { return machine.nics[nic].up(); });
}

bool has_rdma(const Machine& machine, const Rail& rail) {
  return machine.nics[rail.nics.front()].rdma.has_value();
}

void use_wished(const Machine& machine, const Wishes& wishes, std::vector<Rail>* rails) {
  for (Rail& rail : *rails) {
    rail.reason = "not named as net-device";
    for (const std::string& name : wishes.net_devices) {
      const int nic = find_nic(machine, name);
      if (nic < 0 || std::count(rail.nics.begin(), rail.nics.end(), nic) == 0) continue;
      rail.used = true;
      rail.reason = "named as net-device";
    }
  }
}

void use_fittest(const Machine& machine, std::vector<Rail>* rails) {
  const bool rdma = std::any_of(rails->begin(), rails->end(), [&](const Rail& rail) {
    return has_rdma(machine, rail) && is_up(machine, rail);
  });
  uint64_t fastest = 0;
  for (const Rail& rail : *rails) {
    if (is_up(machine, rail) && has_rdma(machine, rail) == rdma) {
      fastest = std::max(fastest, rail.rate_bps);
    }
  }
  for (Rail& rail : *rails) {
    if (!is_up(machine, rail)) {
      rail.reason = "its link is down";
    } else if (rdma && !has_rdma(machine, rail)) {
      rail.reason = "has no RDMA, and others have";
    } else if (rail.rate_bps * 2 < fastest) {
      rail.reason = fmt::format("{}, less than half of the fastest's {}", rate_text(rail.rate_bps),
                                rate_text(fastest));
    } else {
      rail.used = true;
      rail.reason = fmt::format("up, {}{}{}", rate_text(rail.rate_bps), rdma ? ", RDMA" : "",
                                rail.nics.size() > 1 ? ", as a bond" : "");
    }
  }
}

}  // namespace

int find_nic(const Machine& machine, const std::string& name) {
  const auto pci = parse_pci(name);
  const std::string word = name.substr(0, name.find_first_of(": "));
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const Nic& nic = machine.nics[i];
    const bool carries =
        std::any_of(nic.interfaces.begin(), nic.interfaces.end(), [&](const NetDevice& device) {
          return device.name == word || (!word.empty() && device.bond == word);
        });
    if (pci ? nic.place.pci == *pci : nic.name == word || carries) return static_cast<int>(i);
  }
  return -1;
}

std::vector<Rail> rails_of(const Machine& machine, const Wishes& wishes) {
  std::vector<Rail> rails = bundled(machine);
  if (wishes.net_devices.empty()) {
    use_fittest(machine, &rails);
  } else {
    use_wished(machine, wishes, &rails);
  }
  return rails;
}

}  // namespace gradring::machine
