#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "transport/shm/segment.h"

namespace gradring::daemon {

// Copies of final slices that some member may still lack when their op is complete here (protocol
// rule T3): a bounded piece of memory, mapped when the first slice is kept. What is given back is
// used again for slices of the same class of sizes; when nothing fits, the op waits instead. Data
// thread only.
class KeptSlices {
 public:
  struct Place {
    uint64_t offset = 0;
    uint32_t length = 0;
    uint32_t size_class = 0;
  };

  explicit KeptSlices(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  // In memory that outlives the process, with the copies that the last one had in it, by number.
  KeptSlices(transport::Segment memory, const std::map<uint32_t, Place>& places);
  KeptSlices(const KeptSlices&) = delete;
  KeptSlices& operator=(const KeptSlices&) = delete;
  ~KeptSlices();

  // A number for the copy, or nothing when there is no room for it.
  std::optional<uint32_t> keep(std::span<const std::byte> slice);
  std::span<const std::byte> at(uint32_t number) const {
    return {base_ + places_[number].offset, places_[number].length};
  }
  const Place& place(uint32_t number) const { return places_[number]; }
  void drop(uint32_t number);
  size_t count() const { return places_.size() - free_numbers_.size(); }

 private:
  std::optional<uint64_t> take(uint32_t size_class);

  const uint64_t bytes_max_;
  std::optional<transport::Segment> memory_;  // else a mapping of its own
  std::byte* base_ = nullptr;
  uint64_t used_ = 0;                           // of the mapping, ever
  std::vector<std::vector<uint64_t>> free_at_;  // by class of sizes: offsets
  std::vector<Place> places_;
  std::vector<uint32_t> free_numbers_;
};

}  // namespace gradring::daemon
