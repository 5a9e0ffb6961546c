#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/keep/restart_policy.h"

namespace gradring::keep {

struct KeeperOptions {
  std::vector<std::string> command;  // gradringd and its arguments, found anew at each start
  std::string notify_socket;         // path; its directory is ours alone
  size_t fds_max = 4096;             // FileDescriptorStoreMax of our systemd unit
  RestartPolicy::Options restart;
  Time watchdog = 20 * core::kSecond;    // WatchdogSec of the unit
  Time start_time = 90 * core::kSecond;  // until READY=1, systemd's default
  // For the core dump after SIGABRT, before SIGKILL.
  Time abort_time = 10 * core::kSecond;
};

// What systemd does for gradringd, where there is no systemd: runs it, holds the descriptors it
// gives away, starts it again when it dies, watches over it, and ends with it. SIGTERM, SIGINT and
// SIGHUP are passed on; SIGUSR1 kills it and starts it again at once, from the file that is there
// then, where that one finds nothing wrong with its configuration. Returns the exit status. The
// process must have no other threads and no other children.
int run_keeper(const KeeperOptions& options);

}  // namespace gradring::keep
