#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "daemon/core/op.h"

namespace gradring::daemon {

// What rounding to int8 took from each element that this node sent, of one job: it is added the
// next time that an op of the same name and size is summed up here, so that over the steps nothing
// is lost but by delay. Only of named sums and averages: what has no name does not tell which
// tensor it is. Data thread only.
class ErrorFeedback {
 public:
  // `limit`: bytes of all together; ops that come when it is reached go without.
  explicit ErrorFeedback(uint64_t limit) : limit_(limit) {}

  // One float for each element of an input, in the order of the inputs; zeros the first time, and
  // for another size. Null: without. Takes no time for the size: pages come as they are touched.
  float* of(const core::Op& op);
  // Another view: who rounds what changes.
  void clear();

  uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  struct Lost {
    std::unique_ptr<float, Free> elements;
    uint64_t count = 0;
  };

  const uint64_t limit_;
  uint64_t bytes_ = 0;
  std::unordered_map<uint64_t, Lost> by_name_;  // by the key's space
};

}  // namespace gradring::daemon
