#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/perf/measure.h"

namespace gradring::tools {

// The bandwidths of a measurement in bytes a second, as nccl-tests define them; 0 for a barrier.
double algorithm_bandwidth(const Measurement& one);
double bus_bandwidth(const Measurement& one, int ranks);

// How it was measured: figures of different manners are not to be compared.
struct Manner {
  MemoryKind memory = MemoryKind::kHost;
  std::string gpu = {};  // on which buffers lie; empty: on none
  int together = 1;
  std::string wire = "native";
};

// The table, piece by piece as it grows. All end in a newline.
std::string perf_heading(Collective collective, int ranks, int local_ranks, const std::string& job,
                         const Manner& manner);
std::string perf_row(const Measurement& one, int ranks);
std::string perf_ending(const std::vector<Measurement>& all, int ranks);

// The whole of it for scripts, as tools/schema/perf.json says.
nlohmann::ordered_json perf_document(Collective collective, int ranks,
                                     const std::vector<Measurement>& all, const Manner& manner);

}  // namespace gradring::tools
