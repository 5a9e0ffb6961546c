#include "daemon/notice.h"

#include <gtest/gtest.h>

namespace gradring::daemon {
namespace {

constexpr core::Time kStart = 1000 * core::kSecond;

TEST(Seldom, WhoKeepsHittingOneLimitHidesNoOther) {
  Seldom seldom;
  EXPECT_TRUE(seldom.lets("pid 7 has 4 segments already", kStart));
  EXPECT_FALSE(seldom.lets("pid 11 has 12 segments already", kStart + 999 * core::kMillisecond));
  EXPECT_TRUE(seldom.lets("uid 7 has 3 trainers attached already", kStart + 1));
  EXPECT_TRUE(seldom.lets("pid 7 has 4 segments already", kStart + 1 * core::kSecond));
}

TEST(Seldom, WhateverIsSaidItIsNotMuch) {
  Seldom seldom;
  int let = 0;
  std::string text;
  for (int i = 0; i < 1000; ++i) let += seldom.lets(text += "x", kStart) ? 1 : 0;
  EXPECT_LE(let, 16);
  EXPECT_TRUE(seldom.lets(text, kStart + 1 * core::kSecond));
}

TEST(LinesOfUsers, WhoHasJobsWithoutEndIsToldOfSeldomAndHidesNobody) {
  using Lets = LinesOfUsers::Lets;
  LinesOfUsers lines;
  int let = 0;
  for (int i = 0; i < 1000; ++i) let += lines.lets(7, kStart) == Lets::kYes ? 1 : 0;
  EXPECT_EQ(let, 256);
  EXPECT_EQ(lines.lets(8, kStart), Lets::kYes);
  EXPECT_EQ(lines.lets(7, kStart + 1 * core::kSecond), Lets::kYes);
  EXPECT_EQ(lines.lets(7, kStart + 1 * core::kSecond), Lets::kNo) << "that is said once";
  const core::Time later = kStart + 300 * core::kSecond;
  for (int i = 0; i < 256; ++i) EXPECT_EQ(lines.lets(7, later), Lets::kYes);
  EXPECT_EQ(lines.lets(7, later), Lets::kNoMore);
}

}  // namespace
}  // namespace gradring::daemon
