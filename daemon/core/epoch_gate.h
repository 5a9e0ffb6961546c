#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/frame.h"

namespace gradring::core {

// Sorts the frames of a job by its epoch (rule D8). What is of a later one waits until this node
// has entered that; what is of an older one is dropped, and its sender should hear of the newer
// epoch.
template <typename Peer>
class EpochGate {
 public:
  enum class Verdict : uint8_t { kTake, kLater, kPast };

  // `frame` is no SLICE: those come only after this node gave a credit for them in their epoch.
  Verdict sort(Peer peer, const Frame& frame, uint64_t epoch) {
    if (frame.epoch == epoch) return Verdict::kTake;
    if (frame.epoch < epoch) return Verdict::kPast;
    constexpr size_t kMost = 70000;  // READYs of as many ops as can be open, and some credits
    if (waiting_.size() < kMost) waiting_.emplace_back(std::move(peer), frame);
    return Verdict::kLater;
  }
  // In the order in which they came; what is of a later epoch still comes back by sort().
  std::vector<std::pair<Peer, Frame>> take_waiting() { return std::exchange(waiting_, {}); }

  // Whether the peer is to be told that it is behind: once for each of its epochs is enough.
  bool tell(const Peer& peer, uint64_t its_epoch) {
    for (auto& [known, told] : told_) {
      if (known != peer) continue;
      if (told >= its_epoch) return false;
      told = its_epoch;
      return true;
    }
    told_.emplace_back(peer, its_epoch);
    return true;
  }
  // Whether to ask for its epoch, at what sort() has just put aside: there may be thousands of
  // that, and what is asked may be lost. So at the first, the second, the fourth, and so on.
  bool ask() const { return std::has_single_bit(waiting_.size()); }

 private:
  std::vector<std::pair<Peer, Frame>> waiting_;
  std::vector<std::pair<Peer, uint64_t>> told_;
};

}  // namespace gradring::core
