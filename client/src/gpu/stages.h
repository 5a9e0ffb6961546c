#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "client/src/memory/segments.h"

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

  // One that nobody uses, of this capacity and for the GPU whose memory this is, with a block or
  // without; null if there is none.
  Segment* idle(uint64_t capacity, const void* memory, bool with_block);
  Segment& insert(Segment segment);
  // The largest one that nobody uses, if all of those have more than `idle_most` together.
  std::optional<Segment> take_idle_beyond(uint64_t idle_most);
  // One with a block that nobody has used for kLong uses of others: of a size that is asked for no
  // more. Others are asked for again in the next step, and making a block takes longer than a step.
  static constexpr uint64_t kLong = 1000;
  std::optional<Segment> take_long_idle_block();
  std::vector<uint64_t> ids_of_those_with_blocks() const;
  void clear() { all_.clear(); }

 private:
  struct Stage {
    Segment segment;
    uint64_t used = 0;  // the number of its last use
  };
  std::optional<Segment> take(std::list<Stage>::iterator stage);

  std::list<Stage> all_;  // about as many as ops at a time
  uint64_t uses_ = 0;
};

}  // namespace gradring::client
