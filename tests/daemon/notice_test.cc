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

}  // namespace
}  // namespace gradring::daemon
