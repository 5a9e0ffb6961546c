// Whom a slice that is not finite is blamed on, and what people read of it.

#include "daemon/data/nonfinite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "daemon/control/nonfinite_report.h"

namespace gradring::daemon {
namespace {

using Kind = NonfiniteOrigin::Kind;
using testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

constexpr uint32_t kSliceElements = 16;

// Ranks 4 and 6 of a job live here; its op has three slices and a bit.
class NonfiniteWatchTest : public testing::Test {
 protected:
  NonfiniteWatchTest() {
    op_.key = {99, 7};
    op_.name = "grad.7";
    op_.signature = Signature{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, kCount};
    core::PlanOptions options;
    options.slice_bytes_max = options.slice_bytes_min = kSliceElements * 4;
    op_.plan = core::make_plan(*op_.signature, 2, 0, {}, options);
    for (const uint32_t rank : {4, 6}) {
      op_.locals.emplace_back().emplace();
      op_.locals.back()->rank = rank;
    }
  }

  // Folds what arrived and both ranks' parts of a slice, as the executor does. Returns what look()
  // does, and false if there was nothing to look at.
  bool fold(uint32_t slice, core::Time now) {
    const size_t first = slice * kSliceElements;
    const std::array<const void*, 3> inputs = {&arrived_[first], &ours_[0][first],
                                               &ours_[1][first]};
    const auto findings = transport::fold(Dtype::kFloat32, ReduceOp::kSum, inputs, &arrived_[first],
                                          op_.plan.length_of(slice) / 4, 0);
    if (findings.nonfinite == 0) return false;
    static constexpr std::array<uint32_t, 2> kRanks = {4, 6};
    return watch_.look(op_, op_.plan.input_at(slice), op_.plan.length_of(slice),
                       std::span(inputs).last(2), kRanks, findings, now);
  }

  static constexpr size_t kCount = 3 * kSliceElements + 5;
  core::Op op_;
  std::vector<float> arrived_ = std::vector<float>(kCount, 1);
  std::array<std::vector<float>, 2> ours_ = {std::vector<float>(kCount, 2),
                                             std::vector<float>(kCount, 3)};
  std::array<uint64_t, 2> counted() const { return {watch_.inputs(4), watch_.inputs(6)}; }
  NonfiniteWatch watch_;
};

TEST_F(NonfiniteWatchTest, TheSlicesAreAsTheTestsNeedThem) {
  ASSERT_EQ(op_.plan.slices, 4u);
  ASSERT_EQ(op_.plan.input_at(1), kSliceElements * 4);
}

TEST_F(NonfiniteWatchTest, NamesTheRankTheElementAndTheTimeOfTheFirst) {
  ours_[1][kSliceElements + 3] = kNan;
  ours_[1][kSliceElements + 9] = kInfinity;
  EXPECT_FALSE(fold(0, 100));
  EXPECT_TRUE(fold(1, 200));
  EXPECT_FALSE(fold(3, 300));
  EXPECT_THAT(counted(), ElementsAre(0, 2));
  ASSERT_TRUE(watch_.first());
  EXPECT_EQ(watch_.first()->kind, Kind::kNan);
  EXPECT_EQ(watch_.first()->rank, 6u);
  EXPECT_EQ(watch_.first()->element, kSliceElements + 3);
  EXPECT_EQ(watch_.first()->key, op_.key);
  EXPECT_EQ(watch_.first()->name, "grad.7");
  EXPECT_EQ(watch_.first()->at, 200);
}

TEST_F(NonfiniteWatchTest, OfTwoRanksTheOneWithTheEarlierElementIsNamedAndBothAreCounted) {
  ours_[0][10] = kNan;
  ours_[1][4] = -kInfinity;
  EXPECT_TRUE(fold(0, 1));
  EXPECT_EQ(watch_.first()->rank, 6u);
  EXPECT_EQ(watch_.first()->kind, Kind::kInfinity);
  EXPECT_EQ(watch_.first()->element, 4u);
  EXPECT_THAT(counted(), ElementsAre(1, 1));
}

TEST_F(NonfiniteWatchTest, TheFirstStaysAndCountingGoesOn) {
  ours_[0][kCount - 1] = kNan;
  EXPECT_TRUE(fold(3, 1));
  ours_[1].assign(kCount, kNan);
  for (uint32_t slice = 0; slice < 4; ++slice) EXPECT_FALSE(fold(slice, 2));
  EXPECT_EQ(watch_.first()->rank, 4u);
  EXPECT_EQ(watch_.first()->element, kCount - 1);
  EXPECT_THAT(counted(), ElementsAre(2, kCount));
}

TEST_F(NonfiniteWatchTest, WhatArrivesSoIsNotOurs) {
  arrived_[5] = kNan;
  arrived_[6] = kInfinity;
  EXPECT_FALSE(fold(0, 1));
  EXPECT_FALSE(watch_.first());
  EXPECT_THAT(counted(), ElementsAre(0, 0));
}

TEST_F(NonfiniteWatchTest, ASumOfFiniteValuesThatIsNotFiniteIsAnOverflowOfNobody) {
  arrived_[5] = kNan;
  arrived_[2 * kSliceElements + 8] = kLargest;
  ours_[0][2 * kSliceElements + 8] = kLargest;
  EXPECT_FALSE(fold(0, 1));
  EXPECT_TRUE(fold(2, 2));
  EXPECT_EQ(watch_.first()->kind, Kind::kOverflow);
  EXPECT_EQ(watch_.first()->rank, kNoRank);
  EXPECT_EQ(watch_.first()->element, 2 * kSliceElements + 8);
  EXPECT_THAT(counted(), ElementsAre(0, 0));
}

// Ranks 4 and 6 once more, whose inputs GPUs have looked at.
class NonfiniteOnGpusTest : public NonfiniteWatchTest {
 protected:
  bool look(const transport::Gpus::Nonfinite& found, uint64_t first_element = 0) {
    static constexpr std::array<uint32_t, 2> kRanks = {4, 6};
    return watch_.look(op_, first_element * sizeof(float), kRanks, found, 300);
  }
};

TEST_F(NonfiniteOnGpusTest, NamesTheRankThatHadTheFirst) {
  EXPECT_TRUE(look({5, {{2, 9, true}, {1, 5, false}}}, 16));
  EXPECT_EQ(watch_.first()->kind, Kind::kInfinity);
  EXPECT_EQ(watch_.first()->rank, 6u);
  EXPECT_EQ(watch_.first()->element, 21u);
  EXPECT_EQ(watch_.first()->key, op_.key);
  EXPECT_EQ(watch_.first()->name, "grad.7");
  EXPECT_EQ(watch_.first()->at, 300);
  EXPECT_THAT(counted(), ElementsAre(2, 1));
  EXPECT_FALSE(look({0, {{1, 0, true}, {}}}));
  EXPECT_EQ(watch_.first()->rank, 6u) << "the first stays";
  EXPECT_THAT(counted(), ElementsAre(3, 1));
}

TEST_F(NonfiniteOnGpusTest, WhatNoInputHasIsAnOverflow) {
  EXPECT_TRUE(look({5, {{}, {3, 6, true}}}));
  EXPECT_EQ(watch_.first()->kind, Kind::kOverflow);
  EXPECT_EQ(watch_.first()->rank, kNoRank);
  EXPECT_EQ(watch_.first()->element, 5u);
  EXPECT_THAT(counted(), ElementsAre(0, 3));
}

class NonfiniteReportTest : public testing::Test {
 protected:
  NonfiniteReportTest() {
    origin_ = {Kind::kNan, 1, {99, 7}, "grad\n.7", 12034, 5 * core::kSecond, 4712};
  }
  NonfiniteOrigin origin_;
};

TEST_F(NonfiniteReportTest, IsOneLineForTheLog) {
  EXPECT_EQ(
      describe(origin_),
      "first NaN of this node's ranks: rank 1 (pid 4712), op \"grad\\n.7\" use 7 element 12034");
  origin_.kind = Kind::kInfinity;
  origin_.name.clear();
  origin_.key = {0, 17};
  EXPECT_EQ(describe(origin_),
            "first infinity of this node's ranks: rank 1 (pid 4712), op 17 element 12034");
  origin_.kind = Kind::kOverflow;
  origin_.rank = kNoRank;
  EXPECT_EQ(describe(origin_),
            "first overflow in a sum of this node: op 17 element 12034; its inputs were finite");
}

TEST_F(NonfiniteReportTest, TellsOtherNodesAnAge) {
  auto report = report_of(origin_, "b", 7 * core::kSecond + 4'000);
  EXPECT_EQ(report.kind(), "nan");
  EXPECT_EQ(report.node(), "b");
  EXPECT_EQ(report.rank(), 1u);
  EXPECT_EQ(report.pid(), 4712);
  EXPECT_EQ(report.key().sequence(), 7u);
  EXPECT_EQ(report.element(), 12034u);
  EXPECT_EQ(report.age_us(), 2'000'004u);
  origin_.kind = Kind::kOverflow;
  origin_.rank = kNoRank;
  report = report_of(origin_, "b", 0);
  EXPECT_EQ(report.kind(), "overflow");
  EXPECT_FALSE(report.has_rank());
  EXPECT_EQ(report.age_us(), 0u);
}

}  // namespace
}  // namespace gradring::daemon
