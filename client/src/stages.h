#pragma once

#include <cstdint>
#include <list>
#include <optional>

#include "client/src/segments.h"

namespace gradring::client {

// Segments that stand in for memory of GPUs that nobody registered: an op borrows one for as long
// as its request lives, and it is kept for the next of about that size. Each belongs to a GPU. Not
// thread-safe; a Segment stays where it is until it is taken out.
class Stages {
 public:
  // What nobody uses is given back to the daemon beyond this, since segments count against its
  // limits, and pinned pages against the machine's.
  static constexpr uint64_t kIdleMost = uint64_t{512} << 20;

  // How large one is for so many bytes: an eighth more at most from 32 KiB on, so that it fits
  // again where sizes differ a little.
  static uint64_t capacity_for(uint64_t bytes);

  // One that nobody uses, of this capacity and for the GPU whose memory this is; null if there is
  // none.
  Segment* idle(uint64_t capacity, const void* memory);
  Segment& insert(Segment segment);
  // The largest one that nobody uses, if all of those have more than `idle_most` together.
  std::optional<Segment> take_idle_beyond(uint64_t idle_most);
  void clear() { all_.clear(); }

 private:
  std::list<Segment> all_;  // about as many as ops at a time
};

}  // namespace gradring::client
