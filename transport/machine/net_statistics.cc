// What a driver counts of an interface, by the kernel's ethtool interface (linux/ethtool.h).

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "transport/machine/port_counters.h"

namespace gradring::machine {
namespace {

constexpr uint32_t kStatisticsMost = 1 << 16;  // mlx5 has some thousand

// Words of the kernel's, with an array behind them; of uint64_t for the alignment.
class Request {
 public:
  explicit Request(size_t bytes) : words_((bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t)) {}
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(words_.data());
  }
  const char* bytes() const { return reinterpret_cast<const char*>(words_.data()); }

 private:
  std::vector<uint64_t> words_;
};

bool ask_driver(int socket, const std::string& interface, void* request) {
  ifreq to{};
  if (interface.size() >= sizeof to.ifr_name) return false;
  std::memcpy(to.ifr_name, interface.data(), interface.size());
  to.ifr_data = static_cast<char*>(request);
  return ioctl(socket, SIOCETHTOOL, &to) == 0;
}

NetStatistics ask_on(int socket, const std::string& interface) {
  Request sizes(sizeof(ethtool_sset_info) + sizeof(uint32_t));
  auto* const info = sizes.as<ethtool_sset_info>();
  info->cmd = ETHTOOL_GSSET_INFO;
  info->sset_mask = uint64_t{1} << ETH_SS_STATS;
  if (!ask_driver(socket, interface, info) || info->sset_mask == 0) return {};
  uint32_t count = 0;
  std::memcpy(&count, sizes.bytes() + offsetof(ethtool_sset_info, data), sizeof count);
  if (count == 0 || count > kStatisticsMost) return {};

  Request names(sizeof(ethtool_gstrings) + size_t{count} * ETH_GSTRING_LEN);
  names.as<ethtool_gstrings>()->cmd = ETHTOOL_GSTRINGS;
  names.as<ethtool_gstrings>()->string_set = ETH_SS_STATS;
  names.as<ethtool_gstrings>()->len = count;
  Request values(sizeof(ethtool_stats) + size_t{count} * sizeof(uint64_t));
  values.as<ethtool_stats>()->cmd = ETHTOOL_GSTATS;
  values.as<ethtool_stats>()->n_stats = count;
  if (!ask_driver(socket, interface, names.as<void>()) ||
      !ask_driver(socket, interface, values.as<void>())) {
    return {};
  }
  // Fewer, if the driver has changed its mind in between.
  count = std::min({count, names.as<ethtool_gstrings>()->len, values.as<ethtool_stats>()->n_stats});
  NetStatistics statistics;
  for (uint32_t i = 0; i < count; ++i) {
    const char* name =
        names.bytes() + offsetof(ethtool_gstrings, data) + size_t{i} * ETH_GSTRING_LEN;
    uint64_t value = 0;
    std::memcpy(&value, values.bytes() + offsetof(ethtool_stats, data) + size_t{i} * sizeof value,
                sizeof value);
    statistics.emplace_back(std::string(name, strnlen(name, ETH_GSTRING_LEN)), value);
  }
  return statistics;
}

}  // namespace

NetStatistics ask_net_statistics(const std::string& interface) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return {};
  NetStatistics statistics = ask_on(socket, interface);
  close(socket);
  return statistics;
}

PortCounters ask_port(const PortId& port) {
  PortCounters counters = read_port_counters(port);
  if (const std::string interface = interface_of(port); !interface.empty()) {
    add_pauses(ask_net_statistics(interface), &counters);
  }
  return counters;
}

}  // namespace gradring::machine
