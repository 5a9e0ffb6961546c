#include "daemon/data/op_stats.h"

#include <gtest/gtest.h>

namespace gradring::daemon {
namespace {

using End = OpStats::End;

core::Outcome ended(Verdict verdict, Cause cause = Cause::kNone) {
  core::Outcome outcome;
  outcome.verdict = verdict;
  outcome.failure.cause = cause;
  return outcome;
}

uint64_t count(const OpStats& stats, Collective collective, End end) {
  return stats.ended[static_cast<size_t>(collective)][static_cast<size_t>(end)];
}

TEST(OpStats, SizesAreClassedByInclusiveBounds) {
  EXPECT_EQ(OpStats::size_class_of(0), 0u);
  EXPECT_EQ(OpStats::size_class_of(4096), 0u);
  EXPECT_EQ(OpStats::size_class_of(4097), 1u);
  EXPECT_EQ(OpStats::size_class_of(16 << 20), 3u);
  EXPECT_EQ(OpStats::size_class_of(uint64_t{1} << 50), 4u);
}

TEST(OpStats, WhatEndedWellIsCountedWithItsBytesAndItsTime) {
  OpStats stats;
  stats.record(Collective::kAllreduce, 1024, ended(Verdict::kOk), 50'000);
  stats.record(Collective::kAllreduce, 1024, ended(Verdict::kOkShrunk), 50'001);
  stats.record(Collective::kAllreduce, 32 << 20, ended(Verdict::kOk), 3600 * core::kSecond);
  EXPECT_EQ(count(stats, Collective::kAllreduce, End::kOk), 2u);
  EXPECT_EQ(count(stats, Collective::kAllreduce, End::kShrunk), 1u);
  EXPECT_EQ(stats.bytes[static_cast<size_t>(Collective::kAllreduce)], 2048u + (32 << 20));
  EXPECT_EQ(stats.durations[0].counts[0], 1u) << "a bound is part of its class";
  EXPECT_EQ(stats.durations[0].counts[1], 1u);
  EXPECT_EQ(stats.durations[0].sum, 100'001);
  EXPECT_EQ(stats.durations[4].counts.back(), 1u) << "what takes longer than all bounds";
}

TEST(OpStats, WhatFailedHasACauseAndNoTime) {
  OpStats stats;
  stats.record(Collective::kBroadcast, 8, ended(Verdict::kFailed, Cause::kPeerLost), 10);
  stats.record(Collective::kBroadcast, 8, ended(Verdict::kFailed, Cause::kRefused), 10);
  EXPECT_EQ(count(stats, Collective::kBroadcast, End::kFailed), 1u);
  EXPECT_EQ(count(stats, Collective::kBroadcast, End::kRefused), 1u);
  EXPECT_EQ(stats.failed[static_cast<size_t>(Cause::kPeerLost)], 1u);
  EXPECT_EQ(stats.failed[static_cast<size_t>(Cause::kRefused)], 1u);
  EXPECT_EQ(stats.bytes[static_cast<size_t>(Collective::kBroadcast)], 0u);
  EXPECT_EQ(stats.durations[0].sum, 0);
}

TEST(OpStats, ABarrierIsCountedAndNotTimed) {
  OpStats stats;
  stats.record(Collective::kBarrier, 0, ended(Verdict::kOk), core::kSecond);
  EXPECT_EQ(count(stats, Collective::kBarrier, End::kOk), 1u);
  EXPECT_EQ(stats.durations[0].sum, 0);
}

TEST(OpStats, SumsAreOfEverything) {
  OpStats a, b;
  a.record(Collective::kAllreduce, 10, ended(Verdict::kOk), 1);
  b.record(Collective::kAllreduce, 20, ended(Verdict::kOk), 2);
  b.record(Collective::kReduce, 1, ended(Verdict::kFailed, Cause::kDeadline), 3);
  a += b;
  EXPECT_EQ(count(a, Collective::kAllreduce, End::kOk), 2u);
  EXPECT_EQ(count(a, Collective::kReduce, End::kFailed), 1u);
  EXPECT_EQ(a.bytes[static_cast<size_t>(Collective::kAllreduce)], 30u);
  EXPECT_EQ(a.failed[static_cast<size_t>(Cause::kDeadline)], 1u);
  EXPECT_EQ(a.durations[0].counts[0], 2u);
  EXPECT_EQ(a.durations[0].sum, 3);
}

}  // namespace
}  // namespace gradring::daemon
