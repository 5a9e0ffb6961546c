// Reduce-scatters and allgathers of a job that is on one node, from GPU to GPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/daemon/gpu_block_rank.h"
#include "tests/daemon/gpu_nodes.h"

namespace gradring::daemon {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

class DataGpuThere : public GpuNodes {
 protected:
  static constexpr uint32_t kRanks = 3;
  static constexpr size_t kBlock = 2 * kPartBytes / sizeof(float) + 1000;
  static constexpr size_t kAll = kRanks * kBlock;

  void begin(Collective collective, const std::string& policy = "fail") {
    view_ = view_of({{"a", kRanks}}, 2);
    view_.policy = policy;
    a_.install(view_);
    collective_ = collective;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ranks_.at(rank) = std::make_unique<GpuBlockRank>(rank, kRanks, collective, kBlock);
      ranks_.at(rank)->takes_on(rank);
    }
  }
  Submit part_of(uint32_t number) {
    GpuBlockRank& rank = *ranks_.at(number);
    core::Submission submission;
    submission.rank = submission.position = number;
    submission.ticket = 1;
    const bool sums = collective_ == Collective::kReduceScatter;
    submission.signature = {collective_, Dtype::kFloat32, sums ? op_ : ReduceOp::kNone, 0, kBlock};
    submission.signature.ranks = kRanks;
    Submit submit{number + 1000, view_.incarnation, submission, bytes_of(rank.input),
                  bytes_of(rank.output)};
    submit.part_bytes = kPartBytes;
    return submit;
  }
  void submit_on_host(uint32_t number) { a_.post(part_of(number)); }
  // `in_place`: the own block of the longer one.
  void submit(uint32_t number, bool in_place = false) {
    Submit submit = part_of(number);
    ranks_.at(number)->lend(&submit, in_place);
    a_.post(submit);
  }
  void expect_good_ends(uint32_t many = kRanks) {
    for (uint32_t i = 0; i < many; ++i) EXPECT_EQ(end_on(a_), Verdict::kOk);
  }
  void expect_nothing_left_the_gpus() {
    EXPECT_THAT(gpus_->sums(), IsEmpty());
    EXPECT_THAT(gpus_->spreads(), IsEmpty());
    for (const auto& rank : ranks_) EXPECT_TRUE(rank->never_by_host());
  }
  static std::vector<float> block_of(uint32_t rank, float factor) {
    const std::vector<float> all = numbers(kAll, factor);
    const auto first = all.begin() + static_cast<ptrdiff_t>(rank * kBlock);
    return {first, first + kBlock};
  }
  static std::vector<float> all_blocks() {
    std::vector<float> all;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const std::vector<float> block = numbers(kBlock, static_cast<float>(rank + 1));
      all.insert(all.end(), block.begin(), block.end());
    }
    return all;
  }

  Collective collective_ = Collective::kReduceScatter;
  ReduceOp op_ = ReduceOp::kSum;
  std::array<std::unique_ptr<GpuBlockRank>, kRanks> ranks_;
};

TEST_F(DataGpuThere, BlocksOfAScatterAreSummedWhereTheyAreWanted) {
  begin(Collective::kReduceScatter);
  for (uint32_t rank = 0; rank < kRanks; ++rank) submit(rank);
  expect_good_ends();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks_[rank]->output, block_of(rank, 6));
    EXPECT_EQ(ranks_[rank]->input, numbers(kAll, static_cast<float>(rank + 1)));
  }
  EXPECT_THAT(gpus_->allreduces(), Each(kRanks));
  expect_nothing_left_the_gpus();
}

TEST_F(DataGpuThere, AnAverageIsDivided) {
  op_ = ReduceOp::kAverage;
  begin(Collective::kReduceScatter);
  for (uint32_t rank = 0; rank < kRanks; ++rank) submit(rank);
  expect_good_ends();
  EXPECT_EQ(ranks_[2]->output, block_of(2, 2));
}

TEST_F(DataGpuThere, BlocksThatAreGatheredGoFromOneToAll) {
  begin(Collective::kAllgather);
  for (uint32_t rank = 0; rank < kRanks; ++rank) submit(rank);
  expect_good_ends();
  for (const auto& rank : ranks_) EXPECT_EQ(rank->output, all_blocks());
  EXPECT_THAT(gpus_->allreduces(), Each(1));
  expect_nothing_left_the_gpus();
}

TEST_F(DataGpuThere, InPlaceToo) {
  begin(Collective::kReduceScatter);
  for (uint32_t rank = 0; rank < kRanks; ++rank) submit(rank, true);
  expect_good_ends();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks_[rank]->result(), block_of(rank, 6));
  }
  expect_nothing_left_the_gpus();
}

TEST_F(DataGpuThere, GatheredInPlaceToo) {
  begin(Collective::kAllgather);
  for (uint32_t rank = 0; rank < kRanks; ++rank) submit(rank, rank != 1);
  expect_good_ends();
  for (const auto& rank : ranks_) EXPECT_EQ(rank->output, all_blocks());
  expect_nothing_left_the_gpus();
}

TEST_F(DataGpuThere, OfAScatterWhereOneHasNoneThereEachGoesByItsOwnHost) {
  begin(Collective::kReduceScatter);
  submit(0);
  submit_on_host(1);
  submit(2);
  expect_good_ends();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks_[rank]->output, block_of(rank, 6)) << rank;
  }
  EXPECT_THAT(gpus_->allreduces(), IsEmpty());
}

TEST_F(DataGpuThere, OfWhatIsGatheredWhereOneHasNoneThereEachGoesByItsOwnHost) {
  begin(Collective::kAllgather);
  submit_on_host(0);
  submit(1);
  submit(2);
  expect_good_ends();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks_[rank]->output, all_blocks()) << rank;
  }
  EXPECT_THAT(gpus_->allreduces(), IsEmpty());
}

TEST_F(DataGpuThere, WhereNoGpuReachesAllOthersToo) {
  begin(Collective::kReduceScatter);
  gpus_->cannot_sum_together();
  for (uint32_t rank = 0; rank < kRanks; ++rank) submit(rank);
  expect_good_ends();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks_[rank]->output, block_of(rank, 6));
  }
}

// Who is gone is given nothing any more, and nobody waits for what it was to get.
TEST_F(DataGpuThere, ABlockThatNobodyTakesIsNotWaitedFor) {
  begin(Collective::kReduceScatter, "elastic min=1 max=3");
  gpus_->let(0);
  for (uint32_t rank = 0; rank < kRanks; ++rank) submit(rank);
  while (gpus_->allreduces().empty() && !HasFailure()) std::this_thread::sleep_for(1ms);
  leave(1);
  a_.next<EngineAbsent>();
  a_.post(FreezeJob{view_.incarnation, view_.epoch});
  gpus_->let_all();
  EXPECT_TRUE(a_.next<JobFrozen>().report->ops.empty()) << "it is complete";
  EXPECT_EQ(ranks_[0]->output, block_of(0, 6));
  EXPECT_EQ(ranks_[2]->output, block_of(2, 6));
  EXPECT_NE(ranks_[1]->output, block_of(1, 6)) << "some of it had not begun";
}

// Nobody has the rest of what is needed of all.
TEST_F(DataGpuThere, AGpuThatIsLostInTheMidstEndsAScatterAlone) {
  begin(Collective::kReduceScatter, "elastic min=1 max=3");
  gpus_->let(1);
  for (uint32_t rank = 0; rank < kRanks; ++rank) submit(rank);
  while (gpus_->allreduces().size() < 2 && !HasFailure()) std::this_thread::sleep_for(1ms);
  leave(1, "GPU-1234");
  EXPECT_TRUE(a_.next<EngineAbsent>().absence.unfinished);
  gpus_->let_all();
  next_epoch(1);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const core::Outcome outcome = a_.next<Completed>().outcome;
    EXPECT_EQ(outcome.failure.cause, Cause::kRootLost) << rank;
    EXPECT_EQ(outcome.failure.blame.rank, 1u) << rank;
  }
}

TEST_F(DataGpuThere, OfGpusThatDoNotComeToRestTheJobHears) {
  begin(Collective::kReduceScatter, "elastic min=1 max=3");
  gpus_->let(0);
  for (uint32_t rank = 0; rank < kRanks; ++rank) submit(rank);
  while (gpus_->allreduces().empty() && !HasFailure()) std::this_thread::sleep_for(1ms);
  leave(1);
  a_.next<EngineAbsent>();
  const auto asked = std::chrono::steady_clock::now();
  a_.post(FreezeJob{view_.incarnation, view_.epoch});
  const Failure failure = a_.next<EngineFailed>().failure;
  EXPECT_GE(std::chrono::steady_clock::now() - asked, std::chrono::nanoseconds(kGpusRestWithin));
  EXPECT_EQ(failure.blame.node, "a");
  EXPECT_EQ(failure.blame.device, "GPU");
  EXPECT_THAT(failure.blame.evidence, HasSubstr("has not ended within 0.5 s"));

  // Its memory goes home when they have let go of it after all.
  a_.post(FailJob{view_.incarnation, failure});
  gpus_->let_all();
  for (const SessionId session : {1000, 1002}) {
    const auto of_it = [session](const Completed& end) { return end.session == session; };
    EXPECT_EQ(a_.next<Completed>(of_it).outcome.verdict, Verdict::kFailed);
  }
}

}  // namespace
}  // namespace gradring::daemon
