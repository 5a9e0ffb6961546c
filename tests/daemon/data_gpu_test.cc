// What a node's ranks have on its GPUs is summed there, and goes to other nodes as one.

#include "tests/daemon/data_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace gradring::daemon {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(DataGpu, WhatRanksHaveThereGoesAsOne) {
  for (uint64_t step = 0; step < 3; ++step) {
    x_.gpu = numbers(kFloats, 1);
    y_.gpu = numbers(kFloats, 2);
    z_ = numbers(kFloats, 3);
    submit_all(step);
    for (DataNode* node : {&a_, &a_, &b_}) EXPECT_EQ(end_on(*node), Verdict::kOk);
    EXPECT_EQ(x_.gpu, sum_);
    EXPECT_EQ(y_.gpu, sum_);
    EXPECT_EQ(z_, sum_);
  }
  EXPECT_THAT(y_.host, Each(kUntouched)) << "rank 0's stands for both";
  EXPECT_THAT(gpus_->sums(), Each(2));
  EXPECT_THAT(gpus_->spreads(), Each(2));
  EXPECT_GE(gpus_->sums().size(), 3 * 4u) << "in parts";
}

TEST_F(DataGpu, OneInputMayBeGivenToSeveralAtOnce) {
  Rank sum_x{0}, sum_y{0}, most_x{0}, most_y{0};
  std::vector<float> z = z_;
  submit(0, x_, sum_x, 0);
  submit(1, y_, sum_y, 0);
  op_ = ReduceOp::kMax;
  submit(0, x_, most_x, 1);
  submit(1, y_, most_y, 1);
  while ((gpus_->sums().size() < 2 * 4 || gpus_->busy()) && !HasFailure()) {
    std::this_thread::sleep_for(1ms);
  }
  auto* const bytes = reinterpret_cast<std::byte*>(z.data());
  b_.post(Submit{1002, view_.incarnation, submission(2, 1), bytes, bytes});
  b_.submit(view_, 2, z_, 0);
  for (int i = 0; i < 2; ++i) {
    for (DataNode* node : {&a_, &a_, &b_}) EXPECT_EQ(end_on(*node), Verdict::kOk);
  }
  EXPECT_EQ(sum_x.gpu, sum_);
  EXPECT_EQ(sum_y.gpu, sum_);
  EXPECT_EQ(most_x.gpu, numbers(kFloats, 3));
  EXPECT_EQ(most_y.gpu, most_x.gpu);
  EXPECT_THAT(gpus_->sums(), Each(2));
}

TEST_F(DataGpuAlone, NothingLeavesTheGpus) {
  begin();
  submit(0, x_);
  submit(1, y_);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(x_.gpu, numbers(kFloats, 3));
  EXPECT_EQ(y_.gpu, x_.gpu);
  EXPECT_THAT(x_.host, Each(kUntouched));
  EXPECT_THAT(gpus_->allreduces(), Each(2));
  EXPECT_THAT(gpus_->sums(), IsEmpty());
  EXPECT_THAT(gpus_->spreads(), IsEmpty());
}

TEST_F(DataGpuAlone, AnAverageIsDividedThere) {
  begin();
  op_ = ReduceOp::kAverage;
  submit(0, x_);
  submit(1, y_);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(x_.gpu, numbers(kFloats, 1.5));
  EXPECT_EQ(y_.gpu, x_.gpu);
}

// Its inputs are being overwritten, so that nothing could be summed anew.
TEST_F(DataGpuAlone, ADeathInTheMidstChangesNothingAnyMore) {
  begin("elastic min=1 max=2");
  gpus_->let(1);
  submit(0, x_);
  submit(1, y_);
  until_begun(2);
  leave(1);
  EXPECT_TRUE(a_.next<EngineAbsent>().absence.unfinished);
  a_.post(FreezeJob{view_.incarnation, view_.epoch});
  a_.post(DescribeJob{1, view_.incarnation});
  a_.next<JobDescription>();
  EXPECT_TRUE(gpus_->busy()) << "it is waited for";
  gpus_->let_all();
  EXPECT_TRUE(a_.next<JobFrozen>().report->ops.empty()) << "it is complete";
  EXPECT_EQ(x_.gpu, numbers(kFloats, 3));
}

TEST_F(DataGpu, WhereOneHasNoneThereEachIsCopiedForItself) {
  std::vector<float> y = numbers(kFloats, 2);
  submit(0, x_);
  a_.submit(view_, 1, y);
  b_.submit(view_, 2, z_);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(x_.gpu, sum_);
  EXPECT_EQ(y, sum_);
  EXPECT_THAT(gpus_->sums(), Each(1));
}

TEST_F(DataGpu, WhereNoGpuReachesAllOthersToo) {
  gpus_->cannot_sum_together();
  submit_all();
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(x_.gpu, sum_);
  EXPECT_EQ(y_.gpu, sum_);
  EXPECT_THAT(gpus_->sums(), Each(1));
}

// However large the op: a driver that was given too much makes whoever gives more wait.
TEST_F(DataGpu, NoMoreIsBegunThanKeepsAGpuBusy) {
  constexpr size_t kParts = 30;
  for (Rank* rank : {&x_, &y_}) {
    rank->gpu = numbers(kParts * kPartBytes / sizeof(float), rank == &x_ ? 1 : 2);
    rank->host.assign(rank->gpu.size(), kUntouched);
  }
  z_ = numbers(x_.gpu.size(), 3);
  const std::vector<float> sum = numbers(x_.gpu.size(), 6);
  submit_all();
  for (DataNode* node : {&a_, &a_, &b_}) EXPECT_EQ(end_on(*node), Verdict::kOk);
  EXPECT_EQ(x_.gpu, sum);
  EXPECT_EQ(y_.gpu, sum);
  EXPECT_EQ(gpus_->sums().size(), kParts);
  EXPECT_LE(gpus_->most(), 8u) << "four sums, and four results";
}

TEST_F(DataGpu, APartGoesRoundWhileTheNextIsSummed) {
  gpus_->let(1);
  submit_all();
  until_final_on_b(kPartBytes / kSliceBytes / 2);
  EXPECT_LT(final_slices(b_), 2 * kPartBytes / kSliceBytes) << "the rest is not summed yet";
  EXPECT_EQ(x_.gpu, numbers(kFloats, 1)) << "nothing was spread";
  gpus_->let_all();
  EXPECT_EQ(end_on(b_), Verdict::kOk);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(x_.gpu, sum_);
}

// The trainer must not be told before its GPU has the result.
TEST_F(DataGpu, AnEndWaitsUntilTheResultIsThere) {
  gpus_->let(4);  // the sums
  submit_all();
  EXPECT_EQ(end_on(b_), Verdict::kOk);
  until_over_on_a();  // for other nodes it is
  EXPECT_EQ(x_.gpu, numbers(kFloats, 1));
  gpus_->let_all();
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(x_.gpu, sum_);
  EXPECT_EQ(y_.gpu, sum_);
}

// What is final has its part, the rest is summed without it: by all from the same values.
TEST_F(DataGpu, AfterADeathSumsAreMadeWithoutTheDead) {
  view_.policy = "elastic min=1 max=3";
  view_.incarnation[0] = 3;
  a_.install(view_);
  b_.install(view_);
  gpus_->let(1);
  submit_all();
  until_final_on_b(kPartBytes / kSliceBytes / 2);
  leave(1);
  EXPECT_TRUE(a_.next<EngineAbsent>().absence.unfinished);
  const float before = y_.gpu.back();
  next_epoch(1);
  gpus_->let_all();
  std::vector<Completed> ends = {a_.next<Completed>(), a_.next<Completed>(), b_.next<Completed>()};
  for (const Completed& end : ends) {
    EXPECT_EQ(end.outcome.verdict, Verdict::kOkShrunk);
    EXPECT_EQ(end.outcome.ranks_min, 2u);
    EXPECT_EQ(end.outcome.ranks_max, 3u);
  }
  EXPECT_EQ(x_.gpu, z_);
  EXPECT_EQ(y_.gpu.back(), before) << "nobody has use for it there";
  const std::vector<float> without = numbers(kFloats, 4);
  size_t whole = 0;
  for (size_t i = 0; i < kFloats; ++i) {
    ASSERT_TRUE(z_[i] == sum_[i] || z_[i] == without[i]) << i;
    whole += z_[i] == sum_[i] && sum_[i] != without[i] ? 1 : 0;
  }
  EXPECT_GT(whole, 0u);
  EXPECT_EQ(z_.back(), without.back());
  EXPECT_THAT(gpus_->sums(), Contains(1));
}

// A GPU that is lost is asked for nothing any more, neither before the next epoch nor after.
TEST_F(DataGpu, OfARankWhoseGpuIsLostNothingIsRead) {
  view_.policy = "elastic min=1 max=3";
  view_.incarnation[0] = 7;
  a_.install(view_);
  b_.install(view_);
  submit(1, y_);
  leave(1, "GPU-1234");
  EXPECT_TRUE(a_.next<EngineAbsent>().absence.unfinished);
  submit(0, x_);
  b_.submit(view_, 2, z_);
  std::this_thread::sleep_for(20ms);
  EXPECT_THAT(gpus_->sums(), IsEmpty());
  next_epoch(1);
  for (DataNode* node : {&a_, &a_, &b_}) EXPECT_EQ(end_on(*node), Verdict::kOkShrunk);
  EXPECT_EQ(x_.gpu, numbers(kFloats, 4));
  EXPECT_EQ(z_, x_.gpu);
  EXPECT_THAT(gpus_->sums(), Each(1));
}

// What is under way when it is lost ends as it can, and nothing more is begun there.
TEST_F(DataGpu, OfARankWhoseGpuIsLostInTheMidstNothingMoreIsRead) {
  view_.policy = "elastic min=1 max=3";
  view_.incarnation[0] = 8;
  a_.install(view_);
  b_.install(view_);
  gpus_->let(1);
  part_bytes_ = kSliceBytes;  // more parts than are begun at once
  submit_all();
  until_final_on_b(1);
  leave(1, "GPU-1234");
  EXPECT_TRUE(a_.next<EngineAbsent>().absence.unfinished);
  const size_t begun = gpus_->sums().size();
  gpus_->let_all();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(gpus_->sums().size(), begun);
  next_epoch(1);
  for (DataNode* node : {&a_, &a_, &b_}) EXPECT_EQ(end_on(*node), Verdict::kOkShrunk);
  EXPECT_EQ(x_.gpu, z_);
  const std::vector<size_t> sums = gpus_->sums();
  EXPECT_THAT(std::vector<size_t>(sums.begin() + static_cast<ptrdiff_t>(begun), sums.end()),
              Each(1));
}

// Rank 0's memory stands for both, also when it is the one that dies.
TEST_F(DataGpu, AfterTheDeathOfWhoseMemoryStandsForAll) {
  view_.policy = "elastic min=1 max=3";
  view_.incarnation[0] = 4;
  a_.install(view_);
  b_.install(view_);
  gpus_->let(2);
  submit(1, x_);  // so that the dead one is the first of the node
  Rank& dead = y_;
  submit(0, dead);
  b_.submit(view_, 2, z_);
  until_final_on_b(kPartBytes / kSliceBytes / 2);
  leave(0);
  a_.next<EngineAbsent>();
  next_epoch(0);
  gpus_->let_all();
  EXPECT_EQ(end_on(b_), Verdict::kOkShrunk);
  EXPECT_EQ(end_on(a_), Verdict::kOkShrunk);
  EXPECT_EQ(end_on(a_), Verdict::kOkShrunk);
  EXPECT_EQ(x_.gpu, z_);
  EXPECT_EQ(z_.back(), numbers(kFloats, 4).back()) << "1 + 3";
}

TEST_F(DataGpu, AGpuThatFailsIsNamedByTheJobsEnd) {
  gpus_->let(1);
  submit_all();
  until_final_on_b(1);
  gpus_->fail("CUDA_ERROR_ILLEGAL_ADDRESS");
  const auto failed = a_.next<EngineFailed>();
  EXPECT_EQ(failed.failure.blame.node, "a");
  EXPECT_THAT(describe(failed.failure), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  a_.post(FailJob{view_.incarnation, failed.failure});
  EXPECT_EQ(end_on(a_), Verdict::kFailed);
  EXPECT_EQ(end_on(a_), Verdict::kFailed);
}

// For others it ended well; here it did not.
TEST_F(DataGpu, AResultThatAGpuDoesNotTakeIsNotToldToBeThere) {
  gpus_->let(4);  // the sums
  submit_all();
  EXPECT_EQ(end_on(b_), Verdict::kOk);
  gpus_->fail("CUDA_ERROR_UNKNOWN");
  const auto end = a_.next<Completed>();
  EXPECT_EQ(end.outcome.verdict, Verdict::kFailed);
  EXPECT_THAT(end.outcome.failure.blame.evidence, HasSubstr("not on its GPU: CUDA_ERROR_UNKNOWN"));
}

// The op has ended everywhere, and who waits for it would do so for ever.
TEST_F(DataGpu, AGpuThatHangsWithAResultEndsTheJobInWords) {
  gpus_->let(4);  // the sums
  submit_all();
  EXPECT_EQ(end_on(b_), Verdict::kOk);
  const auto failed = a_.next<EngineFailed>();
  EXPECT_THAT(describe(failed.failure), HasSubstr("not ended within 0.5 s what it was given"));
  a_.post(FailJob{view_.incarnation, failed.failure});
  for (int rank = 0; rank < 2; ++rank) {
    const auto end = a_.next<Completed>();
    EXPECT_EQ(end.outcome.verdict, Verdict::kFailed);
    EXPECT_THAT(end.outcome.failure.blame.evidence, HasSubstr("not on its GPU"));
  }
  a_.post(RemoveJob{view_.incarnation});
  EXPECT_TRUE(gpus_->busy());
  gpus_->let_all();  // later than anybody waits for
}

TEST_F(DataGpu, OpsOfAJobThatIsRemovedWaitForNoGpuThatHangs) {
  gpus_->let(0);
  submit_all();
  while (gpus_->sums().size() < 4 && !HasFailure()) std::this_thread::sleep_for(1ms);
  a_.post(RemoveJob{view_.incarnation});
  EXPECT_EQ(end_on(a_), Verdict::kFailed);
  EXPECT_EQ(end_on(a_), Verdict::kFailed);
  EXPECT_TRUE(gpus_->busy());
  gpus_->let_all();
}

// Whoever was lent memory gives it back first.
TEST_F(DataGpu, AJobThatIsRemovedEndsWhenItsGpusAreDone) {
  gpus_->let(0);
  submit_all();
  while (gpus_->sums().size() < 4 && !HasFailure()) std::this_thread::sleep_for(1ms);
  a_.post(RemoveJob{view_.incarnation});
  a_.post(DescribeJob{1, view_.incarnation});
  EXPECT_FALSE(a_.next<JobDescription>().found);
  EXPECT_TRUE(gpus_->busy());
  gpus_->let_all();
  EXPECT_EQ(end_on(a_), Verdict::kFailed);
  EXPECT_EQ(end_on(a_), Verdict::kFailed);
  EXPECT_THAT(gpus_->spreads(), IsEmpty());
  EXPECT_EQ(x_.gpu, numbers(kFloats, 1));
}

// Where a job grows all keys begin anew, and a rank is another process, whose tickets are its own.
// Of the rank before a GPU may still have something to do.
TEST_F(DataGpu, AKeyThatBeginsAnewWaitsForWhatIsDoneForTheOldOp) {
  for (const uint64_t ticket : {1u, 9u}) {
    view_ = view_of({{"a", 2}, {"b", 1}}, static_cast<uint8_t>(10 + ticket));
    view_.policy = "elastic min=1 max=3";
    a_.install(view_);
    b_.install(view_);
    x_.gpu = numbers(kFloats, 1);
    y_.gpu = numbers(kFloats, 2);
    z_ = numbers(kFloats, 3);
    gpus_->let(4);  // the sums
    submit_all();
    EXPECT_EQ(end_on(b_), Verdict::kOk);
    until_over_on_a();
    grow();
    Rank x{10}, y{20};
    submit(0, x, x, 0, 2000, ticket);
    submit(1, y, y, 0, 2001, ticket);
    z_ = numbers(kFloats, 30);
    b_.submit(view_, 2, z_);
    a_.post(DescribeJob{1, view_.incarnation});
    a_.next<JobDescription>();
    gpus_->let_all();
    std::multiset<SessionId> told;
    for (int i = 0; i < 4; ++i) {
      const auto end = a_.next<Completed>();
      EXPECT_EQ(end.outcome.verdict, Verdict::kOk) << describe(end.outcome.failure);
      told.insert(end.session);
    }
    EXPECT_EQ(told, (std::multiset<SessionId>{1000, 1001, 2000, 2001}));
    EXPECT_EQ(end_on(b_), Verdict::kOk);
    EXPECT_EQ(x_.gpu, sum_);
    EXPECT_EQ(y_.gpu, sum_);
    EXPECT_EQ(x.gpu, numbers(kFloats, 60));
    EXPECT_EQ(y.gpu, x.gpu);
    EXPECT_EQ(z_, x.gpu);
  }
}

TEST_F(DataGpu, WhatTheEngineRefusesLeavesTheOpenOneAlone) {
  gpus_->let(0);
  submit(0, x_);
  core::Submission again = submission(0, 0);
  again.ticket = 77;
  Submit once_more{1000, view_.incarnation, again, nullptr, nullptr};
  once_more.gpu_input = once_more.gpu_output = {&x_.memory, 0};
  a_.post(once_more);
  const auto refused = a_.next<Completed>();
  EXPECT_EQ(refused.outcome.failure.cause, Cause::kRefused);
  submit(1, y_);
  b_.submit(view_, 2, z_);
  gpus_->let_all();
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(x_.gpu, sum_);
  EXPECT_EQ(y_.gpu, sum_);
}

}  // namespace
}  // namespace gradring::daemon
