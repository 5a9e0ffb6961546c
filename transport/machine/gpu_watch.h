#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/machine/apart.h"
#include "transport/machine/pci.h"
#include "transport/machine/xid.h"

namespace gradring::machine {

// What NVIDIA's driver tells of a GPU.
struct GpuNews {
  enum class Kind : uint8_t {
    kThere,  // it is watched
    kPart,   // it is cut up (MIG), and has this part
    kFault,  // something is wrong with it, or with the part
  };
  Kind kind = Kind::kThere;
  GpuFault fault = GpuFault::kXid;
  uint64_t xid = 0;
  std::string gpu;   // "GPU-...", NVIDIA's UUID
  std::string part;  // "MIG-...", empty: the GPU as a whole
  PciAddress pci;
  bool operator==(const GpuNews&) const = default;
};

// Waits for errors of GPUs (Xid, ECC), from a child process: NVML is loaded there, and when it
// crashes, or hangs in a GPU that has fallen off the bus, nobody else does. The child sleeps while
// nothing happens, and ends at once where there are no GPUs. One thread only.
class GpuWatch {
 public:
  // Forks: call it while the process has one thread. `library`: as in nvml.h.
  void start(const std::string& library);

  // Readable when there is something to take; -1 once it is over.
  int fd() const { return child_.fd(); }
  bool over() const { return child_.over(); }
  // For people, once it is over: why. Empty if there was nothing to watch.
  const std::string& fault() const { return fault_; }
  // What has come, in order, without waiting; some of it, where there is much.
  std::vector<GpuNews> take();

  pid_t child() const { return child_.child(); }

 private:
  void ended();
  void fail(const std::string& why);

  std::vector<std::byte> rest_;  // of a record
  std::string fault_;
  Apart child_;
};

}  // namespace gradring::machine
