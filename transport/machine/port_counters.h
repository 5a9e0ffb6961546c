#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradring::machine {

// What cards count of trouble, in words of our own: each driver has other names for it.
enum class PortCounter : uint8_t {
  kRetransmits,     // this end sent packets again
  kOutOfSequence,   // packets came here whose predecessors had not
  kRnr,             // the far end had no buffer ready for what we sent
  kCnpSent,         // we told a sender that its packets met congestion
  kCnpHandled,      // we were told so, and slowed down
  kEcnMarked,       // packets came here that a switch had marked
  kPausesSent,      // we asked the switch to stop
  kPausesReceived,  // the switch asked us to stop
  kErrors,          // of the link and of the card: bad or dropped packets, sends given up
  kLinkDowned,      // how often the link was lost
};
inline constexpr size_t kPortCounters = 10;

// "out_of_sequence": as JSON, metrics and recordings have it.
const char* name_of(PortCounter counter);
std::optional<PortCounter> counter_named(const std::string& name);

// Since the card, or its driver, was started. Absent is what the card does not count.
struct PortCounters {
  std::array<std::optional<uint64_t>, kPortCounters> values;

  std::optional<uint64_t>& operator[](PortCounter counter) {
    return values[static_cast<size_t>(counter)];
  }
  const std::optional<uint64_t>& operator[](PortCounter counter) const {
    return values[static_cast<size_t>(counter)];
  }
  bool any() const;
  bool operator==(const PortCounters&) const = default;
};

// An RDMA port: "mlx5_0" and 1.
struct PortId {
  std::string device;
  uint32_t number = 0;
  auto operator<=>(const PortId&) const = default;
};

// All that sysfs (mounted at `sysfs`) has, sorted.
std::vector<PortId> list_rdma_ports(const std::string& sysfs = "/sys");

// Of sysfs alone. Asks the card's firmware, so it may take milliseconds, or, of a card that is
// ill, seconds.
PortCounters read_port_counters(const PortId& port, const std::string& sysfs = "/sys");

// The network interface of a RoCE port; empty: it has none.
std::string interface_of(const PortId& port, const std::string& sysfs = "/sys");

// What `ethtool -S` shows of an interface of this network namespace; empty where there is nothing.
using NetStatistics = std::vector<std::pair<std::string, uint64_t>>;
NetStatistics ask_net_statistics(const std::string& interface);

// Pure: the pauses among them.
void add_pauses(const NetStatistics& statistics, PortCounters* counters);

// All of that together, of a port of this machine.
PortCounters ask_port(const PortId& port);

}  // namespace gradring::machine
