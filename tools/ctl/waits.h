#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "client.pb.h"

namespace gradring::tools {

// Somebody an open op waits for: a rank, or, when it is not known which of its ranks, a whole node.
struct Awaited {
  bool is_rank = true;
  uint32_t rank = 0;
  std::string node{};
  int64_t pid = 0;              // 0: unknown
  std::string process_state{};  // letter; empty: unknown
  uint64_t quiet_ms = 0;        // of a rank: since it submitted anything
  std::string why{};            // for a node: "has not begun the op", "does not answer"

  bool operator==(const Awaited&) const = default;
};

// What an op waits for: trainers that have not submitted it, or have not been heard to; a daemon
// that does not answer; or its data, which is on the way between nodes.
enum class WaitsFor { kSubmission, kDaemon, kData };
const char* name_of(WaitsFor what);

// An open op as the whole job sees it: the reports of all nodes put together.
struct OpenOp {
  uint64_t space = 0;
  uint64_t sequence = 0;
  std::string name{};
  std::string signature{};
  uint64_t age_ms = 0;  // since its first submission anywhere
  WaitsFor waits_for = WaitsFor::kData;
  std::vector<Awaited> waiting_for{};  // ranks ascending, then nodes; empty: it is under way
  uint32_t slices_final = 0;           // at the node that has fewest
  std::string behind{};                // that node
  uint32_t slices = 0;
  std::set<std::string> told{};  // nodes that know of it: each names its own ranks that lack
};

// Oldest first.
std::vector<OpenOp> open_ops(const wire::JobReport& report);

// "allreduce sum of 1048576 float32 (op 17): waiting 30.2 s for rank 3 (node b, pid 4711, state T
// stopped)"
std::string describe(const OpenOp& op);

// Whether a rank that the op waits for has itself submitted one of the others, which waits for a
// rank that has submitted the first: a sentence, or nothing.
std::string describe_crossing(const OpenOp& op, const std::vector<OpenOp>& others);

}  // namespace gradring::tools
