#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "transport/cuda/driver.h"

namespace gradring::transport::cuda {

// How far a stream has come, in a word of the host's memory that the stream itself writes. Whoever
// looks there needs no driver, whose locks somebody else may have for long, as while memory is
// pinned. One thread.
class Progress {
 public:
  Progress() = default;
  // Not ended: the GPU works still, and may write to it.
  ~Progress() {
    if (pinned_) static_cast<void>(page_.release());
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // ---- in the context of its GPU ----
  Driver::Result make(const Driver& driver);
  // Once the stream has come to rest.
  void end(const Driver& driver);
  // Enqueues that the stream has come to here, by this number; none: the driver has no way for it.
  std::optional<uint32_t> mark(const Driver& driver, Driver::Stream stream);

  // And all that was put on the stream before has been done.
  bool has_come(uint32_t number) const;

 private:
  struct alignas(4096) Page {
    uint32_t word = 0;
  };

  std::unique_ptr<Page> page_;
  bool pinned_ = false;
  Driver::Address word_ = 0;  // as the GPU has it
  uint32_t last_ = 0;
};

}  // namespace gradring::transport::cuda
