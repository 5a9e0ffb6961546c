#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/frame.h"
#include "proto/verdict.h"

namespace gradring::core {

// Of a job in which a peer has more of a later epoch to say than can be kept.
inline Failure too_far_ahead(const std::string& node, uint64_t its_epoch, uint64_t epoch) {
  Failure failure{Cause::kProtocol, {}};
  failure.blame.node = node;
  failure.blame.evidence = "said more than can be kept of view " + std::to_string(its_epoch) +
                           " before this node had left view " + std::to_string(epoch);
  return failure;
}

// Sorts the frames of a job by its epoch (rule D8). What is of a later one waits until this node
// has entered that; what is of an older one is dropped, and its sender should hear of the newer
// epoch. kTooMuch: more is of a later one than a peer has to say, so that what it says is lost.
// Nothing would ever say it again, so the job cannot go on. Once for each peer.
template <typename Peer>
class EpochGate {
 public:
  enum class Verdict : uint8_t { kTake, kLater, kPast, kTooMuch };
  // Of one peer: READY and WANTED of as many ops as can be open, and some credits.
  static constexpr size_t kMost = 140'000;

  // `frame` is no SLICE: those come only after this node gave a credit for them in their epoch.
  Verdict sort(Peer peer, const Frame& frame, uint64_t epoch) {
    if (frame.epoch == epoch) return Verdict::kTake;
    if (frame.epoch < epoch) return Verdict::kPast;
    size_t& its = of(peer).waiting;
    if (its > kMost) return Verdict::kLater;
    if (++its > kMost) return Verdict::kTooMuch;
    waiting_.emplace_back(std::move(peer), frame);
    return Verdict::kLater;
  }
  // In the order in which they came; what is of a later epoch still comes back by sort().
  std::vector<std::pair<Peer, Frame>> take_waiting() {
    for (Known& known : known_) known.waiting = 0;
    return std::exchange(waiting_, {});
  }

  // Whether the peer is to be told that it is behind: once for each of its epochs is enough.
  bool tell(const Peer& peer, uint64_t its_epoch) {
    uint64_t& told = of(peer).told;
    if (told >= its_epoch) return false;
    told = its_epoch;
    return true;
  }
  // Whether to ask for its epoch, at what sort() has just put aside: there may be thousands of
  // that, and what is asked may be lost. So at the first, the second, the fourth, and so on.
  bool ask() const { return std::has_single_bit(waiting_.size()); }

 private:
  struct Known {
    Peer peer;
    uint64_t told = 0;
    size_t waiting = 0;  // of its frames, and one more where that was too much
  };
  Known& of(const Peer& peer) {
    const auto known = std::find_if(known_.begin(), known_.end(),
                                    [&peer](const Known& one) { return one.peer == peer; });
    return known != known_.end() ? *known : known_.emplace_back(Known{peer});
  }

  std::vector<std::pair<Peer, Frame>> waiting_;
  std::vector<Known> known_;
};

}  // namespace gradring::core
