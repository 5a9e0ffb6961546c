#include "daemon/look_on.h"

#include <gtest/gtest.h>

namespace gradring::daemon {
namespace {

constexpr core::Time kMicrosecond = 1000;

TEST(LookOn, GoesOnForAWhileAfterWork) {
  LookOn look_on;
  look_on.worked(1 * core::kSecond);
  look_on.worked(1 * core::kSecond + 5 * kMicrosecond);
  EXPECT_TRUE(look_on.goes_on(1 * core::kSecond + 20 * kMicrosecond));
  EXPECT_TRUE(look_on.goes_on(1 * core::kSecond + 104 * kMicrosecond));
  EXPECT_FALSE(look_on.goes_on(1 * core::kSecond + 105 * kMicrosecond));
}

TEST(LookOn, SleepsAtOnceAfterAWaitThatWasNotWorthIt) {
  LookOn look_on;
  look_on.worked(1 * core::kSecond);
  ASSERT_TRUE(look_on.goes_on(1 * core::kSecond + kMicrosecond));
  look_on.worked(1 * core::kSecond + 270 * kMicrosecond);  // a packet at 1 Gbit/s
  // Turns with work that follow one another are no waits.
  look_on.worked(1 * core::kSecond + 272 * kMicrosecond);
  EXPECT_FALSE(look_on.goes_on(1 * core::kSecond + 273 * kMicrosecond));
}

TEST(LookOn, LooksOnAgainAfterAShortWait) {
  LookOn look_on;
  look_on.worked(1 * core::kSecond);
  ASSERT_TRUE(look_on.goes_on(1 * core::kSecond + kMicrosecond));
  look_on.worked(2 * core::kSecond);
  ASSERT_FALSE(look_on.goes_on(2 * core::kSecond + kMicrosecond));
  look_on.worked(2 * core::kSecond + 80 * kMicrosecond);  // woken sooner than that
  EXPECT_TRUE(look_on.goes_on(2 * core::kSecond + 81 * kMicrosecond));
}

}  // namespace
}  // namespace gradring::daemon
