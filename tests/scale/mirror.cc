#include "tests/scale/mirror.h"

#include <algorithm>

namespace gradring::scale {
namespace {

std::vector<uint32_t> slices_of(const StableBody& stable) {
  std::vector<uint32_t> slices;
  for (uint32_t i = 0; i < kStableSlices; ++i) {
    if ((stable.bits[i / 64] >> (i % 64) & 1) != 0) slices.push_back(stable.first + i);
  }
  return slices;
}

}  // namespace

std::vector<Mirror::Arrival> Mirror::of(uint32_t from, uint32_t to, const Frame& frame,
                                        uint32_t ranks) const {
  if (is_for_the_tree(to, frame)) {
    Frame word = frame;
    word.type = FrameType::kAllReady;
    word.all_ready = {members_ * ranks, frame.ready.grows};
    return {{to, from, word}};
  }
  Arrival arrival{from, first() + to % window_, frame};
  const uint32_t places = back(to, arrival.to);
  if (places == 0) return {arrival};
  arrival.from = back(from, places);
  if (frame.type == FrameType::kReady) {
    arrival.frame.ready.rank = back(frame.ready.rank / ranks, places) * ranks;
  }
  if (frame.type == FrameType::kSlice) {
    arrival.frame.slice.slice = slice_back(frame.slice.slice, places);
  }
  if (frame.type != FrameType::kStable) return {arrival};

  std::vector<uint32_t> slices = slices_of(frame.stable);
  for (uint32_t& slice : slices) slice = slice_back(slice, places);
  std::sort(slices.begin(), slices.end());
  std::vector<Arrival> arrivals;
  for (const uint32_t slice : slices) {
    const uint32_t first = slice / kStableSlices * kStableSlices;
    if (arrivals.empty() || arrivals.back().frame.stable.first != first) {
      arrivals.push_back(arrival);
      arrivals.back().frame.stable.first = first;
      arrivals.back().frame.stable.bits.fill(0);
    }
    arrivals.back().frame.stable.bits[(slice - first) / 64] |= uint64_t{1}
                                                               << ((slice - first) % 64);
  }
  return arrivals.empty() ? std::vector<Arrival>{arrival} : arrivals;
}

}  // namespace gradring::scale
