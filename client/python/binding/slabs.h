#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace gradring::python {

// Segments that are cut into slots of a size each: a daemon grants a trainer a thousand segments or
// so, and more blocks than that are in use where an op is started for each parameter. Of small
// blocks each has 64; of large ones a quarter of what there is of that size already, so that they
// take little more memory than they need.
//
// Not thread-safe. Knows of segments by their addresses; who gives them takes them back.
class Slabs {
 public:
  // Of the segment to be added for such a block.
  size_t bytes_for(size_t bytes) const;

  // A slot, aligned to its size or to a page; null if none is idle, until a segment is added.
  std::byte* take(size_t bytes);
  // One of bytes_for() these bytes, as of now or of a moment ago.
  void add(std::byte* segment, size_t segment_bytes, size_t bytes);

  struct Segment {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  // Its segment if no slot of that is in use any more: then it is none of these.
  std::optional<Segment> give_back(std::byte* slot);

 private:
  struct Slab {
    size_t slot = 0;    // bytes
    size_t slots = 0;   // at most 64
    uint64_t idle = 0;  // a bit for each
  };
  std::map<std::byte*, Slab> slabs_;
  std::set<std::pair<size_t, std::byte*>> with_idle_;  // by the size of their slots
  std::map<size_t, size_t> slots_;                     // in all, by their size
};

}  // namespace gradring::python
