#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/run/placement.h"

namespace gradring::tools {

struct RunOptions {
  int ranks = 0;
  std::vector<Slots> hosts;       // empty: all ranks here
  std::vector<std::string> rsh;   // words, before the host and the command
  std::string runtime_dir;        // %h stands for the host; empty: as the environment says
  std::string job;                // empty: GRADRING_JOB, else a name of this launch
  std::string policy;             // empty: GRADRING_POLICY, else "fail"
  int restarts = 0;               // of each rank
  std::vector<std::string> send;  // NAME or NAME=VALUE
  bool tag = false;
  bool agent = false;  // started by another gradring-run, which says the rest
  std::vector<std::string> command;
};

// The words behind the program's name. The first that is neither an option nor its value begins the
// command. Nothing is returned when --help or --version was asked for and printed.
tl::expected<std::optional<RunOptions>, std::string> parse_run_options(
    const std::vector<std::string>& words);

}  // namespace gradring::tools
