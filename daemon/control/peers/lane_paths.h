#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/time.h"

namespace gradring::daemon {

// A TCP connection of this process, by the kernel's word (tcp_info(7) of linux/tcp.h).
struct TcpPath {
  std::string local;  // numeric addresses
  std::string remote;
  uint64_t bytes_acked = 0;
  uint64_t delivery_rate = 0;  // bytes per second: the last that it measured of the way
};
// All that are established. Looks through the descriptors of this process; any thread.
std::vector<TcpPath> own_tcp_paths();

// The numeric address by which a lane on the device "eth0 (TCP)" is reached; empty for RDMA.
std::string address_of_lane(const std::string& device);

// The rate of the connection between two addresses; 0: there is none. Trainers' bytes make it the
// one with most: the daemons' control connections may run between the same two.
uint64_t delivery_rate_between(std::span<const TcpPath> paths, const std::string& local,
                               const std::string& remote);

// How fast the ways of lanes are: the median of what was measured in the last five seconds. What a
// lane carries says little of that: in a ring all carry as much as the slowest, and to have sent
// means to have given to the kernel. The kernel measures single flights of packets, and while a
// lane is not full it keeps the best one: so a way that waits for others is told as fast as it can
// be, one for which others wait as fast as it is. Single figures are far off when processors are
// busy and acknowledgements come in heaps. Pure; one thread.
class LanePaths {
 public:
  void measured(uint32_t peer, uint8_t lane, uint64_t bytes_per_second, core::Time now);
  void forget(uint32_t peer);
  // 0: not known.
  uint64_t rate(uint32_t peer, uint8_t lane, core::Time now) const;

 private:
  struct Figure {
    core::Time at = 0;
    uint64_t rate = 0;
  };
  std::map<std::pair<uint32_t, uint8_t>, std::deque<Figure>> paths_;
};

}  // namespace gradring::daemon
