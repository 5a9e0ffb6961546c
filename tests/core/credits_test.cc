#include "daemon/core/credits.h"

#include <gtest/gtest.h>

#include <set>

namespace gradring::core {
namespace {

TEST(SendCredits, ASliceTakesOneAndACreditGivesItBack) {
  SendCredits credits(3, 3);
  EXPECT_EQ(credits.free(), 3u);
  credits.take();
  credits.take();
  EXPECT_EQ(credits.free(), 1u);
  EXPECT_TRUE(credits.on_freed_total(1));
  EXPECT_EQ(credits.free(), 2u);
  EXPECT_TRUE(credits.on_freed_total(2));
  EXPECT_EQ(credits.free(), 3u);
}

TEST(SendCredits, ARepeatedOrOvertakenCreditDoesNoHarm) {
  SendCredits credits(2, 2);
  credits.take();
  credits.take();
  EXPECT_TRUE(credits.on_freed_total(2));
  EXPECT_TRUE(credits.on_freed_total(2));  // repeated
  EXPECT_TRUE(credits.on_freed_total(1));  // overtaken by the one above
  EXPECT_EQ(credits.free(), 2u);
}

TEST(SendCredits, AWindowBoundsWhatBegins) {
  SendCredits credits(8, 8);
  credits.take();
  credits.take();
  credits.limit(3);
  EXPECT_EQ(credits.free_to_start(), 1u);
  credits.take();
  EXPECT_EQ(credits.free_to_start(), 0u);
  EXPECT_EQ(credits.free(), 5u) << "for what moves on";
  EXPECT_TRUE(credits.on_freed_total(2));
  EXPECT_EQ(credits.free_to_start(), 2u);
  credits.limit(8);
  EXPECT_EQ(credits.free_to_start(), 7u);
}

// More may be under way than a window that shrinks allows; and in a new epoch no slot is known to
// be free.
TEST(SendCredits, AWindowMayShrinkBelowWhatIsUnderWay) {
  SendCredits credits(8, 0);
  credits.limit(2);
  EXPECT_EQ(credits.free_to_start(), 0u);
  EXPECT_TRUE(credits.on_freed_total(8));
  EXPECT_EQ(credits.free_to_start(), 2u);
  credits.limit(8);
  for (int i = 0; i < 6; ++i) credits.take();
  credits.limit(2);
  EXPECT_EQ(credits.free_to_start(), 0u);
  EXPECT_TRUE(credits.on_freed_total(12));
  EXPECT_EQ(credits.free_to_start(), 0u);
  EXPECT_TRUE(credits.on_freed_total(13));
  EXPECT_EQ(credits.free_to_start(), 1u);
}

TEST(SendCredits, MoreFreedThanSentIsALie) {
  SendCredits credits(4, 4);
  EXPECT_FALSE(credits.on_freed_total(1));
  credits.take();
  EXPECT_FALSE(credits.on_freed_total(2));
  EXPECT_EQ(credits.free(), 3u) << "a lie changes nothing";
}

TEST(SendCredits, TotalsGoOnFarBeyondTheSlots) {
  SendCredits credits(2, 2);
  for (uint64_t sent = 1; sent <= 100'000; ++sent) {
    credits.take();
    ASSERT_TRUE(credits.on_freed_total(sent));
  }
  EXPECT_EQ(credits.free(), 2u);
}

TEST(SendCreditsDeathTest, SendingWithoutCreditIsABugOfOurs) {
  SendCredits credits(1, 1);
  credits.take();
  EXPECT_DEATH(credits.take(), "only with a credit");
}

TEST(ReceiveSlots, EverySlotIsLentOnceUntilItComesBack) {
  ReceiveSlots slots(3);
  std::set<uint32_t> lent;
  for (int i = 0; i < 3; ++i) lent.insert(slots.take().value());
  EXPECT_EQ(lent, (std::set<uint32_t>{0, 1, 2}));
  EXPECT_EQ(slots.free(), 0u);
  EXPECT_FALSE(slots.take().has_value()) << "full is a normal answer";
  slots.give_back(1);
  EXPECT_EQ(slots.take(), std::optional<uint32_t>(1));
}

TEST(ReceiveSlots, FreedSlotsAreCountedForTheCredit) {
  ReceiveSlots slots(2);
  EXPECT_EQ(slots.freed_total(), 0u);
  for (uint64_t turn = 1; turn <= 10; ++turn) {
    const uint32_t slot = slots.take().value();
    EXPECT_EQ(slots.freed_total(), turn - 1) << "taking is not freeing";
    slots.give_back(slot);
    EXPECT_EQ(slots.freed_total(), turn);
  }
  EXPECT_EQ(slots.free(), 2u);
}

}  // namespace
}  // namespace gradring::core
