#include "transport/ucx/memlock.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace gradring::transport {
namespace {

// Slots of some dozens of jobs, and what UCX itself has for each connection.
constexpr uint64_t kLeastBytes = uint64_t{1} << 30;

}  // namespace

LockableMemory lockable_memory() {
  LockableMemory memory;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  memory.privileged = syscall(SYS_capget, &header, data.data()) == 0 &&
                      (data[0].effective & (1u << CAP_IPC_LOCK)) != 0;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) memory.limit_bytes = limit.rlim_cur;
  return memory;
}

Status check_memlock(const DeviceChoice& choice, const LockableMemory& memory) {
  const auto card = std::find_if(choice.devices.begin(), choice.devices.end(),
                                 [](const UcxDevice& device) { return device.rdma; });
  if (card == choice.devices.end() || memory.privileged || memory.limit_bytes >= kLeastBytes) {
    return {};
  }
  return {Code::kInvalidArgument,
          fmt::format("net-device: {} is an RDMA device ({}), and only {} KiB of memory may be "
                      "locked; run with ulimit -l unlimited (LimitMEMLOCK=infinity) or "
                      "CAP_IPC_LOCK, or set net-device to one that is not RDMA",
                      card->name, choice.reason, memory.limit_bytes >> 10)};
}

}  // namespace gradring::transport
