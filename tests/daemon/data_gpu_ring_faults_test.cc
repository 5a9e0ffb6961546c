// What becomes of slices that go round the ring on GPUs when something is lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "tests/daemon/gpu_ring_nodes.h"

namespace gradring::daemon {
namespace {

using testing::Each;
using testing::HasSubstr;

TEST_F(DataGpuRing, AGpuThatFailsEndsTheJobInWords) {
  begin(kLongSlice, 20 * kLongSlice / sizeof(float));
  a_.gpus->let(3);
  submit_all();
  std::this_thread::sleep_for(10ms);
  a_.gpus->fail("it fell off the bus");
  EXPECT_THAT(a_.data->next<EngineFailed>().failure.blame.evidence, HasSubstr("fell off the bus"));
  a_.data->post(FailJob{view_.incarnation, {Cause::kRefused, {}}});
  b_.data->post(FailJob{view_.incarnation, {Cause::kRefused, {}}});
  for (Node* node : {&a_, &a_, &b_, &b_}) {
    EXPECT_EQ(node->data->next<Completed>().outcome.verdict, Verdict::kFailed);
  }
}

// Its memory may be anything by then, or the GPU that reads it fails.
TEST_F(DataGpuRing, OfARankWhoseGpuIsLostNothingMoreIsRead) {
  constexpr size_t kFloats = 30 * kLongSlice / sizeof(float);
  begin(kLongSlice, kFloats, true, "elastic min=1 max=4");
  b_.gpus->let(0);
  submit_all();
  while (a_.gpus->allreduces().empty() && !HasFailure()) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
  leave(1, "GPU-1234");
  EXPECT_TRUE(a_.data->next<EngineAbsent>().absence.unfinished);
  const size_t begun = a_.gpus->allreduces().size();
  std::fill(ranks_[1]->gpu.begin(), ranks_[1]->gpu.end(), std::numeric_limits<float>::quiet_NaN());
  b_.gpus->let_all();
  std::this_thread::sleep_for(20ms);
  const std::vector<size_t> all_begun = a_.gpus->allreduces();
  EXPECT_THAT(
      std::vector<size_t>(all_begun.begin() + static_cast<ptrdiff_t>(begun), all_begun.end()),
      Each(1))
      << "what is final is copied";
  next_epoch(1);
  for (Node* node : {&a_, &a_, &b_, &b_}) {
    const Verdict verdict = node->data->next<Completed>().outcome.verdict;
    EXPECT_TRUE(verdict == Verdict::kOk || verdict == Verdict::kOkShrunk);
  }
  const std::vector<float> all = numbers(kFloats, 10), without = numbers(kFloats, 8);
  for (const uint32_t rank : {0, 2, 3}) {
    for (size_t i = 0; i < kFloats; ++i) {
      const float value = ranks_[rank]->gpu[i];
      ASSERT_TRUE(value == all[i] || value == without[i]) << "rank " << rank << ", element " << i;
    }
    EXPECT_EQ(ranks_[rank]->gpu, ranks_[0]->gpu);
  }
}

// What was final stays so, and the rest is made anew from inputs that nothing has touched: wherever
// the epoch ends.
class DataGpuRingLoses : public DataGpuRing, public testing::WithParamInterface<size_t> {};

TEST_P(DataGpuRingLoses, ARankThatDiesCountsInWhatIsFinalAlone) {
  constexpr size_t kFloats = 30 * kLongSlice / sizeof(float);
  begin(kLongSlice, kFloats, true, "elastic min=1 max=4");
  a_.gpus->let(GetParam());
  b_.gpus->let(GetParam() * 2);
  submit_all();
  std::this_thread::sleep_for(5ms);
  leave(3);
  a_.gpus->let_all();
  b_.gpus->let_all();
  next_epoch(3);
  for (Node* node : {&a_, &a_, &b_, &b_}) {
    const Verdict verdict = node->data->next<Completed>().outcome.verdict;
    EXPECT_TRUE(verdict == Verdict::kOk || verdict == Verdict::kOkShrunk);
  }
  const std::vector<float> all = numbers(kFloats, 10), without = numbers(kFloats, 6);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (size_t i = 0; i < kFloats; ++i) {
      const float value = ranks_[rank]->gpu[i];
      ASSERT_TRUE(value == all[i] || value == without[i]) << "rank " << rank << ", element " << i;
    }
    EXPECT_EQ(ranks_[rank]->gpu, ranks_[0]->gpu);
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, DataGpuRingLoses,
                         testing::Values(0, 1, 2, 3, 5, 8, 13, 21, 34));

}  // namespace
}  // namespace gradring::daemon
