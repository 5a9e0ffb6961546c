#include "daemon/host_limits.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace gradring::daemon {
namespace {

// Trainers' segments are pinned while slices move, and they are as large as the model.
constexpr uint64_t kLeast = uint64_t{1} << 30;

bool may_lock_memory() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  return syscall(SYS_capget, &header, data.data()) == 0 &&
         (data[0].effective & (1u << CAP_IPC_LOCK)) != 0;
}

}  // namespace

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string fault_of_memlock(const std::vector<std::string>& net_devices,
                             const std::string& infiniband_dir) {
  rlimit limit{};
  if (may_lock_memory() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur >= kLeast)
    return "";
  for (const std::string& device : net_devices) {
    const std::string card = device.substr(0, device.find(':'));
    if (access(fmt::format("{}/{}", infiniband_dir, card).c_str(), F_OK) != 0) continue;
    return fmt::format(
        "net-device: {} is an RDMA device, and only {} KiB of memory may be locked; run with "
        "ulimit -l unlimited (LimitMEMLOCK=infinity) or CAP_IPC_LOCK",
        device, limit.rlim_cur >> 10);
  }
  return "";
}

}  // namespace gradring::daemon
