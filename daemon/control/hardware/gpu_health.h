#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/metrics/snapshot.h"
#include "query.pb.h"
#include "transport/machine/gpu_watch.h"

namespace gradring::daemon {

// CUDA's sixteen bytes, as NVIDIA writes them behind "GPU-" or "MIG-".
std::string uuid_text(const std::array<std::byte, 16>& uuid);
// Without that.
std::string bare_uuid(const std::string& name);

// The GPUs of this node: what their driver told of them since the daemon began, and which of them
// are unusable. One that is stays so: it is reset while nobody uses it, so not while we do. Control
// thread only.
class GpuHealth {
 public:
  // `watch` nullptr: nobody looks, as in tests.
  explicit GpuHealth(machine::GpuWatch* watch);

  // Readable when there is something to take; -1: never, or not any more.
  int event_fd() const { return watch_ == nullptr ? -1 : watch_->fd(); }

  // A GPU, or a part of one, that has become unusable.
  struct Lost {
    std::string gpu;  // "GPU-..." or "MIG-..."
    std::string why;  // goes on after "its GPU": "has fallen off the bus (Xid 79)"
    bool operator==(const Lost&) const = default;
  };
  // What has come since, said to those who read the log; and what it means, in order.
  std::vector<Lost> take(core::Time now);
  std::vector<Lost> heard(const machine::GpuNews& news, core::Time now);

  // By uuid_text(); empty where nothing is known against it.
  std::string why_unusable(const std::string& uuid) const;

  // ---- what people are shown ----
  void add_to(wire::TopologyReport* report, core::Time now) const;
  std::vector<metrics::GpuSeries> series() const;

 private:
  struct Fault {
    uint64_t count = 0;
    core::Time last_at = 0;
    core::Time said_at = 0;  // 0: never
    uint64_t unsaid = 0;     // since then
  };
  using What = std::pair<machine::GpuFault, uint64_t>;  // and the Xid
  struct Gpu {
    std::string name;
    std::string whole;  // of a part: the GPU that it is of
    machine::PciAddress pci;
    std::string why_unusable;
    std::map<What, Fault> faults;
  };
  Gpu* enter(const machine::GpuNews& news);
  void say_over() const;
  void lose(Gpu& gpu, const std::string& why, std::vector<Lost>* lost) const;
  void say(const Gpu& gpu, const What& what, const Fault& fault) const;

  machine::GpuWatch* const watch_;
  std::map<std::string, Gpu> gpus_;  // by what follows "GPU-" or "MIG-"
};

}  // namespace gradring::daemon
