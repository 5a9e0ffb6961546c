#include "transport/machine/verbs.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <net/if.h>

#include <array>
#include <filesystem>
#include <memory>

#include "transport/machine/verbs_library.h"

namespace gradring::machine {
namespace {

// As many as fit into a card's table of 256 entries for each of two ports; more are not shown.
constexpr size_t kGidsMax = 512;

const char* state_of(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_INIT:
      return "init";
    case IBV_PORT_ARMED:
      return "armed";
    default:
      return "down";
  }
}

uint32_t mtu_of(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << static_cast<unsigned>(mtu) : 0;
}

const char* type_of(uint32_t type) {
  return type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1" : "IB";
}

Gid gid_of(const ibv_gid_entry& entry) {
  Gid gid;
  gid.index = entry.gid_index;
  gid.type = type_of(entry.gid_type);
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, entry.gid.raw, text.data(), text.size());
  gid.address = text.data();
  std::array<char, IF_NAMESIZE> name{};
  if (entry.ndev_ifindex != 0 && if_indextoname(entry.ndev_ifindex, name.data()) != nullptr) {
    gid.interface = name.data();
  }
  return gid;
}

void add_ports(const VerbsLibrary& verbs, ibv_context* context, RdmaDevice* device) {
  ibv_device_attr attributes{};
  if (verbs.query_device(context, &attributes) != 0) return;
  for (uint8_t number = 1; number <= attributes.phys_port_cnt && number != 0; ++number) {
    ibv_port_attr port{};
    if (verbs.query_port(context, number, &port) != 0) continue;
    RdmaPort& to = device->ports.emplace_back();
    to.number = number;
    to.state = state_of(port.state);
    to.link_layer = port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
    to.rate_bps = rate_of_port(port.active_width, port.active_speed);
    to.mtu = mtu_of(port.active_mtu);
  }
  std::vector<ibv_gid_entry> entries(kGidsMax);
  const ssize_t count =
      verbs.query_gid_table(context, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    for (RdmaPort& port : device->ports) {
      if (port.number == entry.port_num) port.gids.push_back(gid_of(entry));
    }
  }
}

// The device of the kernel is named by the folder that its link leads to.
std::optional<PciAddress> pci_of(const ibv_device* device) {
  std::error_code error;
  const auto path =
      std::filesystem::canonical(std::filesystem::path(device->ibdev_path) / "device", error);
  return error ? std::nullopt : parse_pci(path.filename().string());
}

}  // namespace

uint64_t rate_of_port(uint8_t active_width, uint8_t active_speed) {
  struct Code {
    uint8_t code;
    uint64_t value;
  };
  constexpr std::array<Code, 5> kLanes = {{{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}}};
  // SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR
  constexpr std::array<Code, 8> kMegabits = {{{1, 2500},
                                              {2, 5000},
                                              {4, 10000},
                                              {8, 10000},
                                              {16, 14000},
                                              {32, 25000},
                                              {64, 50000},
                                              {128, 100000}}};
  uint64_t lanes = 0, megabits = 0;
  for (const Code& one : kLanes) lanes = one.code == active_width ? one.value : lanes;
  for (const Code& one : kMegabits) megabits = one.code == active_speed ? one.value : megabits;
  return lanes * megabits * 1'000'000;
}

std::vector<RdmaDevice> ask_verbs() {
  std::vector<RdmaDevice> devices;
  const VerbsLibrary* const verbs = verbs_library();
  if (verbs == nullptr) return devices;
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(verbs->free_device_list)> list(
      verbs->get_device_list(&count), verbs->free_device_list);
  if (!list) return devices;
  for (int i = 0; i < count; ++i) {
    ibv_device* const one = list.get()[i];
    RdmaDevice& device = devices.emplace_back();
    device.name = verbs->get_device_name(one);
    device.pci = pci_of(one);
    const std::unique_ptr<ibv_context, decltype(verbs->close_device)> context(
        verbs->open_device(one), verbs->close_device);
    if (context) add_ports(*verbs, context.get(), &device);
  }
  return devices;
}

}  // namespace gradring::machine
