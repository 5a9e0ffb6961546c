#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace gradring::transport {

// How an RDMA card sends. What is not set is UCX's choice. In ranges that UCX takes: it aborts the
// process, or fails when it connects, at some that are not.
struct RdmaOptions {
  std::optional<uint32_t> gid_index;      // of the port's table
  std::string gid_reason;                 // for people: which address is used, and why
  std::optional<uint32_t> traffic_class;  // up to 255: with RoCE v2 DSCP times 4, plus ECN's 2 bits
  std::optional<uint32_t> service_level;  // up to 15
  std::optional<uint32_t> path_mtu;       // 512, 1024, 2048 or 4096
  // Reliable connections: how long a packet waits for its acknowledgement (rounded to 4.096 us
  // times a power of 2), how often it is sent again, and how often where the receiver was not ready
  // (7: for ever); both up to 7.
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<uint32_t> retries;
  std::optional<uint32_t> rnr_retries;
};

}  // namespace gradring::transport
