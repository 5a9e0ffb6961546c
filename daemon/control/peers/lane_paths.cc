#include "daemon/control/peers/lane_paths.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "transport/interface_name.h"

namespace gradring::daemon {
namespace {

constexpr core::Time kWindow = 5 * core::kSecond;
constexpr size_t kFiguresMost = 64;  // 20 come by default: four in a second

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    const auto* of4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &of4->sin_addr, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    const auto* of6 = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &of6->sin6_addr, text.data(), text.size());
  }
  return text.data();
}

std::optional<TcpPath> path_of(int fd) {
  sockaddr_storage near{}, far{};
  auto* const near_name = reinterpret_cast<sockaddr*>(&near);
  auto* const far_name = reinterpret_cast<sockaddr*>(&far);
  socklen_t size = sizeof far;
  if (getpeername(fd, far_name, &size) != 0) return std::nullopt;
  if (far.ss_family != AF_INET && far.ss_family != AF_INET6) return std::nullopt;
  size = sizeof near;
  if (getsockname(fd, near_name, &size) != 0) return std::nullopt;
  tcp_info info{};
  size = sizeof info;
  // An older kernel gives less of it.
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_delivery_rate) + sizeof info.tcpi_delivery_rate) {
    return std::nullopt;
  }
  return TcpPath{text_of(near_name), text_of(far_name), info.tcpi_bytes_acked,
                 info.tcpi_delivery_rate};
}

}  // namespace

std::vector<TcpPath> own_tcp_paths() {
  std::vector<TcpPath> paths;
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/fd"));
  if (!folder) return paths;
  while (const dirent* entry = readdir(folder.get())) {
    int fd = -1;
    std::from_chars(entry->d_name, entry->d_name + std::strlen(entry->d_name), fd);
    if (fd < 0) continue;
    if (auto path = path_of(fd)) paths.push_back(std::move(*path));
  }
  return paths;
}

// As UCX chooses: an interface's IPv4 address before one of IPv6.
std::string address_of_lane(const std::string& device) {
  if (device.find("(TCP)") == std::string::npos) return "";
  const std::string interface = device.substr(0, device.find_first_of(", "));
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, freeifaddrs);
  std::string found;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || interface != interface_named_by(*one)) continue;
    if (one->ifa_addr->sa_family == AF_INET) return text_of(one->ifa_addr);
    if (one->ifa_addr->sa_family == AF_INET6 && found.empty()) found = text_of(one->ifa_addr);
  }
  return found;
}

uint64_t delivery_rate_between(std::span<const TcpPath> paths, const std::string& local,
                               const std::string& remote) {
  const TcpPath* most = nullptr;
  for (const TcpPath& path : paths) {
    if (path.local != local || path.remote != remote) continue;
    if (most == nullptr || path.bytes_acked > most->bytes_acked) most = &path;
  }
  return most == nullptr ? 0 : most->delivery_rate;
}

void LanePaths::measured(uint32_t peer, uint8_t lane, uint64_t bytes_per_second, core::Time now) {
  std::deque<Figure>& figures = paths_[{peer, lane}];
  figures.push_back({now, bytes_per_second});
  while (figures.front().at + kWindow <= now || figures.size() > kFiguresMost) figures.pop_front();
}

void LanePaths::forget(uint32_t peer) {
  std::erase_if(paths_, [peer](const auto& path) { return path.first.first == peer; });
}

uint64_t LanePaths::rate(uint32_t peer, uint8_t lane, core::Time now) const {
  const auto it = paths_.find({peer, lane});
  if (it == paths_.end()) return 0;
  std::vector<uint64_t> rates;
  for (const Figure& figure : it->second) {
    if (figure.at + kWindow > now) rates.push_back(figure.rate);
  }
  if (rates.empty()) return 0;
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

}  // namespace gradring::daemon
