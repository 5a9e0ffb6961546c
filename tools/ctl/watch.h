#pragma once

#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"

namespace gradring::tools {

inline constexpr double kWatchSeconds = 2;  // where --watch has no number behind it

// Words of a command line in which "--watch" has its seconds with it in any case: "--watch 5" and
// "--watch jobs" become "--watch=5" and "--watch=2 jobs".
std::vector<std::string> with_watch_seconds(const std::vector<std::string>& words);

// INVALID_ARGUMENT for a pause that nobody can mean.
Status fault_of_watch(double seconds);

// Calls `answer`, which prints and returns an exit code, again and again with that pause between
// the calls, until SIGINT or SIGTERM end the process with the last of these codes (130 before the
// first), or `goes_on` says of a code that it is of no use to go on: that one is returned.
int watch(double seconds, const std::function<int()>& answer,
          const std::function<bool(int)>& goes_on);

}  // namespace gradring::tools
