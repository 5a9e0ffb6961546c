#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"
#include "transport/machine/machine.h"

namespace gradring::machine {

struct PciDevice {
  Place place;
  uint16_t kind = 0;  // PCI's class: 0x0302 is a 3D controller
  uint16_t vendor = 0;
  std::string name;                   // as the PCI database has it, or empty
  std::vector<std::string> os_names;  // eth0, mlx5_0, card0
};

// What hwloc draws: the machine without what the drivers know.
struct Tree {
  std::vector<Socket> sockets;
  std::vector<NumaNode> numa;
  std::vector<PciDevice> devices;
};

struct TreeAndXml {
  Tree tree;
  std::string xml;  // hwloc's own export: the same tree again, on any machine
};

// Of this machine, or, where `xml_file` is not empty, of the one that the file describes. Errors
// name the file. hwloc trusts such a file more than one should: see look_apart().
tl::expected<TreeAndXml, Status> read_tree(const std::string& xml_file = {});

}  // namespace gradring::machine
