#pragma once

#include <gradring/gradring.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

// What the parts of gradring-e2e-trainer share.
namespace gradring::e2e {

using Json = nlohmann::ordered_json;

struct Options {
  uint64_t ops = 1;
  uint64_t count = 1024;
  std::string collective = "allreduce";
  uint32_t root = 0;
  uint64_t delay_ms = 0;
  int64_t at = -1;
  std::string act = "nothing";
  bool keep_going = false;
  int64_t patience_ms = 60'000;
  int64_t join_timeout_ms = 0;
  std::string policy;
  std::string wire;
  uint64_t join_every = 0;
  std::string groups;  // "0,1/2,3,4"
  bool pairs = false;
  bool uneven = false;
};

// Prints a line, with the time.
void say(Json line);

// Ends only by a signal: what the tests send.
[[noreturn]] void hang();

// Hangs or exits, if this is the op at which to; true: to leave.
bool act_before(const Options& options, uint64_t number);

gradring_op describe(const Options& options, float* buffer);

// How an op ended, as a line.
Json report(uint64_t op, gradring_code code, const gradring_result& result);

// Floats shared with the daemon, or null after saying why there are none.
float* allocate(gradring_comm* comm, uint64_t count);

// Submits and waits; says the first, and hangs behind it if that is asked for. Else the line that
// tells the end, or of the refusal, is for the caller to say.
gradring_code submit_and_wait(const Options& options, gradring_comm* comm, uint64_t number,
                              const gradring_op& op, Json* line);

// The program of a rank whose job has groups. The exit code.
int train_in_groups(const Options& options, gradring_comm* comm);

// The program of a rank that sends to its neighbours. The exit code.
int train_in_pairs(const Options& options, gradring_comm* comm);

// The program of a rank that may have less data than others. The exit code.
int train_on_uneven_data(const Options& options, gradring_comm* comm);

// The program of a rank of a job that grows and shrinks. The exit code.
int train_elastic(const Options& options, gradring_comm* comm);

}  // namespace gradring::e2e
