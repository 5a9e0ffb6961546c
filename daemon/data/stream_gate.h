#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/data/messages.h"

namespace gradring::daemon {

// When to look again at a word that somebody waits for since then: a stream can write one and wake
// nobody. Who has waited long is looked at seldom: what that adds to an op is an eighth of what its
// stream took at most.
core::Time next_look(core::Time now, core::Time since);

// Submissions whose input a GPU has still to write: they do not count before their stream has come
// to them; and those whose job has yet to have memory on GPUs. Data thread only.
class StreamGate {
 public:
  // Of one session; more would be a trainer that names the same words again and again.
  static constexpr size_t kHeldMax = 4096;

  // False: it has too many here already.
  bool hold(const Submit& submit, core::Time now);
  // In the order in which they came: those that count now, and those that never will.
  std::vector<Submit> take(const std::function<bool(const Submit&)>& wanted);

  bool empty() const { return held_.empty(); }
  bool any(const std::function<bool(const Submit&)>& wanted) const;
  // Of a rank of a job.
  uint32_t held_by(const JobId& job, uint32_t rank) const;
  // Of whoever waits the shortest.
  core::Time next_look(core::Time now) const;

 private:
  struct Held {
    Submit submit;
    core::Time since = 0;
  };
  std::vector<Held> held_;
};

}  // namespace gradring::daemon
