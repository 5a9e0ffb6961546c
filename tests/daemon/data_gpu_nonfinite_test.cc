// Where NaN and infinity come from, in sums that GPUs make: told as of the host's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/daemon/data_gpu.h"

namespace gradring::daemon {
namespace {

using testing::ElementsAre;
using Kind = NonfiniteOrigin::Kind;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr size_t kSecondPart = kPartBytes / sizeof(float) + 77;

template <typename Fixture>
class Nonfinite : public Fixture {
 protected:
  NonfiniteOrigin origin_on(DataNode& node) { return node.template next<NonfiniteFound>().origin; }
  // By rank of node a.
  std::vector<uint64_t> counted() {
    this->a_.post(DescribeJob{1, this->view_.incarnation});
    std::vector<uint64_t> counts;
    for (const RankActivity& rank : this->a_.template next<JobDescription>().ranks) {
      counts.push_back(rank.nonfinite);
    }
    return counts;
  }
  void expect_good_ends(uint32_t many) {
    for (uint32_t i = 0; i < many; ++i) EXPECT_EQ(this->end_on(this->a_), Verdict::kOk);
  }
};
using DataGpuNonfinite = Nonfinite<DataGpu>;
using DataGpuNonfiniteAlone = Nonfinite<DataGpuAlone>;

TEST_F(DataGpuNonfinite, ANanIsTheRanksWhoseInputHadIt) {
  y_.gpu[kSecondPart] = kNan;
  y_.gpu[kSecondPart + 9] = kInfinity;
  x_.gpu[kSecondPart + 5] = kInfinity;
  submit_all(5);
  const NonfiniteOrigin origin = origin_on(a_);
  EXPECT_EQ(origin.kind, Kind::kNan);
  EXPECT_EQ(origin.rank, 1u);
  EXPECT_EQ(origin.key, (OpKey{0, 5}));
  EXPECT_EQ(origin.element, kSecondPart);
  expect_good_ends(2);
  EXPECT_THAT(counted(), ElementsAre(1, 2));
  EXPECT_EQ(end_on(b_), Verdict::kOk) << "which says nothing of it";
  EXPECT_TRUE(std::isnan(x_.gpu[kSecondPart]));
}

TEST_F(DataGpuNonfinite, ASumThatOutgrowsItsTypeIsNobodys) {
  x_.gpu[kSecondPart] = y_.gpu[kSecondPart] = -kLargest;
  submit_all();
  const NonfiniteOrigin origin = origin_on(a_);
  EXPECT_EQ(origin.kind, Kind::kOverflow);
  EXPECT_EQ(origin.rank, kNoRank);
  EXPECT_EQ(origin.element, kSecondPart);
  expect_good_ends(2);
  EXPECT_THAT(counted(), ElementsAre(0, 0));
}

// By a factor of its own, which is finite as well.
TEST_F(DataGpuNonfinite, SoIsAProductThatDoes) {
  prescale_ = {1e30, 1};
  x_.gpu[kSecondPart] = 1e20f;
  submit_all();
  EXPECT_EQ(origin_on(a_).kind, Kind::kOverflow);
  expect_good_ends(2);
  EXPECT_THAT(counted(), ElementsAre(0, 0));
}

TEST_F(DataGpuNonfinite, WhereEachIsCopiedForItselfTheHostSeesIt) {
  gpus_->cannot_sum_together();
  x_.gpu[kSecondPart] = -kInfinity;
  submit_all();
  const NonfiniteOrigin origin = origin_on(a_);
  EXPECT_EQ(origin.kind, Kind::kInfinity);
  EXPECT_EQ(origin.rank, 0u);
  EXPECT_EQ(origin.element, kSecondPart);
  expect_good_ends(2);
  EXPECT_THAT(counted(), ElementsAre(1, 0));
}

TEST_F(DataGpuNonfinite, SoItIsWhereOneRankHasAllOfTheNode) {
  view_ = view_of({{"a", 1}, {"b", 1}}, 6);
  a_.install(view_);
  b_.install(view_);
  x_.gpu[kSecondPart] = kNan;
  submit(0, x_);
  b_.submit(view_, 1, z_, 0);
  const NonfiniteOrigin origin = origin_on(a_);
  EXPECT_EQ(origin.kind, Kind::kNan);
  EXPECT_EQ(origin.rank, 0u);
  EXPECT_EQ(origin.element, kSecondPart);
  expect_good_ends(1);
  EXPECT_THAT(counted(), ElementsAre(1));
}

// The sum is written over the inputs.
TEST_F(DataGpuNonfiniteAlone, OfWhatStaysOnTheGpusToo) {
  begin();
  x_.gpu[kSecondPart] = kInfinity;
  y_.gpu[kSecondPart] = kNan;
  y_.gpu[kFloats - 1] = kNan;
  submit(0, x_, 7);
  submit(1, y_, 7);
  const NonfiniteOrigin origin = origin_on(a_);
  EXPECT_EQ(origin.kind, Kind::kInfinity);
  EXPECT_EQ(origin.rank, 0u) << "of two the first";
  EXPECT_EQ(origin.key, (OpKey{0, 7}));
  EXPECT_EQ(origin.element, kSecondPart);
  expect_good_ends(2);
  EXPECT_THAT(counted(), ElementsAre(1, 2));
  EXPECT_FALSE(gpus_->allreduces().empty());
}

TEST_F(DataGpuNonfiniteAlone, AResultThatItsFactorSpoilsIsAnOverflow) {
  begin();
  postscale_ = 1e30;
  x_.gpu[kSecondPart] = 1e20f;
  submit(0, x_);
  submit(1, y_);
  EXPECT_EQ(origin_on(a_).kind, Kind::kOverflow);
  expect_good_ends(2);
}

// Its elements are those of the input.
TEST_F(DataGpuNonfiniteAlone, OfAScatterTheElementIsThatOfTheInput) {
  begin();
  std::vector<float> results_of[2];
  std::vector<SlowGpus::Memory> memories;
  for (std::vector<float>& results : results_of) {
    results.resize(kFloats / 2);
    memories.emplace_back(&results);
  }
  const size_t bad = kFloats / 2 + 3;
  y_.gpu[bad] = kNan;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Rank& of = rank == 0 ? x_ : y_;
    core::Submission one = submission(rank, 0);
    one.position = rank;
    one.signature.collective = Collective::kReduceScatter;
    one.signature.count = kFloats / 2;
    one.signature.ranks = 2;
    auto* const host = reinterpret_cast<std::byte*>(of.host.data());
    Submit submit{rank + 1000, view_.incarnation, one, host, host};
    submit.part_bytes = kPartBytes;
    submit.gpu_input = {&of.memory, 0};
    submit.gpu_output = {&memories[rank], 0};
    a_.post(submit);
  }
  const NonfiniteOrigin origin = origin_on(a_);
  EXPECT_EQ(origin.rank, 1u);
  EXPECT_EQ(origin.element, bad);
  expect_good_ends(2);
  EXPECT_TRUE(std::isnan(results_of[1][3]));
}

}  // namespace
}  // namespace gradring::daemon
