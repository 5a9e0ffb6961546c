#include "daemon/host_limits.h"

#include <sys/resource.h>

#include <fstream>

namespace gradring::daemon {

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

uint64_t mappings_limit() {
  uint64_t limit = 65530;  // the kernel's default
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  return limit;
}

}  // namespace gradring::daemon
