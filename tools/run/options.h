#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/run/handover.h"
#include "tools/run/placement.h"

namespace gradring::tools {

inline constexpr int kRanksMax = 65536;

struct RunOptions {
  int ranks = 0;
  std::vector<Slots> hosts;      // empty: all ranks here
  std::vector<std::string> rsh;  // words, before the host and the command
  Launcher launcher = Launcher::kOwn;
  std::vector<std::string> launcher_args;  // words for a launcher that is not our own
  std::string runtime_dir;                 // %h stands for the host; empty: as the environment says
  std::string job;                         // empty: GRADRING_JOB, else a name of this launch
  std::string policy;                      // empty: GRADRING_POLICY, else "fail"
  int restarts = 0;                        // of each rank
  std::vector<std::string> send;           // NAME or NAME=VALUE
  std::string output;                      // folder for the output of each rank; empty: none
  bool tag = false;
  bool stamp = false;     // begin each line of output with the time
  bool verbose = false;   // say what is started where
  bool agent = false;     // started by another gradring-run, which says the rest
  bool attended = false;  // its caller holds its standard input, and waits for answers (kAnswered)
  bool as_rank = false;   // started by srun or mpirun, in whose place another gradring-run stood
  std::vector<std::string> command;
  std::vector<std::string> warnings;  // lines for people
};

// The words behind the program's name. The first that is neither an option nor its value begins the
// command. Nothing is returned when --help, --version or --check-build was asked for and printed.
tl::expected<std::optional<RunOptions>, std::string> parse_run_options(
    const std::vector<std::string>& words);

}  // namespace gradring::tools
