// Of a reduce-scatter GPUs sum the inputs, of an allgather they spread the result.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/daemon/gpu_nodes.h"

namespace gradring::daemon {
namespace {

using testing::Each;
using testing::IsEmpty;

constexpr uint32_t kRanks = 3;
constexpr size_t kBlock = 2 * kPartBytes / sizeof(float) + 1000;
constexpr size_t kAll = kRanks * kBlock;

class DataGpuBlocks : public GpuNodes {
 protected:
  // What a rank gives and gets: on a GPU, with shadows on the host, or on the host.
  struct Rank {
    Rank(size_t given, size_t taken, float factor)
        : input(numbers(given, factor)),
          output(taken, kUntouched),
          input_shadow(given, kUntouched),
          output_shadow(taken, kUntouched) {}
    std::vector<float> input, output, input_shadow, output_shadow;
    SlowGpus::Memory input_memory{&input}, output_memory{&output};
  };
  void begin(Collective collective,
             const std::vector<uint64_t>& counts = {kBlock, kBlock, kBlock}) {
    collective_ = collective;
    counts_ = counts;
    const bool scatters = collective == Collective::kReduceScatter;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const size_t own = counts.at(rank);
      ranks_.at(rank) = std::make_unique<Rank>(scatters ? kAll : own, scatters ? own : kAll,
                                               static_cast<float>(rank + 1));
    }
  }
  static std::byte* bytes_of(std::vector<float>& values) {
    return reinterpret_cast<std::byte*>(values.data());
  }
  Submit part_of(uint32_t number, uint64_t sequence) {
    Rank& rank = *ranks_.at(number);
    core::Submission submission;
    submission.rank = submission.position = number;
    submission.ticket = sequence + 1;
    submission.key = {0, sequence};
    const bool sums = collective_ == Collective::kReduceScatter;
    submission.signature = {collective_, Dtype::kFloat32, sums ? ReduceOp::kSum : ReduceOp::kNone,
                            0, kBlock};
    submission.signature.ranks = kRanks;
    if (counts_[0] != counts_[1]) {
      submission.signature.blocks = *Blocks::of_ranks(counts_);
      submission.signature.count = submission.signature.blocks.longest();
    }
    Submit submit{number + 1000, view_.incarnation, submission, bytes_of(rank.input),
                  bytes_of(rank.output)};
    submit.part_bytes = kPartBytes;
    return submit;
  }
  void submit_on_host(uint32_t number, uint64_t sequence = 0) {
    (number < 2 ? a_ : b_).post(part_of(number, sequence));
  }
  void scatter_on_gpu(uint32_t number, bool in_place = false, bool stays = false,
                      uint64_t sequence = 0) {
    Rank& rank = *ranks_.at(number);
    Submit submit = part_of(number, sequence);
    submit.input = bytes_of(rank.input_shadow);
    submit.output = in_place ? bytes_of(rank.input_shadow) + number * kBlock * sizeof(float)
                             : bytes_of(rank.output_shadow);
    submit.gpu_input = {&rank.input_memory, 0};
    if (stays) submit.gpu_output = {&rank.output_memory, 0};
    a_.post(submit);
  }
  void gather_on_gpu(uint32_t number, uint64_t sequence = 0, bool stays = false) {
    Rank& rank = *ranks_.at(number);
    Submit submit = part_of(number, sequence);
    if (stays) submit.input = bytes_of(rank.input_shadow);
    if (stays) submit.gpu_input = {&rank.input_memory, 0};
    submit.output = bytes_of(rank.output_shadow);
    submit.gpu_output = {&rank.output_memory, 0};
    a_.post(submit);
  }
  void expect_good_ends() {
    for (DataNode* node : {&a_, &a_, &b_}) EXPECT_EQ(end_on(*node), Verdict::kOk);
  }
  // What comes to this rank, of so many times the numbers.
  std::vector<float> block_of(uint32_t rank, float factor) const {
    const std::vector<float> all = numbers(kAll, factor);
    const auto before = std::accumulate(counts_.begin(), counts_.begin() + rank, uint64_t{0});
    const auto first = all.begin() + static_cast<ptrdiff_t>(before);
    return {first, first + static_cast<ptrdiff_t>(counts_.at(rank))};
  }
  std::vector<float> all_blocks() const {
    std::vector<float> all;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const std::vector<float> block = numbers(counts_.at(rank), static_cast<float>(rank + 1));
      all.insert(all.end(), block.begin(), block.end());
    }
    return all;
  }

  std::vector<uint64_t> counts_;
  Collective collective_ = Collective::kReduceScatter;
  std::array<std::unique_ptr<Rank>, kRanks> ranks_;
};

TEST_F(DataGpuBlocks, OfAScatterAreSummedThereAndGoToTheHostOfEach) {
  begin(Collective::kReduceScatter);
  scatter_on_gpu(0);
  scatter_on_gpu(1);
  submit_on_host(2);
  expect_good_ends();
  EXPECT_EQ(ranks_[0]->output_shadow, block_of(0, 6));
  EXPECT_EQ(ranks_[1]->output_shadow, block_of(1, 6));
  EXPECT_EQ(ranks_[2]->output, block_of(2, 6));
  EXPECT_EQ(ranks_[0]->input, numbers(kAll, 1)) << "inputs stay as they are";
  EXPECT_THAT(ranks_[1]->input_shadow, Each(kUntouched)) << "rank 0's stands for both";
  EXPECT_THAT(gpus_->sums(), Each(2));
  EXPECT_THAT(gpus_->spreads(), IsEmpty());
}

TEST_F(DataGpuBlocks, MayDiffer) {
  const std::vector<uint64_t> counts = {kBlock + 1000, 0, kAll - kBlock - 1000};
  begin(Collective::kReduceScatter, counts);
  scatter_on_gpu(0);
  scatter_on_gpu(1);
  submit_on_host(2);
  expect_good_ends();
  EXPECT_EQ(ranks_[0]->output_shadow, block_of(0, 6));
  EXPECT_EQ(ranks_[2]->output, block_of(2, 6));
  EXPECT_THAT(gpus_->sums(), Each(2));

  begin(Collective::kAllgather, counts);
  gather_on_gpu(0, 1);
  gather_on_gpu(1, 1);
  submit_on_host(2, 1);
  expect_good_ends();
  for (const auto& rank : ranks_) EXPECT_EQ(rank->output, all_blocks());
  EXPECT_THAT(gpus_->spreads(), Each(2));
}

TEST_F(DataGpuBlocks, OfAScatterInPlaceToo) {
  begin(Collective::kReduceScatter);
  for (const uint32_t rank : {0, 1}) scatter_on_gpu(rank, true);
  submit_on_host(2);
  expect_good_ends();
  for (const uint32_t rank : {0, 1}) {
    const std::vector<float>& shadow = ranks_.at(rank)->input_shadow;
    const auto first = shadow.begin() + static_cast<ptrdiff_t>(rank * kBlock);
    EXPECT_EQ(std::vector<float>(first, first + kBlock), block_of(rank, 6)) << rank;
  }
  EXPECT_EQ(ranks_[2]->output, block_of(2, 6));
}

TEST_F(DataGpuBlocks, OfAScatterWhereOneHasNoneThere) {
  begin(Collective::kReduceScatter);
  submit_on_host(0);
  scatter_on_gpu(1);
  submit_on_host(2);
  expect_good_ends();
  EXPECT_EQ(ranks_[0]->output, block_of(0, 6));
  EXPECT_EQ(ranks_[1]->output_shadow, block_of(1, 6));
  EXPECT_EQ(ranks_[2]->output, block_of(2, 6));
  EXPECT_THAT(gpus_->sums(), Each(1));
}

// As libraries of several ages, of which one leaves results on its GPU.
TEST_F(DataGpuBlocks, ComeToEachWhereItWantsThem) {
  for (const uint32_t there : {0, 1}) {
    begin(Collective::kReduceScatter);
    for (const uint32_t rank : {0, 1}) scatter_on_gpu(rank, false, rank == there, 2 * there);
    submit_on_host(2, 2 * there);
    expect_good_ends();
    EXPECT_EQ(ranks_.at(there)->output, block_of(there, 6)) << there;
    EXPECT_EQ(ranks_.at(1 - there)->output_shadow, block_of(1 - there, 6)) << there;

    begin(Collective::kAllgather);
    for (const uint32_t rank : {0, 1}) gather_on_gpu(rank, 2 * there + 1, rank == there);
    submit_on_host(2, 2 * there + 1);
    expect_good_ends();
    for (const auto& rank : ranks_) EXPECT_EQ(rank->output, all_blocks()) << there;
  }
}

// Which takes all ranks: the op is over, and the job goes on.
TEST_F(DataGpuBlocks, OfAScatterAreNotSummedAnewWithoutTheDead) {
  begin(Collective::kReduceScatter);
  view_.policy = "elastic min=1 max=3";
  view_.incarnation[0] = 3;
  a_.install(view_);
  b_.install(view_);
  gpus_->let(1);
  scatter_on_gpu(0);
  scatter_on_gpu(1);
  submit_on_host(2);
  while (gpus_->sums().size() < 4 && !HasFailure()) std::this_thread::sleep_for(1ms);
  leave(1);
  a_.next<EngineAbsent>();
  next_epoch(1);
  EXPECT_EQ(end_on(b_), Verdict::kFailed);
  a_.post(DescribeJob{1, view_.incarnation});
  a_.next<JobDescription>();
  EXPECT_TRUE(gpus_->busy()) << "with the memory of both, which is not given back before";
  gpus_->let_all();
  const auto end = a_.next<Completed>();
  EXPECT_EQ(end.outcome.failure.cause, Cause::kRootLost);
  EXPECT_EQ(end_on(a_), Verdict::kFailed);
  EXPECT_FALSE(gpus_->busy());
}

TEST_F(DataGpuBlocks, ThatAreGatheredGoToAllGpusFromOneHost) {
  begin(Collective::kAllgather);
  gather_on_gpu(0);
  gather_on_gpu(1);
  submit_on_host(2);
  expect_good_ends();
  EXPECT_EQ(ranks_[0]->output, all_blocks());
  EXPECT_EQ(ranks_[1]->output, all_blocks());
  EXPECT_EQ(ranks_[2]->output, all_blocks());
  EXPECT_THAT(ranks_[1]->output_shadow, Each(kUntouched)) << "rank 0's stands for both";
  EXPECT_THAT(gpus_->spreads(), Each(2));
  EXPECT_GE(gpus_->spreads().size(), kAll * sizeof(float) / kPartBytes / 2) << "in parts";
  EXPECT_THAT(gpus_->sums(), IsEmpty());
}

TEST_F(DataGpuBlocks, ThatAreGatheredWhereOneHasNoneThere) {
  begin(Collective::kAllgather);
  submit_on_host(0);
  gather_on_gpu(1);
  submit_on_host(2);
  expect_good_ends();
  for (const auto& rank : ranks_) EXPECT_EQ(rank->output, all_blocks());
  EXPECT_THAT(gpus_->spreads(), Each(1));
}

TEST_F(DataGpuBlocks, ThatAreGatheredAreThereWhenTheEndIsTold) {
  begin(Collective::kAllgather);
  gpus_->let(0);
  gather_on_gpu(0);
  gather_on_gpu(1);
  submit_on_host(2);
  EXPECT_EQ(end_on(b_), Verdict::kOk);
  EXPECT_THAT(ranks_[0]->output, Each(kUntouched));
  gpus_->let_all();
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(end_on(a_), Verdict::kOk);
  EXPECT_EQ(ranks_[0]->output, all_blocks());
  EXPECT_EQ(ranks_[1]->output, all_blocks());
}

}  // namespace
}  // namespace gradring::daemon
