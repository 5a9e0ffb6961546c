// Which table a job begins with, who looks for a better one, and when it is looked for anew.

#include "daemon/control/tunings.h"

#include <gmock/gmock.h>

#include "daemon/tuning_text.h"
#include "tests/daemon/scratch.h"

namespace gradring::daemon {
namespace {

using core::Choice;
using core::Tuning;

constexpr uint32_t kLarge = 14;  // up to 16 MiB
constexpr Choice kRingOf128K{Choice::Way::kRing, 128 << 10};

Tuning pinned(const std::string& text) {
  Tuning table = parse_tuning(text).value();
  table.fixed = true;
  return table;
}

class TuningsTest : public testing::Test {
 protected:
  TuningsTest() {
    view_.job = "j";
    view_.incarnation = {1, 2, 3};
    view_.epoch = 1;
    view_.size = 2;
    view_.members = {{"a", {{0, 0, 1, 1}}}, {"b", {{1, 0, 2, 2}}}};
  }

  Tunings make(const std::string& tuning, const std::string& node = "a") {
    Tunings::Setup setup;
    setup.node = node;
    setup.tuning = tuning;
    setup.file = scratch_.path("tuning");
    setup.version = "1";
    setup.plan.direct_members_max = 8;
    return Tunings(setup, [this] { return Tunings::Lanes{{"b", lanes_}}; });
  }

  // The job goes on in a view with this table.
  void enter(Tunings* tunings, const Tuning& table) {
    ++view_.epoch;
    view_.tuning = table;
    tunings->entered(view_);
  }

  // 16 MiB sums are the fastest with slices of 128K.
  void train(Tunings* tunings, int steps) {
    for (int step = 0; step < steps; ++step) {
      OpsTimed timed{view_.incarnation, view_.epoch, {}};
      for (int i = 0; i < 64; ++i, ++key_) {
        const core::TunedClass* const entry = view_.tuning.find(kLarge);
        const bool tried = entry != nullptr && entry->tried && core::tries({0, key_});
        const bool best = view_.tuning.choice({0, key_}, kLarge) == kRingOf128K;
        timed.times.push_back({kLarge, tried, (best ? 800 : 1000) + key_ % 7});
      }
      tunings->measured(timed);
      const auto wanted = tunings->wanted();
      ASSERT_LE(wanted.size(), 1u);
      if (!wanted.empty()) enter(tunings, wanted.front().second);
    }
  }

  Scratch scratch_;
  core::View view_;
  uint32_t lanes_ = 1;
  uint32_t key_ = 0;
};

TEST_F(TuningsTest, ByDefaultNothingIsTunedAndNobodySearches) {
  Tunings tunings = make("default");
  EXPECT_EQ(tunings.first(view_, false), Tuning{});
  EXPECT_TRUE(tunings.first(view_, true).fixed);
  tunings.entered(view_);
  train(&tunings, 100);
  EXPECT_EQ(view_.epoch, 1u);
  EXPECT_EQ(tunings.report(view_.incarnation), std::nullopt);
}

TEST_F(TuningsTest, APinnedTableComesBackAfterOthersCame) {
  Tunings tunings = make("64K:parts,rest:128K");
  const Tuning table = pinned("64K:parts,rest:128K");
  ASSERT_EQ(tunings.first(view_, false), table);
  view_.tuning = table;
  tunings.entered(view_);
  train(&tunings, 100);
  EXPECT_EQ(view_.epoch, 1u) << "nobody searches";
  EXPECT_EQ(tunings.report(view_.incarnation)->state(), "fixed");
  EXPECT_EQ(tunings.report(view_.incarnation)->table(), "64K:parts,rest:128K");
  // Rule V11 empties the table of a view with other nodes.
  view_.members[1].node = "c";
  Tuning empty;
  empty.fixed = true;
  enter(&tunings, empty);
  const auto wanted = tunings.wanted();
  ASSERT_EQ(wanted.size(), 1u);
  EXPECT_EQ(wanted.front().second, table);
  enter(&tunings, table);
  EXPECT_TRUE(tunings.wanted().empty());
}

TEST_F(TuningsTest, WhatIsFoundLaterJobsBeginWith) {
  Tunings tunings = make("auto");
  EXPECT_EQ(tunings.first(view_, false), Tuning{});
  tunings.entered(view_);
  EXPECT_EQ(tunings.report(view_.incarnation)->state(), "searching");
  train(&tunings, 200);
  EXPECT_EQ(view_.tuning.settled(kLarge), kRingOf128K);
  EXPECT_FALSE(view_.tuning.searching());
  const auto report = tunings.report(view_.incarnation);
  EXPECT_EQ(report->state(), "searched");
  ASSERT_EQ(report->sizes_size(), 1);
  EXPECT_EQ(report->sizes(0).up_to_bytes(), 16u << 20);
  EXPECT_EQ(report->sizes(0).way(), "128K");
  EXPECT_EQ(report->sizes(0).before(), "default");
  EXPECT_NEAR(report->sizes(0).gain(), 0.2, 0.02);
  tunings.ended(view_.incarnation);
  EXPECT_EQ(tunings.report(view_.incarnation), std::nullopt);

  Tunings next = make("auto");
  const Tuning found = next.first(view_, false);
  EXPECT_EQ(found, view_.tuning);
  view_.epoch = 1;
  next.entered(view_);
  EXPECT_EQ(next.report(view_.incarnation)->state(), "found before");
  train(&next, 100);
  EXPECT_EQ(view_.epoch, 1u) << "it is not searched again";
}

TEST_F(TuningsTest, ADeterministicJobKeepsWhatItBeginsWith) {
  {
    Tunings tunings = make("auto");
    tunings.entered(view_);
    train(&tunings, 200);
  }
  Tunings tunings = make("auto");
  view_.tuning = tunings.first(view_, true);
  EXPECT_TRUE(view_.tuning.classes.empty()) << "what was measured differs from run to run";
  EXPECT_TRUE(view_.tuning.fixed);
  view_.epoch = 1;
  tunings.entered(view_);
  train(&tunings, 100);
  EXPECT_EQ(view_.epoch, 1u);
}

TEST_F(TuningsTest, ALaneThatIsLostBeginsTheSearchAnew) {
  lanes_ = 2;
  Tunings tunings = make("auto");
  tunings.entered(view_);
  train(&tunings, 200);
  ASSERT_EQ(tunings.report(view_.incarnation)->state(), "searched");
  lanes_ = 1;
  tunings.wanted();
  EXPECT_EQ(tunings.report(view_.incarnation)->state(), "searching");
  train(&tunings, 200);
  EXPECT_EQ(tunings.report(view_.incarnation)->state(), "searched");
  lanes_ = 2;  // what was found with both is known still
  const auto wanted = tunings.wanted();
  for (const auto& [job, table] : wanted) enter(&tunings, table);
  EXPECT_EQ(tunings.report(view_.incarnation)->state(), "found before");
}

TEST_F(TuningsTest, OnlyTheNodeOfTheLowestRankSearches) {
  Tunings tunings = make("auto", "b");
  tunings.entered(view_);
  train(&tunings, 100);
  EXPECT_EQ(view_.epoch, 1u);
  EXPECT_EQ(tunings.report(view_.incarnation), std::nullopt);
  // Until it is.
  view_.members = {{"b", {{1, 0, 2, 2}}}, {"c", {{2, 0, 3, 3}}}};
  enter(&tunings, {});
  train(&tunings, 200);
  EXPECT_EQ(view_.tuning.settled(kLarge), kRingOf128K);
}

TEST_F(TuningsTest, TimesOfAnEpochThatIsOverCountForNothing) {
  Tunings tunings = make("auto");
  tunings.entered(view_);
  OpsTimed timed{view_.incarnation, view_.epoch + 1, {}};
  for (int i = 0; i < 1000; ++i) timed.times.push_back({kLarge, false, 1000});
  tunings.measured(timed);
  EXPECT_TRUE(tunings.wanted().empty());
  timed.epoch = view_.epoch;
  tunings.measured(timed);
  EXPECT_FALSE(tunings.wanted().empty());
}

TEST_F(TuningsTest, AJobOfOneNodeHasNothingToTune) {
  view_.members.pop_back();
  Tunings tunings = make("auto");
  EXPECT_EQ(tunings.first(view_, false), Tuning{});
  tunings.entered(view_);
  EXPECT_EQ(tunings.report(view_.incarnation), std::nullopt);
}

}  // namespace
}  // namespace gradring::daemon
