#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/machine/port_counters.h"

namespace gradring::machine {

// What the kernel tells of a port while it happens.
enum class PortChange : uint8_t {
  kDown,            // the link is lost, or somebody has switched the port off
  kActive,          // it works
  kGone,            // the card has failed, or was taken away
  kAddresses,       // its table of GIDs has changed
  kLid,             // InfiniBand: its address in the subnet
  kPartitions,      // its table of P_Keys
  kSubnetManager,   // another one manages the subnet
  kReregistration,  // the subnet manager asks for it
};
inline constexpr size_t kPortChanges = 8;

// "down", "addresses"
const char* name_of(PortChange change);

// A network interface is a port as well: its number is 0.
struct PortNews {
  PortId port;
  PortChange change = PortChange::kDown;
  int64_t at = 0;  // CLOCK_MONOTONIC, ns
  bool operator==(const PortNews&) const = default;
};

struct PortReading {
  PortCounters first;  // when the watch began
  PortCounters before;
  PortCounters last;
  int64_t before_at = 0;  // CLOCK_MONOTONIC, ns; 0: there is one reading alone
  int64_t last_at = 0;
  bool operator==(const PortReading&) const = default;
};
// How many of them in a second, between the last two readings; 0: not known.
double rate_of(const PortReading& reading, PortCounter counter);

struct PortWatchOptions {
  std::vector<PortId> ports;  // that are news; RDMA ports, and interfaces (number 0)
  int period_ms = 5000;       // of reading counters, of all RDMA ports of the machine
};

// Waits for what happens to ports, on a thread of its own, and reads their counters now and then:
// a driver may take its time for either. Sleeps where there is nothing of RDMA and nothing happens.
class PortWatch {
 public:
  explicit PortWatch(const PortWatchOptions& options);
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;
  // Waits for a second at most, for a driver that hangs.
  ~PortWatch();

  // Readable while there is news.
  int event_fd() const;
  // In order. Of a port that comes and goes faster than somebody takes it, the latest remains.
  std::vector<PortNews> take();
  std::map<PortId, PortReading> readings() const;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace gradring::machine
