// The search for a table: measured times go in, tables come out.

#include "daemon/core/tuner.h"

#include <gmock/gmock.h>

#include <functional>
#include <set>

#include "daemon/core/random.h"

namespace gradring::core {
namespace {

using testing::Contains;
using testing::Not;

constexpr uint32_t kSmall = 6;   // up to 64 KiB
constexpr uint32_t kLarge = 14;  // up to 16 MiB
constexpr Choice kRingOf64K{Choice::Way::kRing, 64 << 10};
constexpr Choice kRingOf128K{Choice::Way::kRing, 128 << 10};

TunerOptions tuner_options() {
  TunerOptions options;
  options.members = 4;
  options.plan.direct_members_max = 8;
  return options;
}

// What an op of this class takes, by how it goes: in microseconds, before noise.
using Cost = std::function<double(uint32_t size_class, const Choice& choice)>;

// A job that trains: its ops are timed, its view gets whatever table is wanted.
struct Job {
  explicit Job(Cost c, uint64_t seed = 1, const Tuning& first = {})
      : tuner(tuner_options(), first), view(first), cost(std::move(c)), random(seed) {}

  // Now and then an op takes many times as long.
  Time time_of(uint32_t size_class, const Choice& choice) {
    const double noise = 0.9 + 0.2 * static_cast<double>(random.below(1000)) / 1000;
    const double stall = random.below(50) == 0 ? 20 : 1;
    return static_cast<Time>(1000 * cost(size_class, choice) * noise * stall);
  }
  void train(uint64_t ops, const std::vector<uint32_t>& classes) {
    for (uint64_t i = 0; i < ops && !tuner.over(); ++i, ++key) {
      const uint32_t size_class = classes[random.below(classes.size())];
      const TunedClass* entry = view.find(size_class);
      const bool tried = entry != nullptr && entry->tried && tries({0, key});
      tuner.add({size_class, tried, time_of(size_class, view.choice({0, key}, size_class))});
      if (i % 64 != 0) continue;
      const auto wanted = tuner.wanted();
      if (!wanted) continue;
      EXPECT_EQ(fault_of(*wanted), "");
      EXPECT_NE(*wanted, view) << "a change that changes nothing";
      view = *wanted;
      tuner.entered(view);
      ++changes;
    }
  }

  Tuner tuner;
  Tuning view;
  Cost cost;
  Random random;
  uint64_t key = 0;
  uint32_t changes = 0;
};

TEST(Tuner, TheDefaultsAreAmongItsCandidates) {
  for (uint32_t c = 0; c < kSizeClasses; ++c) {
    EXPECT_THAT(Tuner::candidates(c, tuner_options()), Contains(Choice{})) << c;
  }
  EXPECT_THAT(Tuner::candidates(kLarge, tuner_options()), Contains(kRingOf64K));
  EXPECT_THAT(Tuner::candidates(kLarge, tuner_options()),
              Not(Contains(Choice{Choice::Way::kWhole, 0})))
      << "that is more than goes directly";
  EXPECT_THAT(Tuner::candidates(kSmall, tuner_options()), Contains(Choice{Choice::Way::kWhole, 0}));
}

TEST(Tuner, FindsWhatIsBetterInEachClass) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Job job(
        [](uint32_t size_class, const Choice& choice) {
          if (size_class == kLarge) return choice == kRingOf128K ? 800.0 : 1000.0;
          return choice.way == Choice::Way::kWhole ? 70.0 : 100.0;
        },
        seed);
    job.train(100'000, {kSmall, kLarge});
    EXPECT_TRUE(job.tuner.over());
    EXPECT_EQ(job.view.settled(kLarge), kRingOf128K) << "seed " << seed;
    EXPECT_EQ(job.view.settled(kSmall), (Choice{Choice::Way::kWhole, 0})) << "seed " << seed;
    EXPECT_FALSE(job.view.searching()) << "nothing is tried for ever";
    EXPECT_LE(job.changes, tuner_options().changes_most);
    for (const TunedFinding& finding : job.tuner.findings()) {
      EXPECT_GT(finding.gain, 0.1);
      EXPECT_GE(finding.samples, tuner_options().samples_least);
      EXPECT_EQ(finding.before, Choice{});
    }
  }
}

TEST(Tuner, ChanceTakesNothingsPlace) {
  int changed = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Job job([](uint32_t, const Choice&) { return 500.0; }, seed);
    job.train(100'000, {kSmall, kLarge});
    EXPECT_TRUE(job.tuner.over());
    EXPECT_LE(job.changes, tuner_options().changes_most);
    changed += job.view == Tuning{} ? 0 : 1;
  }
  EXPECT_LE(changed, 5);
}

TEST(Tuner, AWorseCandidateIsGivenUp) {
  Job job([](uint32_t, const Choice& choice) { return choice == Choice{} ? 500.0 : 700.0; });
  job.train(100'000, {kLarge});
  EXPECT_TRUE(job.tuner.over());
  EXPECT_EQ(job.view, Tuning{});
  EXPECT_EQ(job.tuner.found(), Tuning{});
}

TEST(Tuner, ComesBackToTheDefaultFromATableThatIsWorse) {
  Tuning first;
  first.set({kLarge, kRingOf64K, {}});
  Job job([](uint32_t, const Choice& choice) { return choice == Choice{} ? 500.0 : 700.0; }, 1,
          first);
  job.train(100'000, {kLarge});
  EXPECT_EQ(job.view.settled(kLarge), Choice{});
}

TEST(Tuner, WhatIsRareKeepsNobodyWaiting) {
  Job job([](uint32_t size_class, const Choice& choice) {
    return size_class == kLarge && choice == kRingOf128K ? 800.0 : 1000.0;
  });
  std::vector<uint32_t> classes(400, kLarge);
  classes.push_back(kSmall);
  job.train(200'000, classes);
  EXPECT_TRUE(job.tuner.over());
  EXPECT_EQ(job.view.settled(kLarge), kRingOf128K);
}

TEST(Tuner, AsksForTheSameUntilItComesAbout) {
  Job job([](uint32_t, const Choice&) { return 500.0; });
  for (int i = 0; i < 100; ++i) job.tuner.add({kLarge, false, 1000});
  const auto wanted = job.tuner.wanted();
  ASSERT_TRUE(wanted.has_value());
  for (int i = 0; i < 100; ++i) job.tuner.add({kLarge, true, 10});
  EXPECT_EQ(job.tuner.wanted(), wanted);
  job.tuner.entered(*wanted);
  EXPECT_EQ(job.tuner.wanted(), std::nullopt) << "first it is measured";
}

TEST(Tuner, WhatIsKnownIsNotTriedAgain) {
  Tuning first;
  first.set({kLarge, kRingOf128K, {}});
  Tuner tuner(tuner_options(), first, {kSmall, kLarge});
  EXPECT_TRUE(tuner.over());
  for (int i = 0; i < 1000; ++i) {
    tuner.add({kLarge, false, 1000});
    tuner.add({kSmall, false, 1000});
    ASSERT_EQ(tuner.wanted(), std::nullopt);
  }
  EXPECT_EQ(tuner.found(), first);
  EXPECT_EQ(tuner.searched(), (std::set<uint32_t>{kSmall, kLarge}));
  // But of a size that was not seen before nothing is known.
  for (int i = 0; i < 1000; ++i) tuner.add({kLarge - 1, false, 1000});
  const auto wanted = tuner.wanted();
  ASSERT_TRUE(wanted.has_value());
  EXPECT_TRUE(wanted->find(kLarge - 1)->tried.has_value());
  EXPECT_FALSE(wanted->find(kLarge)->tried.has_value());
  EXPECT_FALSE(tuner.over());
}

TEST(Tuner, SizesThatComeLaterAreTriedAsWell) {
  Job job([](uint32_t, const Choice& choice) {
    return choice == kRingOf128K || choice.way == Choice::Way::kWhole ? 300.0 : 500.0;
  });
  job.train(100'000, {kLarge});
  ASSERT_TRUE(job.tuner.over());
  ASSERT_EQ(job.view.settled(kSmall), Choice{});
  for (int i = 0; i < 100; ++i) job.tuner.add({kSmall, false, 1000});
  const auto wanted = job.tuner.wanted();
  ASSERT_TRUE(wanted.has_value());
  job.view = *wanted;
  job.tuner.entered(job.view);
  job.train(100'000, {kSmall, kLarge});
  EXPECT_EQ(job.view.settled(kSmall), (Choice{Choice::Way::kWhole, 0}));
  EXPECT_EQ(job.view.settled(kLarge), kRingOf128K);
}

TEST(Tuner, WhatWasNotTriedToTheEndIsNotTakenForSearched) {
  Job job([](uint32_t, const Choice&) { return 500.0; });
  std::vector<uint32_t> classes;
  for (const uint32_t later : {kLarge, kSmall, kSmall - 1, kLarge - 1}) {  // when all is tried
    for (int i = 0; i < 100; ++i) job.tuner.add({later, false, 500'000});
    if (const auto wanted = job.tuner.wanted()) {
      job.view = *wanted;
      job.tuner.entered(job.view);
      ++job.changes;
    }
    classes.push_back(later);
    job.train(100'000, classes);
  }
  EXPECT_TRUE(job.tuner.over());
  EXPECT_FALSE(job.view.searching());
  EXPECT_LE(job.changes, tuner_options().changes_most);
  int unfinished = 0;
  for (const TunedFinding& finding : job.tuner.findings()) {
    if (finding.left == 0) continue;
    ++unfinished;
    EXPECT_THAT(job.tuner.searched(), Not(Contains(finding.size_class)));
  }
  EXPECT_EQ(unfinished, 1) << "there were too few changes for all";
  EXPECT_THAT(job.tuner.searched(), Contains(kLarge));
}

TEST(Tuner, AnothersTableBeginsItAnew) {
  Job job([](uint32_t, const Choice& choice) { return choice == kRingOf128K ? 300.0 : 500.0; });
  job.train(300, {kLarge});
  ASSERT_TRUE(job.view.searching());
  job.view = {};  // nodes came or went
  job.tuner.entered(job.view);
  EXPECT_EQ(job.tuner.found(), Tuning{});
  job.train(100'000, {kLarge});
  EXPECT_TRUE(job.tuner.over());
  EXPECT_EQ(job.view.settled(kLarge), kRingOf128K);
}

}  // namespace
}  // namespace gradring::core
