#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/keep/kept_fds.h"

namespace gradring::keep {

struct ChildSetup {
  std::vector<std::string> command;  // the program, found as a shell would, and its arguments
  std::string notify_socket;
  size_t fds_max = 0;  // that can be kept
  core::Time watchdog = 0;
};

// Starts the program with all kept descriptors, from 3 on, and their names. It is killed when this
// process ends. Its limit of open files must allow twice as many descriptors as are kept.
tl::expected<pid_t, std::string> start_child(const ChildSetup& setup,
                                             const std::vector<KeptFds::Kept>& kept);

// Starts the program with --check-config behind its arguments, by which it says whether it would
// start, and exits with 0 if so. It is killed when this process ends.
tl::expected<pid_t, std::string> start_check(const std::vector<std::string>& command);

}  // namespace gradring::keep
