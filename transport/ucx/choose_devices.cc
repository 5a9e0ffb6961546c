#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "transport/ucx/devices.h"

namespace gradring::transport {
namespace {

// What container engines and hypervisors call the bridges they make on a host. Their addresses mean
// something on this machine only; a peer elsewhere that was told such an address hangs.
constexpr std::array<std::string_view, 6> kHostOnlyPrefixes = {"docker", "br-",     "virbr",
                                                               "cni",    "flannel", "podman"};

bool is_host_only(const Interface& interface) {
  return interface.bridge ||
         std::any_of(kHostOnlyPrefixes.begin(), kHostOnlyPrefixes.end(),
                     [&](std::string_view prefix) {
                       return interface.name.compare(0, prefix.size(), prefix) == 0;
                     });
}

Status refusal(const std::string& text) { return {Code::kInvalidArgument, text}; }

// 16 bytes, IPv4 mapped into IPv6, so that different spellings of one address are equal.
std::optional<std::array<unsigned char, 16>> parse_address(const std::string& text) {
  std::array<unsigned char, 16> bytes{};
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return bytes;
  bytes.fill(0);
  bytes[10] = bytes[11] = 0xff;
  if (inet_pton(AF_INET, text.c_str(), bytes.data() + 12) == 1) return bytes;
  return std::nullopt;
}

bool is_wildcard(const std::string& address) {
  return address.empty() || address == "*" || address == "0.0.0.0" || address == "::";
}

bool is_loopback(const std::array<unsigned char, 16>& bytes) {
  static constexpr std::array<unsigned char, 13> kMapped127 = {0, 0, 0, 0,    0,    0,  0,
                                                               0, 0, 0, 0xff, 0xff, 127};
  return bytes == *parse_address("::1") ||
         std::equal(kMapped127.begin(), kMapped127.end(), bytes.begin());
}

const UcxDevice* find_usable(const DeviceInventory& inventory, const std::string& name) {
  for (const UcxDevice& device : inventory.usable) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

const Interface* find_interface(const DeviceInventory& inventory, const std::string& name) {
  for (const Interface& interface : inventory.interfaces) {
    if (interface.name == name) return &interface;
  }
  return nullptr;
}

// One of IPv6 alone the kernel asks the network about first, and nobody can listen at it meanwhile.
bool has_ipv4(const Interface& interface) {
  return std::ranges::any_of(interface.addresses, [](const std::string& address) {
    return address.find(':') == std::string::npos;
  });
}

tl::expected<UcxDevice, Status> find_wanted(const std::string& name,
                                            const DeviceInventory& inventory, bool by_sockets) {
  if (const UcxDevice* device = find_usable(inventory, name)) return *device;
  const UcxDevice* port = nullptr;
  int ports = 0;
  for (const UcxDevice& device : inventory.usable) {
    if (device.rdma && device.name.compare(0, name.size() + 1, name + ":") == 0) {
      port = &device;
      ++ports;
    }
  }
  if (ports == 1) return *port;
  const std::string there = "usable here: " + list_devices(inventory.usable);
  if (ports > 1)
    return tl::unexpected(refusal("device '" + name + "' has several ports, name one; " + there));
  const Interface* interface = find_interface(inventory, name);
  if (interface == nullptr) {
    return tl::unexpected(refusal("there is no network device '" + name + "'; " + there));
  }
  const bool has_sockets = (interface->up || interface->without_carrier) && has_ipv4(*interface);
  if (by_sockets && has_sockets) return UcxDevice{name};
  const char* ill = !interface->up
                        ? "is down or has no carrier; bring it up (ip link set dev NAME up)"
                    : interface->addresses.empty() ? "has no IP address; give it one"
                                                   : "cannot be used by UCX";
  return tl::unexpected(
      refusal("network device '" + name + "' " + ill + ", or name another; " + there));
}

tl::expected<DeviceChoice, Status> choose_wanted(const std::vector<std::string>& wanted,
                                                 const DeviceInventory& inventory,
                                                 bool by_sockets) {
  DeviceChoice choice;
  for (const std::string& name : wanted) {
    auto device = find_wanted(name, inventory, by_sockets);
    if (!device) return tl::unexpected(device.error());
    const bool twice =
        std::any_of(choice.devices.begin(), choice.devices.end(),
                    [&](const UcxDevice& other) { return other.name == device->name; });
    if (!twice) choice.devices.push_back(*device);
  }
  choice.reason = "named in the configuration";
  return choice;
}

tl::expected<DeviceChoice, Status> choose_all(const DeviceInventory& inventory) {
  DeviceChoice choice;
  std::vector<std::string> left_out;
  for (const UcxDevice& device : inventory.usable) {
    const Interface* interface = find_interface(inventory, device.name);
    if (device.name == "lo" || device.rdma || interface == nullptr || is_host_only(*interface)) {
      left_out.push_back(device.name);
    } else {
      choice.devices.push_back(device);
    }
  }
  const std::string without =
      left_out.empty() ? "" : fmt::format(" (left out: {})", fmt::join(left_out, ", "));
  if (choice.devices.empty()) {
    return tl::unexpected(
        refusal("listening at every address, but no network interface is fit for it" + without +
                "; name the network device, or listen at one address"));
  }
  choice.reason = "listening at every address: the interfaces that are up" + without;
  return choice;
}

tl::expected<DeviceChoice, Status> choose_carrier(const std::string& address,
                                                  const DeviceInventory& inventory,
                                                  bool by_sockets) {
  const auto wanted = parse_address(address);
  if (!wanted) {
    return tl::unexpected(
        refusal("'" + address +
                "' is not a numeric IP address; listen at one, or name the network "
                "device"));
  }
  // 127.0.0.2 is on no list of addresses, and is on lo all the same.
  std::string name = is_loopback(*wanted) ? "lo" : "";
  std::vector<std::string> there;
  for (const Interface& interface : inventory.interfaces) {
    for (const std::string& carried : interface.addresses) {
      if (name.empty() && parse_address(carried) == wanted) name = interface.name;
    }
    if (!interface.addresses.empty()) {
      there.push_back(fmt::format("{} ({})", interface.name, fmt::join(interface.addresses, ", ")));
    }
  }
  if (name.empty()) {
    return tl::unexpected(
        refusal(fmt::format("no network interface carries the address {}; there are: {}", address,
                            fmt::join(there, ", "))));
  }
  auto device = find_wanted(name, inventory, by_sockets);
  if (!device) return tl::unexpected(device.error());
  return DeviceChoice{{*device}, "carries the listen address " + address};
}

}  // namespace

bool DeviceChoice::any_rdma() const {
  return std::any_of(devices.begin(), devices.end(), [](const UcxDevice& d) { return d.rdma; });
}

std::string DeviceChoice::names() const {
  std::string text;
  for (const UcxDevice& device : devices) text += (text.empty() ? "" : ",") + device.name;
  return text;
}

std::string list_devices(const std::vector<UcxDevice>& devices) {
  std::string text;
  for (const UcxDevice& device : devices) text += (text.empty() ? "" : ", ") + device.name;
  return text.empty() ? "none" : text;
}

tl::expected<DeviceChoice, Status> choose_devices(const std::vector<std::string>& wanted,
                                                  const std::string& listen_address,
                                                  const DeviceInventory& inventory,
                                                  bool by_sockets) {
  if (!wanted.empty()) return choose_wanted(wanted, inventory, by_sockets);
  if (is_wildcard(listen_address)) return choose_all(inventory);
  return choose_carrier(listen_address, inventory, by_sockets);
}

}  // namespace gradring::transport
