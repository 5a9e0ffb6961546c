#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/core/engine_actions.h"
#include "daemon/core/time.h"
#include "proto/types.h"
#include "proto/verdict.h"

namespace gradring::daemon {

// Bytes of ops that ended well, as each rank counts them, by Collective.
using BytesMoved = std::array<uint64_t, kCollectiveLast + 1>;

// How the ops of a job ended on this node, each rank's for itself: a submission ends exactly once,
// so these sums are exact whatever happens to the others. Numbers only, of a size that is known
// beforehand; a record costs some nanoseconds. A value; whoever owns it says which thread.
struct OpStats {
  enum class End : uint8_t { kOk, kShrunk, kFailed, kRefused };
  static constexpr size_t kEnds = 4;
  static constexpr size_t kCollectives = kCollectiveLast + 1;
  static constexpr size_t kCauses = kCauseLast + 1;

  // Upper bounds of a rank's bytes in an op, inclusive; the last class has none. Wide, since each
  // has a histogram: what goes directly, what is bound by latency, by bandwidth, and the largest.
  static constexpr std::array<uint64_t, 4> kSizeBounds = {4 << 10, 64 << 10, 1 << 20, 16 << 20};
  static constexpr size_t kSizes = kSizeBounds.size() + 1;
  static size_t size_class_of(uint64_t bytes);

  // Upper bounds in nanoseconds, inclusive: from a small sum within a node to whoever waits for a
  // straggler. The last class has none.
  static constexpr core::Time kUs = core::kMillisecond / 1000;
  static constexpr core::Time kMs = core::kMillisecond;
  static constexpr std::array<core::Time, 18> kTimeBounds = {
      50 * kUs,  100 * kUs,  250 * kUs,  500 * kUs,  1 * kMs,      2500 * kUs,
      5 * kMs,   10 * kMs,   25 * kMs,   50 * kMs,   100 * kMs,    250 * kMs,
      500 * kMs, 1000 * kMs, 2500 * kMs, 5000 * kMs, 10'000 * kMs, 30'000 * kMs};
  struct Durations {
    std::array<uint64_t, kTimeBounds.size() + 1> counts{};
    core::Time sum = 0;
  };

  std::array<std::array<uint64_t, kEnds>, kCollectives> ended{};  // by Collective
  BytesMoved bytes{};
  std::array<uint64_t, kCauses> failed{};     // by Cause, of those that did not
  std::array<Durations, kSizes> durations{};  // of those that ended well and moved data

  // `took`: from this rank's submission until its end, so waiting for others is part of it.
  void record(Collective collective, uint64_t op_bytes, const core::Outcome& outcome,
              core::Time took);
  OpStats& operator+=(const OpStats& other);
};

}  // namespace gradring::daemon
