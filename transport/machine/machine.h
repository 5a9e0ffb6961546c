#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/machine/answers.h"
#include "transport/machine/pci.h"

namespace gradring::machine {

// A machine as far as gradients are concerned: plain values, made by assemble() from what hwloc and
// the drivers say. Indexes are into the lists of the same Machine.

struct Socket {
  uint32_t id = 0;
  std::string model;
  std::string cpus;  // "0-31,64-95"
};

struct NumaNode {
  uint32_t id = 0;
  int socket = -1;  // index; -1: more than one
  std::string cpus;
  uint64_t memory_bytes = 0;
};

// Where a device hangs.
struct Place {
  PciAddress pci;
  int numa = -1;    // id of its NUMA node; -1: unknown, as in many virtual machines
  int socket = -1;  // index
  std::string cpus;
  // From the root complex ("host 0000:16") over the bridges to the device. Empty: not in the tree.
  std::vector<std::string> bridges;
};

// All active NVLinks from one GPU to one neighbour.
struct NvLink {
  int gpu = -1;  // index; -1: an NVSwitch, which leads to all that are on it
  uint32_t count = 0;
};

struct Gpu {
  Place place;
  std::string name;
  std::string uuid;
  uint64_t memory_bytes = 0;
  std::vector<NvLink> nvlinks;
};

// A PCI function with network on it.
struct Nic {
  Place place;
  std::string name;  // of its RDMA device, else of its first interface
  std::vector<NetDevice> interfaces;
  std::optional<RdmaDevice> rdma;

  bool up() const;            // one of its ports is
  uint64_t rate_bps() const;  // bits per second of its ports together; 0: not known
  std::string bond() const;   // the bond that it is part of, or empty
};

// GPUs and NICs are sorted by PCI address, those with RDMA first: so they have nvidia-smi's
// numbers, which leaves out the others.
struct Machine {
  std::string host;
  std::string driver;
  std::vector<Socket> sockets;
  std::vector<NumaNode> numa;
  std::vector<Gpu> gpus;
  std::vector<Nic> nics;
  std::vector<std::string> notes;  // what could not be found out, and why
};

}  // namespace gradring::machine
