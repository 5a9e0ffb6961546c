// The table of how sums go: what it says of an op, and what is refused.

#include "daemon/core/tuning.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "daemon/core/random.h"

namespace gradring::core {
namespace {

Signature floats(uint64_t count) {
  return {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, count};
}

PlanOptions plan_options() {
  PlanOptions plan;
  plan.direct_members_max = 8;
  return plan;
}

Plan plan_of(const Tuning& tuning, uint64_t bytes, uint32_t members, OpKey key = {}) {
  const Signature signature = floats(bytes / 4);
  return make_plan(signature, members, 0, {},
                   tuned(plan_options(), tuning, key, signature, members));
}

constexpr Choice kDefault;
constexpr Choice kRing{Choice::Way::kRing, 0};
constexpr Choice kWhole{Choice::Way::kWhole, 0};
constexpr Choice kParts{Choice::Way::kParts, 0};

Choice slices_of(uint32_t bytes) { return {Choice::Way::kRing, bytes}; }

// Ops up to each size, and above the one before.
Tuning table_of(const std::vector<std::pair<uint64_t, Choice>>& rows) {
  Tuning tuning;
  uint32_t next = 0;
  for (const auto& [bytes, choice] : rows) {
    for (; next <= size_class_of(bytes); ++next) tuning.set({next, choice, {}});
  }
  return tuning;
}
Tuning all(const Choice& choice) { return table_of({{UINT64_MAX, choice}}); }

TEST(Tuning, SizesFallIntoClasses) {
  EXPECT_EQ(size_class_of(1), 0u);
  EXPECT_EQ(size_class_of(1024), 0u);
  EXPECT_EQ(size_class_of(1025), 1u);
  EXPECT_EQ(size_class_of(64 << 10), 6u);
  EXPECT_EQ(size_class_of((64 << 10) + 1), 7u);
  EXPECT_EQ(size_class_of(uint64_t{64} << 20), 16u);
  EXPECT_EQ(size_class_of((uint64_t{64} << 20) + 1), 17u);
  EXPECT_EQ(size_class_of(UINT64_MAX), kSizeClasses - 1);
  for (uint32_t c = 0; c + 1 < kSizeClasses; ++c) EXPECT_EQ(size_class_of(size_class_end(c)), c);
}

TEST(Tuning, AnEmptyTableChangesNothing) {
  for (uint64_t bytes = 4; bytes <= (256 << 20); bytes *= 2) {
    const Signature signature = floats(bytes / 4);
    for (const uint32_t members : {1u, 2u, 5u}) {
      const Plan plain = make_plan(signature, members, 0, {}, plan_options());
      const Plan with = plan_of({}, bytes, members);
      EXPECT_EQ(with.slice_bytes, plain.slice_bytes);
      EXPECT_EQ(with.slices, plain.slices);
      EXPECT_EQ(with.direct, plain.direct);
    }
  }
}

TEST(Tuning, AnOpGoesAsItsSizeSays) {
  const Tuning tuning = table_of({{4 << 10, kRing},
                                  {16 << 10, kWhole},
                                  {64 << 10, kParts},
                                  {1 << 20, slices_of(64 << 10)},
                                  {UINT64_MAX, kDefault}});
  EXPECT_EQ(plan_of(tuning, 4 << 10, 2).direct, Direct::kNo);
  EXPECT_EQ(plan_of(tuning, 16 << 10, 2).direct, Direct::kWhole);
  EXPECT_EQ(plan_of(tuning, 64 << 10, 2).direct, Direct::kParts);
  EXPECT_EQ(plan_of(tuning, 1 << 20, 2).slice_bytes, 64u << 10);
  EXPECT_EQ(plan_of(tuning, 8 << 20, 2).slice_bytes, plan_of({}, 8 << 20, 2).slice_bytes);
}

TEST(Tuning, WhatCannotBeGoesByDefault) {
  // A part of 512 KiB is more than goes directly, and no slice is larger than a slot.
  EXPECT_EQ(plan_of(all(kParts), 1 << 20, 2).direct, Direct::kNo);
  EXPECT_EQ(plan_of(all(kParts), 1 << 20, 2).slice_bytes, plan_of({}, 1 << 20, 2).slice_bytes);
  EXPECT_EQ(plan_of(all(slices_of(1 << 20)), 64 << 20, 2).slice_bytes, 256u << 10);
  // A job of one node sends nothing.
  EXPECT_EQ(plan_of(all(slices_of(64 << 10)), 1 << 20, 1).slice_bytes,
            plan_of({}, 1 << 20, 1).slice_bytes);
}

TEST(Tuning, OnlySumsToEverybodyAreTuned) {
  Signature broadcast = floats(1 << 20);
  broadcast.collective = Collective::kBroadcast;
  const PlanOptions with = tuned(plan_options(), all(slices_of(64 << 10)), {}, broadcast, 4);
  EXPECT_EQ(with.slice_bytes_tuned, 0u);
}

TEST(Tuning, HalfOfTheKeysTryWhatIsTried) {
  Tuning tuning;
  tuning.set({10, {}, slices_of(64 << 10)});
  ASSERT_TRUE(tuning.searching());
  for (const uint64_t space : {uint64_t{0}, uint64_t{0x123456789abcdef}}) {
    uint32_t tried = 0;
    for (uint64_t i = 0; i < 1000; ++i) {
      const Choice choice = tuning.choice({space, i}, 10);
      EXPECT_EQ(choice, (tries({space, i}) ? slices_of(64 << 10) : Choice{}));
      tried += choice == Choice{} ? 0 : 1;
      EXPECT_EQ(tuning.choice({space, i}, 9), Choice{});
    }
    EXPECT_GT(tried, 400u);
    EXPECT_LT(tried, 600u);
  }
  // Also of names, each of which is used once a step.
  uint32_t tried = 0;
  Random random(1);
  for (int i = 0; i < 1000; ++i) tried += tries({random.next(), 7}) ? 1 : 0;
  EXPECT_GT(tried, 400u);
  EXPECT_LT(tried, 600u);
}

TEST(Tuning, OfWhatOthersSendNothingIsBelievedThatCannotBe) {
  const auto table = [](std::vector<TunedClass> classes) {
    Tuning tuning;
    tuning.classes = std::move(classes);
    return tuning;
  };
  const Choice ring{Choice::Way::kRing, 64 << 10};
  EXPECT_EQ(fault_of(table({})), "");
  EXPECT_EQ(fault_of(table({{0, {}, ring}, {17, ring, {}}})), "");
  EXPECT_NE(fault_of(table({{18, ring, {}}})), "");
  EXPECT_NE(fault_of(table({{3, ring, {}}, {3, ring, {}}})), "");
  EXPECT_NE(fault_of(table({{4, ring, {}}, {3, ring, {}}})), "");
  EXPECT_NE(fault_of(table({{3, {static_cast<Choice::Way>(4), 0}, {}}})), "");
  EXPECT_NE(fault_of(table({{3, {Choice::Way::kRing, 65}, {}}})), "");
  EXPECT_NE(fault_of(table({{3, {Choice::Way::kRing, 32}, {}}})), "");
  EXPECT_NE(fault_of(table({{3, {Choice::Way::kRing, 0xffffffc0}, {}}})), "");
  EXPECT_NE(fault_of(table({{3, {}, Choice{Choice::Way::kWhole, 64}}})), "");
}

}  // namespace
}  // namespace gradring::core
