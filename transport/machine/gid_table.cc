// What of a port's addresses the kernel has in files.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>

#include "transport/machine/gids.h"

namespace gradring::machine {
namespace {

namespace fs = std::filesystem;

// Empty also where the driver refuses, as it does for entries that are not set.
std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<uint32_t> number_of(const std::string& name) {
  uint32_t number = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

std::vector<uint32_t> numbers_in(const fs::path& folder) {
  std::vector<uint32_t> numbers;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    if (const auto number = number_of(it->path().filename().string())) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// The kernel writes one word for v1 and for InfiniBand.
std::string type_of(const std::string& word, bool ethernet) {
  return word == "RoCE v2" ? word : ethernet ? "RoCE v1" : "IB";
}

// By the kernel's long spelling; nothing for an entry that is not set.
std::optional<std::string> address_of(const std::string& text) {
  in6_addr raw{};
  if (inet_pton(AF_INET6, text.c_str(), &raw) != 1 || IN6_IS_ADDR_UNSPECIFIED(&raw)) {
    return std::nullopt;
  }
  std::array<char, INET6_ADDRSTRLEN> shorter{};
  return inet_ntop(AF_INET6, &raw, shorter.data(), shorter.size());
}

unsigned ones_in(const unsigned char* bytes, size_t count) {
  unsigned ones = 0;
  for (size_t i = 0; i < count; ++i) ones += static_cast<unsigned>(std::popcount(bytes[i]));
  return ones;
}

OwnAddress own_of(const sockaddr* address, const sockaddr* mask) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    const auto* of = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    const auto* by = &reinterpret_cast<const sockaddr_in*>(mask)->sin_addr;
    inet_ntop(AF_INET, of, text.data(), text.size());
    return {text.data(), ones_in(reinterpret_cast<const unsigned char*>(by), sizeof *by)};
  }
  const auto* of = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  const auto* by = &reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr;
  inet_ntop(AF_INET6, of, text.data(), text.size());
  return {text.data(), ones_in(by->s6_addr, sizeof by->s6_addr)};
}

}  // namespace

std::optional<GidTable> read_gid_table(const std::string& device, const std::string& sysfs) {
  const size_t colon = device.find(':');
  const std::string name = device.substr(0, colon);
  if (name.empty() || name.find('/') != std::string::npos) return std::nullopt;
  const fs::path ports = fs::path(sysfs) / "class/infiniband" / name / "ports";
  const std::vector<uint32_t> numbers = numbers_in(ports);
  std::optional<uint32_t> number;
  if (colon != std::string::npos) {
    number = number_of(device.substr(colon + 1));
  } else if (numbers.size() == 1) {
    number = numbers.front();
  }
  if (!number || std::count(numbers.begin(), numbers.end(), *number) == 0) return std::nullopt;
  const fs::path port = ports / std::to_string(*number);
  GidTable table;
  table.port = name + ":" + std::to_string(*number);
  table.ethernet = first_line(port / "link_layer") == "Ethernet";
  for (const uint32_t index : numbers_in(port / "gids")) {
    const std::string entry = std::to_string(index);
    const auto address = address_of(first_line(port / "gids" / entry));
    if (!address) continue;
    table.gids.push_back({index,
                          type_of(first_line(port / "gid_attrs/types" / entry), table.ethernet),
                          *address, first_line(port / "gid_attrs/ndevs" / entry)});
  }
  return table;
}

std::vector<OwnAddress> own_addresses() {
  std::vector<OwnAddress> addresses;
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, freeifaddrs);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    addresses.push_back(own_of(entry->ifa_addr, entry->ifa_netmask));
  }
  return addresses;
}

}  // namespace gradring::machine
