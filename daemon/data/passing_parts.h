#pragma once

#include <cstdint>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/time.h"
#include "daemon/data/messages.h"
#include "proto/stream_word.h"

namespace gradring::daemon {

// Ops of a job that are under way while a GPU still brings parts of their input, or fetches parts
// of their result already. Data thread only.
class PassingParts {
 public:
  // What of the input is there now, as the engine is to be told with the submission.
  static uint64_t input_here(const Submit& submit);
  // From now on this one is looked after, until it is dropped.
  void add(const Submit& submit, uint64_t input_here, core::Time now);
  void drop(uint32_t rank, uint64_t ticket);
  // What slices there are may be another matter than before.
  void begin_epoch();

  // Tells the engine of parts that have come since, and sets the words of those that may go.
  void look(core::JobEngine* engine);

  // Ops of this rank whose input is not all here.
  uint32_t coming_of(uint32_t rank) const;
  // Never, if nothing is to come.
  core::Time next_look(core::Time now) const;

 private:
  struct Passing {
    uint32_t rank = 0;
    uint64_t ticket = 0;
    OpKey key;
    StreamWord word;
    uint64_t part_bytes = 0;
  };
  struct Coming : Passing {
    uint32_t parts = 0;  // the engine knows of
    core::Time since = 0;
  };
  struct Going : Passing {
    uint32_t slice = 0;  // the first that is not known to be there
    uint64_t bytes = 0;  // of the output, before that one
  };
  static void look(Going* going, const core::JobEngine& engine);

  std::vector<Coming> coming_;
  std::vector<Going> going_;
};

}  // namespace gradring::daemon
