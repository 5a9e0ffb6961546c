#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace gradring::python {

// Segments that are cut into 64 slots of a size each: a daemon grants a trainer a thousand segments
// or so, and more small blocks than that are in use where an op is started for each parameter.
//
// Not thread-safe. Knows of segments by their addresses; who gives them takes them back.
class Slabs {
 public:
  static constexpr size_t kLargest = size_t{64} << 10;  // that a slot holds

  // Of a segment whose slots hold this much.
  static size_t bytes_for(size_t bytes);

  // A slot, aligned to its size or to a page; null if none is idle, until a segment is added.
  std::byte* take(size_t bytes);
  void add(std::byte* segment, size_t bytes);

  struct Segment {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  // Its segment if no slot of that is in use any more: then it is none of these.
  std::optional<Segment> give_back(std::byte* slot);

 private:
  struct Slab {
    size_t slot = 0;    // bytes
    uint64_t idle = 0;  // a bit for each
  };
  std::map<std::byte*, Slab> slabs_;
  std::set<std::pair<size_t, std::byte*>> with_idle_;  // by the size of their slots
};

}  // namespace gradring::python
