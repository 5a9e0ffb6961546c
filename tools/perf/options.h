#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/perf/memory.h"
#include "tools/perf/plan.h"

namespace gradring::tools {

struct PerfOptions {
  Collective collective = Collective::kAllreduce;
  std::vector<Case> cases;
  int ranks = 0;  // 0: not given
  int iters = 0;  // 0: as many as make a good measurement
  int warmup = 2;
  int together = 1;  // ops under way at one time
  bool check = false;
  MemoryChoice memory;
  std::string json;         // file; empty: none
  std::string runtime_dir;  // empty: as the environment says
  std::string wire;         // likewise
  std::string unused;       // a sentence about flags that say nothing here; empty: none
};

// Reads the command line. Nothing is returned when --help or --version was asked for and printed;
// the error is a sentence.
tl::expected<std::optional<PerfOptions>, std::string> parse_perf_options(int argc,
                                                                         const char* const* argv);

}  // namespace gradring::tools
