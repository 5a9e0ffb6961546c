#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/core/staging.h"

namespace gradring::daemon {

// The checksum of what lies in each piece of a job's staging memory, where it is known: made when
// the bytes are, or come with them. It is not made anew for another attempt to send, so that memory
// which does not keep what was written is found as well.
class Checksums {
 public:
  Checksums(uint32_t slots, uint32_t start_buffers) : slots_(slots), starts_(start_buffers) {}

  std::optional<uint32_t>& of(core::Staging at) {
    return (at.kind == core::Staging::Kind::kSlot ? slots_ : starts_)[at.index];
  }

 private:
  std::vector<std::optional<uint32_t>> slots_;
  std::vector<std::optional<uint32_t>> starts_;
};

}  // namespace gradring::daemon
