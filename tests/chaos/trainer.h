#pragma once

#include <cstdint>
#include <string>

namespace gradring::chaos {

// What all trainers of a run are told; the daemon and the job come from the environment.
struct Settings {
  std::string folder;  // of the logs
  uint32_t size = 0;   // ranks that the job forms with
  std::string policy;
  uint64_t elements_max = 0;  // of an op; they have different sizes below it
  uint64_t join_every = 0;    // ops
  int64_t open_ms = 0;        // how long to look for the daemon and wait for the other ranks
  int64_t patience_ms = 0;    // with one op; beyond it the trainer gives up, which is a hang
};

// A rank of an elastic job that does ops until the job is over for it or somebody kills it. It
// writes down what it submits, how each op ends, and why it ended itself, into the file `serial` of
// the folder; whether that is as it should be is judged by who reads it.
void train(const Settings& settings, uint32_t rank, const std::string& serial);

}  // namespace gradring::chaos
