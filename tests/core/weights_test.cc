#include "daemon/core/weights.h"

#include <gtest/gtest.h>

namespace gradring::core {
namespace {

TEST(Weights, WindowsAreInProportion) {
  EXPECT_EQ(window_of(1, 1, 16), 16u);
  EXPECT_EQ(window_of(4, 4, 16), 16u);
  EXPECT_EQ(window_of(1, 2, 16), 6u) << "half of ten, and one to begin with";
  EXPECT_EQ(window_of(1, 4, 16), 3u);
  EXPECT_EQ(window_of(50, 100, 16), window_of(1, 2, 16));
}

TEST(Weights, AWindowHasRoomToMove) {
  for (uint32_t slots = 2; slots <= 64; ++slots) {
    for (uint32_t weight = kWeightLeast; weight <= kWeightMost; ++weight) {
      const uint32_t window = window_of(weight, kWeightMost, slots);
      EXPECT_GE(window, 2u);
      EXPECT_LE(window, slots);
    }
  }
}

TEST(Weights, WhoLeavesTheWireToOthersDoesNotWantIt) {
  WireUse use;
  EXPECT_FALSE(use.wants()) << "it has never sent";
  EXPECT_TRUE(use.begins());
  EXPECT_FALSE(use.begins()) << "it wants it already";
  use.look(1000, false);
  EXPECT_TRUE(use.wants()) << "it has sent since";
  use.look(1000, true);
  EXPECT_TRUE(use.wants()) << "what it has sent is on its way";
  use.look(1000, false);
  EXPECT_FALSE(use.wants());
  EXPECT_TRUE(use.begins());
}

}  // namespace
}  // namespace gradring::core
