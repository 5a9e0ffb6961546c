#include "daemon/data/slot_buffers.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

namespace gradring::daemon {
namespace {

SlotBuffers::Value value(uint32_t slice) { return {{0, 7}, slice, 1}; }

TEST(SlotBuffersTest, AWantedValueStaysWhenItsSlotIsUsedAgain) {
  SlotBuffers slots(2, 1);
  const uint32_t first = slots.of(0);
  slots.holds(0, value(3));
  slots.use_again(0, true);
  EXPECT_NE(slots.of(0), first);
  EXPECT_FALSE(slots.value_in(0));
  EXPECT_EQ(slots.pin(value(3)), first);
}

TEST(SlotBuffersTest, WhatNobodyWantsIsOverwrittenInPlace) {
  SlotBuffers slots(2, 1);
  const uint32_t first = slots.of(0);
  slots.holds(0, value(3));
  slots.use_again(0, false);
  EXPECT_EQ(slots.of(0), first);
  EXPECT_FALSE(slots.pin(value(3)));
}

TEST(SlotBuffersTest, APinnedValueStaysAndItsSlotGetsAnotherBuffer) {
  SlotBuffers slots(1, 1);
  slots.holds(0, value(0));
  const uint32_t pinned = slots.pin(value(0)).value();
  slots.use_again(0, false);
  EXPECT_NE(slots.of(0), pinned);
  // Nor does anything else move in there.
  slots.holds(0, value(1));
  slots.use_again(0, true);
  EXPECT_NE(slots.of(0), pinned);
  EXPECT_FALSE(slots.pin(value(1)));  // there was no room for it
  slots.unpin(pinned);
  slots.holds(0, value(2));
  slots.use_again(0, true);
  EXPECT_EQ(slots.of(0), pinned);
}

TEST(SlotBuffersTest, TheLongestUnwantedGivesWayFirst) {
  SlotBuffers slots(1, 2);
  for (uint32_t slice = 0; slice < 3; ++slice) {
    slots.holds(0, value(slice));
    slots.use_again(0, true);
  }
  EXPECT_FALSE(slots.pin(value(0)));
  EXPECT_TRUE(slots.pin(value(1)));
  EXPECT_TRUE(slots.pin(value(2)));
}

TEST(SlotBuffersTest, OnlySoManyArePinnedAsThereAreSpares) {
  SlotBuffers slots(3, 2);
  for (uint32_t slot = 0; slot < 3; ++slot) slots.holds(slot, value(slot));
  std::set<uint32_t> pinned;
  for (uint32_t slice = 0; slice < 2; ++slice) pinned.insert(slots.pin(value(slice)).value());
  EXPECT_EQ(pinned.size(), 2u);
  EXPECT_FALSE(slots.pin(value(2)));
  for (uint32_t slot = 0; slot < 3; ++slot) {  // so there is always one for whoever arrives
    slots.use_again(slot, true);
    EXPECT_EQ(pinned.count(slots.of(slot)), 0u);
  }
}

TEST(SlotBuffersTest, WhatIsInUseStaysUntilNobodyUsesIt) {
  SlotBuffers slots(1, 2, 1);
  const uint32_t used = slots.of(0);
  slots.begin_use(used);
  slots.begin_use(used);
  slots.use_again(0, false);
  EXPECT_NE(slots.of(0), used);
  slots.end_use(used);
  for (int i = 0; i < 3; ++i) {
    slots.holds(0, value(i));
    slots.use_again(0, true);
    EXPECT_NE(slots.of(0), used);
  }
  slots.end_use(used);
  // Now that is one of the three again.
  std::set<uint32_t> had;
  for (int i = 0; i < 3; ++i) {
    had.insert(slots.of(0));
    slots.begin_use(slots.of(0));
    if (i < 2) slots.use_again(0, false);
  }
  EXPECT_EQ(had.size(), 3u);
}

TEST(SlotBuffersTest, ThereIsRoomForSlotsWhoseBuffersAreInUse) {
  SlotBuffers slots(2, 3, 1);
  EXPECT_EQ(slots.room(), 2u) << "the third is for what is pinned";
  slots.begin_use(slots.of(0));
  EXPECT_EQ(slots.room(), 1u) << "one is for that slot";
  slots.use_again(0, false);
  EXPECT_EQ(slots.room(), 1u);
  slots.holds(1, value(1));
  slots.pin(value(1)).value();
  EXPECT_EQ(slots.room(), 1u);
  slots.begin_use(slots.of(0));
  EXPECT_EQ(slots.room(), 0u);
}

// As an engine does that knows of the room at the beginning of each turn, with GPUs that end when
// they like and values that are pinned at any time.
TEST(SlotBuffersTest, SoMuchRoomThereIsWhateverIsPinnedMeanwhile) {
  constexpr uint32_t kSlots = 4;
  enum class Slot : uint8_t { kFree, kLanded, kSent };
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto one_of = [&random](size_t many) { return random() % many; };
    SlotBuffers slots(kSlots, 3 * kSlots, kSlots);
    std::vector<Slot> is(kSlots, Slot::kFree);
    std::vector<uint32_t> used, pinned;
    uint32_t final_values = 0;
    const auto use = [&](uint32_t slot) {
      slots.begin_use(slots.of(slot));
      used.push_back(slots.of(slot));
    };
    const auto pin_some = [&] {
      for (uint32_t i = 0; i < one_of(kSlots); ++i) {
        if (const auto buffer = slots.pin(value(final_values - one_of(2 * kSlots)))) {
          pinned.push_back(*buffer);
        }
      }
    };
    for (int step = 0; step < 2000; ++step) {
      const auto slot = static_cast<uint32_t>(one_of(kSlots));
      switch (one_of(6)) {
        case 0:
        case 1:
          if (is[slot] != Slot::kFree) break;
          slots.use_again(slot, one_of(2) == 0);  // ends the program if nothing is left for it
          if (one_of(2) == 0) use(slot);
          is[slot] = Slot::kLanded;
          break;
        case 2: {
          uint32_t budget = slots.room();
          for (uint32_t at = 0; at < kSlots && budget > 0; ++at) {
            if (is[at] != Slot::kLanded) continue;
            --budget;
            use(at);
            slots.holds(at, value(++final_values));
            is[at] = one_of(2) == 0 ? Slot::kSent : Slot::kFree;
            pin_some();
          }
          break;
        }
        case 3:
          if (is[slot] == Slot::kSent) is[slot] = Slot::kFree;
          pin_some();
          break;
        case 4:
          if (used.empty()) break;
          std::swap(used[one_of(used.size())], used.back());
          slots.end_use(used.back());
          used.pop_back();
          break;
        default:
          if (pinned.empty()) break;
          slots.unpin(pinned.back());
          pinned.pop_back();
      }
    }
  }
}

TEST(SlotBuffersTest, AnotherEpochsOrOpsValueIsAnother) {
  SlotBuffers slots(1, 1);
  slots.holds(0, value(3));
  EXPECT_FALSE(slots.pin({{0, 7}, 3, 2}));
  EXPECT_FALSE(slots.pin({{0, 8}, 3, 1}));
  EXPECT_FALSE(slots.pin({{0, 7}, 2, 1}));
}

TEST(SlotBuffersTest, WithoutSparesAllGoesOnAsItWas) {
  SlotBuffers slots(2, 0);
  slots.holds(1, value(3));
  EXPECT_FALSE(slots.pin(value(3)));
  slots.use_again(1, true);
  EXPECT_EQ(slots.of(1), 1u);
}

}  // namespace
}  // namespace gradring::daemon
