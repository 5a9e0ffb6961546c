#pragma once

#include <chrono>
#include <gradring/gradring.hpp>
#include <string>
#include <vector>

#include "tests/differential/buffers.h"
#include "tests/differential/program.h"

namespace gradring::differential {

// A rank of a world in which one program after the other is run. The ranks outside a program's
// first group go on to the next one at once.
class Runner {
 public:
  // Throws Error, as run() does where a group cannot be made or an op does not end. `patience`:
  // with any one op. `formed`: as of make_program().
  Runner(const Communicator& world, std::chrono::milliseconds patience, bool formed = false);

  // What was not right, in sentences that name seed, op, rank and element; empty: all was.
  std::vector<std::string> run(uint64_t seed);
  // How many were compared on this rank so far.
  uint64_t ops() const { return ops_; }

 private:
  void learn_nodes();

  const Communicator world_;
  const std::chrono::milliseconds patience_;
  const bool formed_;
  Arena allocated_, registered_;
  uint64_t ops_ = 0;
  std::vector<uint32_t> nodes_;  // of the world's ranks
};

}  // namespace gradring::differential
