#pragma once

#include <cstdint>
#include <functional>
#include <gradring/gradring.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/perf/memory.h"
#include "tools/perf/plan.h"

namespace gradring::tools {

struct Measurement {
  Case of;
  int iterations = 0;
  double seconds = 0;  // of one op, at this rank; of several under way together, their share
  std::optional<uint64_t> wrong;  // elements of all ranks; none: not checked
};

// Exactly so many ops are made for a case, besides small ones by which the ranks agree: `warmup`,
// then `iters`, and one before and one after them to check.
struct Effort {
  int iters =
      0;  // 0: chosen by rank 0 from the time of the last warm-up, of which there is one at least
  int warmup = 2;
  bool check = false;
};

// How many repetitions make a measurement of about 0.3 s, between 2 and 20000.
int good_iterations(double seconds_each);

// One rank's part in measuring, case by case; all ranks must call alike. Throws gradring::Error.
class Meter {
 public:
  // `largest` bytes are allocated once for each of the ops that are timed together, and serve all
  // cases. To check, one op goes alone.
  Meter(Communicator job, uint64_t largest, int together = 1, const MemoryChoice& choice = {});

  // Where its buffers lie, for people.
  std::string memory() const { return memory_.describe(); }

  // Cases are rounded() for the job's ranks.

  Measurement measure(const Case& of, const Effort& effort);

 private:
  // Some elements of our memory, as the host sees them: to be filled, and as they are now.
  template <typename Fill>
  void fill(const Case& of, uint64_t at, uint64_t count, const Fill& with);
  std::span<const std::byte> look_at(const Case& of, uint64_t at, uint64_t count);
  gradring_request submit(gradring_op op);
  // Returns when the result is there.
  void finish(std::span<const gradring_request> requests);
  void run(const Case& of);
  void run_together(const Case& of);
  void wait_for(gradring_request request);
  double time(const Case& of, int iterations);
  uint64_t wrong_everywhere(const Case& of);

  Communicator job_;
  const uint64_t stride_;  // from one op's memory to the next one's
  const int together_;
  Memory memory_;
  Buffer<int64_t> number_;  // for what the ranks agree on
  std::vector<gradring_request> requests_;
};

}  // namespace gradring::tools
