#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"

namespace gradring::transport {

// An interface as the kernel shows it, with its numeric addresses.
struct Interface {
  std::string name;
  bool up = false;  // and running: it has a carrier
  bool bridge = false;
  std::vector<std::string> addresses;
  bool without_carrier = false;  // else it would be up
};

// A network device as UCX shows it: up, with an address, and with a transport of UCX for it.
struct UcxDevice {
  std::string name;
  bool rdma = false;
  // How it may reach memory of a GPU: by a module of the kernel for that, or as a DMA-BUF.
  bool peer_memory = false;
  bool dmabufs = false;
};

struct DeviceInventory {
  std::vector<Interface> interfaces;
  std::vector<UcxDevice> usable;
};
tl::expected<DeviceInventory, Status> take_device_inventory();

struct DeviceChoice {
  std::vector<UcxDevice> devices;  // never empty
  std::string reason;              // for people

  bool any_rdma() const;
  std::string names() const;  // "eth0,eth1", as UCX wants its list
};
// Pure: what to use of the inventory when the user asks for `wanted`, or for nothing and listens at
// `listen_address` (see UcxOptions). UCX itself would only warn about a device that is not there,
// and then run with nothing, so everything is checked here. `by_sockets`: see UcxOptions.
tl::expected<DeviceChoice, Status> choose_devices(const std::vector<std::string>& wanted,
                                                  const std::string& listen_address,
                                                  const DeviceInventory& inventory,
                                                  bool by_sockets = false);

// Why cards among these cannot reach memory of GPUs, in words; ok: they can. `dmabufs`: the GPUs
// lend theirs so.
Status can_reach_gpus(const DeviceChoice& choice, bool dmabufs);

// "lo, eth0, mlx5_0:1", or "none".
std::string list_devices(const std::vector<UcxDevice>& devices);

}  // namespace gradring::transport
