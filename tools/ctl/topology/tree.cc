#include "tools/ctl/topology/tree.h"

#include <algorithm>

#include "tools/ctl/topology/names.h"

namespace gradring::tools {
namespace {

constexpr int kDepthMax = 32;  // of PCI itself 256 buses, of real machines 8

Branch* reach(Branch* root, const wire::PlaceReport& place) {
  Branch* at = root;
  for (int i = 0; i < std::min(place.bridges_size(), kDepthMax); ++i) {
    const std::string& name = place.bridges(i);
    const auto known = std::find_if(at->branches.begin(), at->branches.end(),
                                    [&](const Branch& branch) { return branch.name == name; });
    if (known != at->branches.end()) {
      at = &*known;
    } else {
      at->branches.push_back({name, {}, {}, {}});
      at = &at->branches.back();
    }
  }
  return at;
}

// Functions of one card are one thing: "0000:1e:00.0" and "0000:1e:00.1".
bool is_one_card(const wire::MachineReport& machine, const Branch& branch) {
  if (!branch.branches.empty()) return false;
  if (!branch.gpus.empty()) return branch.gpus.size() == 1 && branch.nics.empty();
  const auto card = [&](int nic) {
    const std::string& pci = machine.nics(nic).place().pci();
    return pci.substr(0, pci.rfind('.'));
  };
  return std::all_of(branch.nics.begin(), branch.nics.end(),
                     [&](int nic) { return card(nic) == card(branch.nics.front()); });
}

void simplify(const wire::MachineReport& machine, Branch* branch) {
  std::vector<Branch> kept;
  for (Branch& child : branch->branches) {
    simplify(machine, &child);
    if (is_one_card(machine, child)) {
      branch->gpus.insert(branch->gpus.end(), child.gpus.begin(), child.gpus.end());
      branch->nics.insert(branch->nics.end(), child.nics.begin(), child.nics.end());
    } else if (child.gpus.empty() && child.nics.empty() && child.branches.size() == 1) {
      kept.push_back(std::move(child.branches.front()));
    } else {
      kept.push_back(std::move(child));
    }
  }
  branch->branches = std::move(kept);
  std::sort(branch->gpus.begin(), branch->gpus.end());
  std::sort(branch->nics.begin(), branch->nics.end());
}

}  // namespace

bool Branch::has_gpu() const {
  return !gpus.empty() || std::any_of(branches.begin(), branches.end(),
                                      [](const Branch& branch) { return branch.has_gpu(); });
}

Branch tree_of(const wire::MachineReport& machine, int socket) {
  Branch root;
  for (int i = 0; i < machine.gpus_size(); ++i) {
    const wire::PlaceReport& place = machine.gpus(i).place();
    if (place.socket() == socket) reach(&root, place)->gpus.push_back(i);
  }
  for (int i = 0; i < machine.nics_size(); ++i) {
    const wire::PlaceReport& place = machine.nics(i).place();
    if (place.socket() == socket) reach(&root, place)->nics.push_back(i);
  }
  simplify(machine, &root);
  return root;
}

std::string title_of(const Branch& branch) {
  if (branch.is_root_complex()) return "root complex " + short_pci(branch.name.substr(5));
  return "PCIe switch " + short_pci(branch.name);
}

}  // namespace gradring::tools
