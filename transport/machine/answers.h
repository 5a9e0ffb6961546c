#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/machine/pci.h"
#include "transport/machine/port_counters.h"

namespace gradring::machine {

// What the drivers say of a machine, beside the tree that hwloc draws: as they say it, not yet
// joined. Rates are bits per second, 0 where it is not known.

// The far end of one NVLink.
struct NvLinkEnd {
  bool to_switch = false;
  PciAddress gpu;  // unless it is a switch
  bool operator==(const NvLinkEnd&) const = default;
};

struct NvmlGpu {
  PciAddress pci;
  std::string name;
  std::string uuid;
  uint64_t memory_bytes = 0;
  std::vector<NvLinkEnd> nvlinks;  // the active ones
  bool operator==(const NvmlGpu&) const = default;
};

struct NvmlAnswers {
  std::string absent;  // why NVML could not be asked; empty if it could
  std::string driver;  // version
  std::vector<NvmlGpu> gpus;
  bool operator==(const NvmlAnswers&) const = default;
};

struct Gid {
  uint32_t index = 0;
  std::string type;  // "RoCE v1", "RoCE v2", "IB"
  std::string address;
  std::string interface;
  bool operator==(const Gid&) const = default;
};

struct RdmaPort {
  uint32_t number = 0;
  std::string state;       // "active", "down", "init", "armed"
  std::string link_layer;  // "Ethernet", "InfiniBand"
  uint64_t rate_bps = 0;
  uint32_t mtu = 0;
  std::vector<Gid> gids;
  PortCounters counters;
  bool operator==(const RdmaPort&) const = default;
};

struct RdmaDevice {
  std::string name;  // mlx5_0
  std::optional<PciAddress> pci;
  std::vector<RdmaPort> ports;
  bool operator==(const RdmaDevice&) const = default;
};

struct NetDevice {
  std::string name;               // eth0
  std::optional<PciAddress> pci;  // none: it is made of software
  bool up = false;                // and has a carrier
  uint64_t rate_bps = 0;
  uint32_t mtu = 0;
  std::string bond;  // that it belongs to
  std::vector<std::string> addresses;
  bool operator==(const NetDevice&) const = default;
};

struct Answers {
  std::string host;
  NvmlAnswers nvml;
  std::vector<RdmaDevice> rdma;
  std::vector<NetDevice> net;
  bool operator==(const Answers&) const = default;
};

}  // namespace gradring::machine
