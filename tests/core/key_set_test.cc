#include "daemon/core/key_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gradring::core {
namespace {

TEST(KeySet, KnowsNothingAtFirst) {
  const KeySet ended;
  EXPECT_FALSE(ended.contains({0, 0}));
  EXPECT_FALSE(ended.knows_space(0));
  EXPECT_EQ(ended.spaces(), 0u);
}

TEST(KeySet, OpsEndInAnyOrder) {
  KeySet ended;
  ended.insert({0, 2});
  EXPECT_TRUE(ended.contains({0, 2}));
  EXPECT_FALSE(ended.contains({0, 0})) << "below an exception is not ended";
  EXPECT_FALSE(ended.contains({0, 1}));
  EXPECT_FALSE(ended.contains({0, 3}));
  ended.insert({0, 0});
  EXPECT_TRUE(ended.contains({0, 0}));
  EXPECT_FALSE(ended.contains({0, 1}));
  ended.insert({0, 1});
  for (uint64_t sequence = 0; sequence <= 2; ++sequence) {
    EXPECT_TRUE(ended.contains({0, sequence})) << sequence;
  }
  EXPECT_FALSE(ended.contains({0, 3}));
}

TEST(KeySet, EveryOrderOfFiveEndsInTheSameSet) {
  std::vector<uint64_t> order = {0, 1, 2, 3, 4};
  do {
    KeySet ended;
    std::vector<bool> in(6, false);
    for (const uint64_t sequence : order) {
      ended.insert({0, sequence});
      in[sequence] = true;
      for (uint64_t asked = 0; asked < in.size(); ++asked) {
        ASSERT_EQ(ended.contains({0, asked}), in[asked]) << asked << " after " << sequence;
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(KeySet, EndingTwiceChangesNothing) {
  KeySet ended;
  for (int times = 0; times < 2; ++times) {
    ended.insert({0, 0});
    ended.insert({0, 2});
  }
  EXPECT_TRUE(ended.contains({0, 0}));
  EXPECT_FALSE(ended.contains({0, 1}));
  EXPECT_TRUE(ended.contains({0, 2}));
  ended.insert({0, 1});
  ended.insert({0, 1});
  EXPECT_FALSE(ended.contains({0, 3}));
}

TEST(KeySet, NamesAreSpacesOfTheirOwn) {
  KeySet ended;
  ended.insert({77, 0});
  ended.insert({0xffffffffffffffff, 5});
  EXPECT_TRUE(ended.contains({77, 0}));
  EXPECT_FALSE(ended.contains({78, 0}));
  EXPECT_FALSE(ended.contains({0, 0}));
  EXPECT_TRUE(ended.contains({0xffffffffffffffff, 5}));
  EXPECT_FALSE(ended.contains({0xffffffffffffffff, 0}));
  EXPECT_TRUE(ended.knows_space(77));
  EXPECT_FALSE(ended.knows_space(0));
  EXPECT_EQ(ended.spaces(), 2u);
}

TEST(KeySet, CostsAnIntervalForEachGapAndNoMore) {
  KeySet ended;
  for (uint64_t sequence = 1; sequence <= 100'000; ++sequence) ended.insert({0, sequence});
  EXPECT_EQ(ended.intervals(), 1u) << "op 0 is open for long; the others came and went";
  EXPECT_FALSE(ended.contains({0, 0}));
  ended.insert({0, 100'002});
  EXPECT_EQ(ended.intervals(), 2u);
  ended.insert({0, 100'001});
  ended.insert({0, 0});
  EXPECT_EQ(ended.intervals(), 1u);
  EXPECT_TRUE(ended.contains({0, 100'002}));
  EXPECT_FALSE(ended.contains({0, 100'003}));
  ended.insert({9, 0});
  EXPECT_EQ(ended.intervals(), 2u) << "one for each name";
}

TEST(KeySet, AnIntervalCostsWhatOneKeyCosts) {
  KeySet ended;
  ended.insert_interval(0, 0, UINT64_MAX);
  EXPECT_EQ(ended.intervals(), 1u);
  EXPECT_TRUE(ended.contains({0, 0}));
  EXPECT_TRUE(ended.contains({0, UINT64_MAX}));
  EXPECT_FALSE(ended.contains({1, 0}));
}

// Every pair of intervals, and a key between or next to them, against keys one by one.
TEST(KeySet, IntervalsJoinAsTheirKeysWould) {
  constexpr uint64_t kKeys = 7;
  struct Interval {
    uint64_t first, last;
  };
  std::vector<Interval> all;
  for (uint64_t first = 0; first < kKeys; ++first) {
    for (uint64_t last = first; last < kKeys; ++last) all.push_back({first, last});
  }
  for (const Interval& a : all) {
    for (const Interval& b : all) {
      for (const Interval& c : all) {
        KeySet whole;
        KeySet one_by_one;
        for (const auto& [first, last] : {a, b, c}) {
          whole.insert_interval(5, first, last);
          for (uint64_t key = first; key <= last; ++key) one_by_one.insert({5, key});
        }
        ASSERT_EQ(whole, one_by_one) << a.first << ".." << a.last << ", " << b.first << ".."
                                     << b.last << ", " << c.first << ".." << c.last;
        size_t gaps = 0;
        for (uint64_t key = 0; key < kKeys; ++key) {
          const bool in = (a.first <= key && key <= a.last) || (b.first <= key && key <= b.last) ||
                          (c.first <= key && key <= c.last);
          ASSERT_EQ(whole.contains({5, key}), in);
          if (in && (key == 0 || !whole.contains({5, key - 1}))) ++gaps;
        }
        ASSERT_EQ(whole.intervals(), gaps);
      }
    }
  }
}

TEST(KeySet, TheLastSequenceNumberIsNoException) {
  KeySet ended;
  constexpr uint64_t kLast = 0xffffffffffffffff;
  ended.insert({0, kLast});
  EXPECT_TRUE(ended.contains({0, kLast}));
  EXPECT_FALSE(ended.contains({0, 0}));
  ended.insert({0, 0});
  ended.insert({0, kLast});
  EXPECT_EQ(ended.intervals(), 2u) << "the first does not follow the last";
}

}  // namespace
}  // namespace gradring::core
