#pragma once

#include <chrono>
#include <gradring/gradring.hpp>
#include <string>
#include <vector>

#include "tests/differential/buffers.h"
#include "tests/differential/program.h"
#include "tests/differential/reference.h"

namespace gradring::differential {

struct RunnerOptions {
  std::chrono::milliseconds patience{60'000};  // with any one op
  Choice choice;
  const test::TestGpu* gpu = nullptr;  // buffers may lie on it
  int device = 0;                      // its number
  bool all_on_gpu = false;             // and all do
  NodeSums node_sums;                  // as of Reference, by rank of the world
  uint64_t bytes = 0;                  // of a program's buffers; 0: what make_program() takes
};

// A rank of a world in which one program after the other is run. The ranks outside a program's
// first group go on to the next one at once.
class Runner {
 public:
  // Throws Error, as run() does where a group cannot be made or an op does not end.
  explicit Runner(const Communicator& world, const RunnerOptions& options = {});

  // What was not right, in sentences that name seed, op, rank and element; empty: all was.
  std::vector<std::string> run(uint64_t seed);
  std::vector<std::string> run(const Program& program);
  // How many were compared on this rank so far.
  uint64_t ops() const { return ops_; }

 private:
  void learn_nodes();

  const Communicator world_;
  const RunnerOptions options_;
  Arenas arenas_;
  uint64_t ops_ = 0;
  std::vector<uint32_t> nodes_;  // of the world's ranks
};

}  // namespace gradring::differential
