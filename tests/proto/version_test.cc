#include "proto/version.h"

#include <gtest/gtest.h>

namespace gradring {
namespace {

TEST(Protocols, AgreeOnTheNewestThatBothSpeak) {
  EXPECT_EQ(common_protocol({2, 3}, {2, 3}), 3u);
  EXPECT_EQ(common_protocol({2, 3}, {3, 4}), 3u);
  EXPECT_EQ(common_protocol({3, 4}, {2, 3}), 3u);
  EXPECT_EQ(common_protocol({1, 9}, {4, 4}), 4u);
}

TEST(Protocols, HaveNothingInCommonIfTheyAreTooFarApart) {
  EXPECT_FALSE(common_protocol({1, 1}, {2, 3}));
  EXPECT_FALSE(common_protocol({4, 5}, {2, 3}));
  EXPECT_FALSE(common_protocol({1, 1}, {0, 0})) << "no version at all was said";
}

TEST(Protocols, OfASideThatNamesOneNumberItIsThatOne) {
  EXPECT_EQ(common_protocol({1, 2}, {0, 2}), 2u);
  EXPECT_EQ(common_protocol({1, 2}, {0, 1}), 1u);
  EXPECT_FALSE(common_protocol({1, 2}, {0, 3}));
}

TEST(Protocols, AreToldToPeople) {
  EXPECT_EQ(describe(Protocols{2, 3}), "2 to 3");
  EXPECT_EQ(describe(Protocols{2, 2}), "2");
  EXPECT_EQ(describe(Protocols{0, 5}), "5");
}

}  // namespace
}  // namespace gradring
