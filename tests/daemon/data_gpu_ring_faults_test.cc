// What becomes of slices that go round the ring on GPUs when something is lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>
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

// It has failed at something else, say. What it does not begin is as if it had failed at that.
class DataGpuRingRefused : public DataGpuRing, public testing::WithParamInterface<size_t> {};

TEST_P(DataGpuRingRefused, NoOpEndsWellWithoutItsResult) {
  constexpr size_t kFloats = 10 * kLongSlice / sizeof(float);
  begin(kLongSlice, kFloats);
  a_.gpus->refuse_after(GetParam());
  submit_all();
  EXPECT_THAT(a_.data->next<EngineFailed>().failure.blame.evidence, HasSubstr("takes no more"));
  a_.data->post(FailJob{view_.incarnation, {Cause::kRefused, {}}});
  b_.data->post(FailJob{view_.incarnation, {Cause::kRefused, {}}});
  const std::vector<float> all = numbers(kFloats, 10);
  for (Node* node : {&a_, &a_, &b_, &b_}) {
    const auto ended = node->data->next<Completed>();
    if (ended.outcome.verdict != Verdict::kFailed) {
      EXPECT_EQ(ranks_[ended.session - 1000]->gpu, all);
    }
  }
}

// With ten slices each node begins ten sums, of half of which the other has the result to copy.
INSTANTIATE_TEST_SUITE_P(Everywhere, DataGpuRingRefused,
                         testing::Values(0, 1, 2, 5, 9, 12, 13, 14));

TEST_F(DataGpuRing, ADaemonThatEndsFreesNothingThatAGpuThatHangsIsAtWorkWith) {
  begin(kLongSlice, 20 * kLongSlice / sizeof(float));
  a_.gpus->let(0);
  submit_all();
  while (a_.gpus->allreduces().empty() && !HasFailure()) std::this_thread::sleep_for(1ms);
  a_.data.reset();
  EXPECT_TRUE(a_.gpus->busy());
  EXPECT_FALSE(a_.gpus->freed_at_work());
}

// A driver that is asked to give that one's memory back waits for the GPU, and for ever.
TEST_F(DataGpuRing, AJobThatEndsBesideOneWhoseGpuHangsKeepsNobodyElse) {
  begin(kLongSlice, 20 * kLongSlice / sizeof(float));
  a_.gpus->settle(true);
  a_.gpus->let(0);
  submit_all();
  while (a_.gpus->allreduces().empty() && !HasFailure()) std::this_thread::sleep_for(1ms);
  const auto sums = [&](uint8_t id) {
    const core::View other = view_of({{"a", 1}, {"b", 1}}, id);
    std::vector<float> x = numbers(100, 1), y = numbers(100, 2);
    for (Node* node : {&a_, &b_}) node->data->install(other);
    a_.data->submit(other, 0, x);
    b_.data->submit(other, 1, y);
    for (Node* node : {&a_, &b_}) {
      EXPECT_EQ(node->data->next<Completed>().outcome.verdict, Verdict::kOk);
    }
    std::this_thread::sleep_for(50ms);  // by then its memory on GPUs is there
    for (Node* node : {&a_, &b_}) node->data->post(RemoveJob{other.incarnation});
  };
  sums(2);
  sums(3);
  a_.gpus->let_all();
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

// Of what is final there alone nothing can be had any more, and nobody is told that it was.
class DataGpuRingLosesGpu : public DataGpuRing,
                            public testing::WithParamInterface<std::tuple<size_t, size_t>> {};

TEST_P(DataGpuRingLosesGpu, WhatCannotBeReadIsHandedToNobody) {
  constexpr size_t kFloats = 4 * kSliceBytes / sizeof(float);
  view_ = view_of({{"a", 1}, {"b", 1}}, 1);
  ranks_on_each_ = 1;
  begin(kLongSlice, kFloats);
  a_.gpus->let(std::get<0>(GetParam()));
  b_.gpus->let(std::get<1>(GetParam()));
  submit_all();
  std::this_thread::sleep_for(5ms);
  leave(0, "GPU-1234");
  freeze();  // once the GPUs have ended what they have begun
  a_.gpus->let_all();
  b_.gpus->let_all();
  adopt_without(0);
  std::this_thread::sleep_for(20ms);
  b_.data->post(FailJob{view_.incarnation, {Cause::kRefused, {}}});  // as a's control thread asks
  const Verdict verdict = b_.data->next<Completed>().outcome.verdict;
  if (verdict != Verdict::kFailed) {
    EXPECT_EQ(ranks_[1]->gpu, numbers(kFloats, 3));
  }
}

// With eight a would have sent all of its finals, and b its op behind it.
INSTANTIATE_TEST_SUITE_P(Everywhere, DataGpuRingLosesGpu,
                         testing::Combine(testing::Values(4, 5, 6, 7),
                                          testing::Range<size_t>(7, 14)));

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
