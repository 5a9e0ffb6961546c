#include "transport/machine/netdev.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>

#include "transport/interface_name.h"

namespace gradring::machine {
namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);  // empty where the driver refuses, as for the rate of a link that is down
  return line;
}

int64_t number_of(const fs::path& file) {
  const std::string line = line_of(file);
  int64_t value = -1;
  std::from_chars(line.data(), line.data() + line.size(), value);
  return value;
}

// The nearest folder upwards that is a PCI device: virtio has one of its own in between.
std::optional<PciAddress> pci_above(const fs::path& device) {
  std::error_code error;
  fs::path path = fs::canonical(device, error);
  if (error) return std::nullopt;
  for (; path.has_parent_path() && path != path.parent_path(); path = path.parent_path()) {
    if (const auto pci = parse_pci(path.filename().string())) return pci;
  }
  return std::nullopt;
}

NetDevice device_in(const fs::path& folder) {
  NetDevice device;
  device.name = folder.filename().string();
  device.pci = pci_above(folder / "device");
  // A link of software is "unknown" while it works.
  const std::string state = line_of(folder / "operstate");
  device.up = state == "up" || (state == "unknown" && number_of(folder / "carrier") == 1);
  if (const int64_t megabits = number_of(folder / "speed"); device.up && megabits > 0) {
    device.rate_bps = static_cast<uint64_t>(megabits) * 1'000'000;
  }
  if (const int64_t mtu = number_of(folder / "mtu"); mtu > 0) {
    device.mtu = static_cast<uint32_t>(mtu);
  }
  std::error_code error;
  const fs::path master = fs::canonical(folder / "master", error);
  if (!error && fs::exists(master / "bonding", error)) device.bond = master.filename().string();
  return device;
}

void add_addresses(std::vector<NetDevice>* devices) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, freeifaddrs);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* address =
        family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(entry->ifa_addr)->sin_addr)
            : &reinterpret_cast<sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    inet_ntop(family, address, text.data(), text.size());
    for (NetDevice& device : *devices) {
      if (device.name == interface_named_by(*entry)) device.addresses.emplace_back(text.data());
    }
  }
}

}  // namespace

std::vector<NetDevice> ask_netdevs(const std::string& sysfs) {
  std::vector<NetDevice> devices;
  std::error_code error;
  for (auto it = fs::directory_iterator(fs::path(sysfs) / "class/net", error);
       !error && it != fs::directory_iterator(); it.increment(error)) {
    // Files such as bonding_masters lie there as well.
    std::error_code ignored;
    if (it->path().filename() == "lo" || !fs::is_directory(it->path(), ignored)) continue;
    devices.push_back(device_in(it->path()));
  }
  std::sort(devices.begin(), devices.end(),
            [](const NetDevice& a, const NetDevice& b) { return a.name < b.name; });
  add_addresses(&devices);
  return devices;
}

}  // namespace gradring::machine
