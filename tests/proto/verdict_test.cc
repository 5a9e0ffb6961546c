#include "proto/verdict.h"

#include <gtest/gtest.h>

#include <set>

namespace gradring {
namespace {

TEST(Verdict, NamesAreDistinctAndUnknownOnesSaySo) {
  EXPECT_EQ(name_of(Verdict::kOk), "OK");
  EXPECT_EQ(name_of(Verdict::kOkShrunk), "OK_SHRUNK");
  EXPECT_EQ(name_of(Verdict::kFailed), "FAILED");
  EXPECT_EQ(name_of(static_cast<Verdict>(4)), "unknown");
  std::set<std::string_view> causes;
  for (int i = 0; i <= kCauseLast; ++i) causes.insert(name_of(static_cast<Cause>(i)));
  EXPECT_EQ(causes.size(), size_t{kCauseLast} + 1);
  EXPECT_EQ(causes.count("unknown"), 0u);
  EXPECT_EQ(name_of(static_cast<Cause>(kCauseLast + 1)), "unknown");
}

TEST(Verdict, AFailureIsOneSentenceForPeople) {
  EXPECT_EQ(describe(Failure{Cause::kTrainerDied, {3, "b", 4711, "", "killed by signal 9"}}),
            "trainer died: rank 3, node b, pid 4711: killed by signal 9");
  EXPECT_EQ(describe(Failure{Cause::kPeerLost, {kNoRank, "c", 0, "eth1", "connection reset"}}),
            "peer lost: node c, device eth1: connection reset");
}

TEST(Verdict, WhatIsNotKnownIsNotSaid) {
  EXPECT_EQ(describe(Failure{Cause::kDrained, {}}), "daemon drained");
  EXPECT_EQ(describe(Failure{Cause::kRefused, {kNoRank, "", 0, "", "offset 9 is beyond"}}),
            "refused: offset 9 is beyond");
  EXPECT_EQ(describe(Failure{Cause::kDeadline, {0, "", 0, "", ""}}), "deadline passed: rank 0");
}

}  // namespace
}  // namespace gradring
