#include "daemon/data/kept_slices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>

namespace gradring::daemon {
namespace {

std::vector<std::byte> slice(size_t bytes, int value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

bool holds(const KeptSlices& kept, uint32_t number, const std::vector<std::byte>& expected) {
  const auto copy = kept.at(number);
  return std::equal(copy.begin(), copy.end(), expected.begin(), expected.end());
}

TEST(KeptSlicesTest, CopiesStayAsTheyWereAndApart) {
  KeptSlices kept(1 << 20);
  auto first = slice(5000, 1);
  const auto second = slice(64, 2);
  const uint32_t a = kept.keep(first).value();
  const uint32_t b = kept.keep(second).value();
  std::fill(first.begin(), first.end(), std::byte{9});
  EXPECT_TRUE(holds(kept, a, slice(5000, 1)));
  EXPECT_TRUE(holds(kept, b, second));
  EXPECT_EQ(kept.count(), 2u);
}

TEST(KeptSlicesTest, SaysNoWhenFullAndHasRoomAgainForTheSameSize) {
  KeptSlices kept(64 << 10);
  std::vector<uint32_t> numbers;
  while (const auto number = kept.keep(slice(16 << 10, 3))) numbers.push_back(*number);
  EXPECT_EQ(numbers.size(), 4u);
  EXPECT_EQ(std::set<uint32_t>(numbers.begin(), numbers.end()).size(), 4u);
  EXPECT_FALSE(kept.keep(slice(1, 4)));
  kept.drop(numbers[2]);
  const auto again = kept.keep(slice(10000, 5));
  ASSERT_TRUE(again);
  EXPECT_TRUE(holds(kept, *again, slice(10000, 5)));
  EXPECT_TRUE(holds(kept, numbers[1], slice(16 << 10, 3)));
  EXPECT_TRUE(holds(kept, numbers[3], slice(16 << 10, 3)));
  EXPECT_EQ(kept.count(), 4u);
}

TEST(KeptSlicesTest, WithoutMemoryNothingIsKept) {
  KeptSlices kept(0);
  EXPECT_FALSE(kept.keep(slice(64, 1)));
  EXPECT_EQ(kept.count(), 0u);
}

TEST(KeptSlicesTest, EachPowerOfTwoFitsItsClassExactly) {
  KeptSlices kept(3 * 8192);
  EXPECT_TRUE(kept.keep(slice(8192, 1)));
  EXPECT_TRUE(kept.keep(slice(8192, 2)));
  EXPECT_TRUE(kept.keep(slice(4097, 3)));
  EXPECT_FALSE(kept.keep(slice(4096, 4)));
}

TEST(KeptSlicesTest, TheNextLifeFindsTheCopiesAndUsesNoneOfTheirPlaces) {
  auto memory = transport::Segment::create(64 << 10);
  ASSERT_TRUE(memory);
  auto again = transport::Segment::adopt(dup(memory->fd()));
  ASSERT_TRUE(again);
  std::map<uint32_t, KeptSlices::Place> places;
  {
    KeptSlices kept(std::move(*memory), {});
    kept.keep(slice(5000, 1));
    const uint32_t second = kept.keep(slice(4096, 2)).value();
    places[second] = kept.place(second);
  }
  KeptSlices kept(std::move(*again), places);
  const uint32_t old = places.begin()->first;
  EXPECT_TRUE(holds(kept, old, slice(4096, 2)));
  for (int i = 0; i < 8; ++i) kept.keep(slice(4096, 7));
  EXPECT_TRUE(holds(kept, old, slice(4096, 2)));
}

}  // namespace
}  // namespace gradring::daemon
