// Reduce-scatters and allgathers of two nodes, as FSDP has them, whose slices go from GPU to GPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/daemon/gpu_block_rank.h"
#include "tests/daemon/gpu_ring_nodes.h"

namespace gradring::daemon {
namespace {

using testing::IsEmpty;
using testing::Not;

class DataGpuRingBlocks : public DataGpuRing {
 protected:
  static constexpr uint32_t kRanks = 4;
  struct Blocks {
    Collective collective = Collective::kReduceScatter;
    size_t block = 0;
    std::array<std::unique_ptr<GpuBlockRank>, kRanks> ranks;
  };

  void begin_blocks(uint32_t slice_bytes, const std::string& policy = "fail") {
    begin(slice_bytes, 0, true, policy);
  }
  // By all ranks; those that `in_place` has a bit of, so.
  Blocks& submit_blocks(Collective collective, size_t block, uint64_t sequence = 0,
                        unsigned in_place = 0) {
    Blocks& blocks = all_.emplace_back();
    blocks.collective = collective;
    blocks.block = block;
    for (uint32_t number = 0; number < kRanks; ++number) {
      auto& rank = blocks.ranks.at(number);
      rank = std::make_unique<GpuBlockRank>(number, kRanks, collective, block);
      core::Submission submission;
      submission.rank = submission.position = number;
      submission.ticket = sequence + 1;
      submission.key = {0, sequence};
      const bool sums = collective == Collective::kReduceScatter;
      submission.signature = {collective, Dtype::kFloat32, sums ? op_ : ReduceOp::kNone, 0, block};
      submission.signature.ranks = kRanks;
      Submit submit{number + 1000, view_.incarnation, submission, nullptr, nullptr};
      rank->lend(&submit, ((in_place >> number) & 1) != 0);
      node_of(number).data->post(submit);
    }
    return blocks;
  }
  void expect_ends(Verdict verdict, size_t ops = 1) {
    for (size_t op = 0; op < ops; ++op) {
      for (Node* node : {&a_, &a_, &b_, &b_}) {
        EXPECT_EQ(node->data->next<Completed>().outcome.verdict, verdict);
      }
    }
  }
  // `sum`: of the factors that ranks give by, or their average.
  static void expect_results(const Blocks& blocks, uint32_t ranks = kRanks, float sum = 10) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(blocks.ranks.at(rank)->result(), result_of(blocks, rank, sum)) << "rank " << rank;
      EXPECT_TRUE(blocks.ranks.at(rank)->never_by_host()) << "rank " << rank;
    }
  }
  static std::vector<float> result_of(const Blocks& blocks, uint32_t rank, float sum) {
    std::vector<float> result;
    if (blocks.collective == Collective::kReduceScatter) {
      const std::vector<float> all = numbers(kRanks * blocks.block, sum);
      const auto own = all.begin() + static_cast<ptrdiff_t>(rank * blocks.block);
      return {own, own + static_cast<ptrdiff_t>(blocks.block)};
    }
    for (uint32_t giver = 0; giver < kRanks; ++giver) {
      const std::vector<float> part = numbers(blocks.block, static_cast<float>(giver + 1));
      result.insert(result.end(), part.begin(), part.end());
    }
    return result;
  }
  void TearDown() override {
    end_nodes();
    all_.clear();
  }

  std::deque<Blocks> all_;
};

constexpr size_t kBlockFloats = 10 * kLongSlice / sizeof(float) + 5000;
constexpr std::array kBoth = {Collective::kReduceScatter, Collective::kAllgather};

TEST_F(DataGpuRingBlocks, GoFromGpuToGpu) {
  begin_blocks(kLongSlice);
  uint64_t sequence = 0;
  for (const Collective collective : kBoth) {
    for (const unsigned in_place : {0U, 0b1111U, 0b0110U}) {
      const Blocks& blocks = submit_blocks(collective, kBlockFloats, sequence++, in_place);
      expect_ends(Verdict::kOk);
      expect_results(blocks);
    }
  }
  for (Node* node : {&a_, &b_}) EXPECT_THAT(node->gpus->sums(), IsEmpty());
  // Each node sends half of what all give, in the one direction or the other.
  EXPECT_GE(sent(a_), kBlockFloats * sizeof(float));
}

TEST_F(DataGpuRingBlocks, ThatLandOnTheHostAreBroughtUp) {
  begin_blocks(2 * kSliceBytes);
  uint64_t sequence = 0;
  for (const Collective collective : kBoth) {
    const Blocks& blocks = submit_blocks(collective, 25'000, sequence++);
    expect_ends(Verdict::kOk);
    expect_results(blocks);
  }
  EXPECT_THAT(a_.gpus->spreads(), Not(IsEmpty()));
}

TEST_F(DataGpuRingBlocks, AnAverageIsDividedWhereItIsWanted) {
  op_ = ReduceOp::kAverage;
  begin_blocks(kLongSlice);
  const Blocks& blocks = submit_blocks(Collective::kReduceScatter, kBlockFloats);
  expect_ends(Verdict::kOk);
  expect_results(blocks, kRanks, 2.5);
}

TEST_F(DataGpuRingBlocks, WhereGpusDoNotReachOneAnotherEachGoesByItsOwnHost) {
  begin_blocks(kLongSlice);
  a_.gpus->cannot_sum_together();
  uint64_t sequence = 0;
  for (const Collective collective : kBoth) {
    const Blocks& blocks = submit_blocks(collective, kBlockFloats, sequence++, 0b0011);
    expect_ends(Verdict::kOk);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(blocks.ranks.at(rank)->result(), result_of(blocks, rank, 10)) << "rank " << rank;
    }
    for (const uint32_t rank : {2, 3}) EXPECT_TRUE(blocks.ranks.at(rank)->never_by_host());
  }
}

// One after the other and at the same time, of all kinds and sizes: what a slice leaves behind in a
// buffer must be none of the next one's.
class DataGpuRingPrograms : public DataGpuRingBlocks,
                            public testing::WithParamInterface<uint32_t> {};

TEST_P(DataGpuRingPrograms, EndAsOnTheHost) {
  constexpr uint64_t kOps = 24;
  std::mt19937 random(GetParam());
  floats_ = 1 + random() % 200'000;
  begin(random() % 2 == 0 ? kLongSlice : 2 * kSliceBytes, floats_);
  std::vector<const Blocks*> blocks;
  const uint64_t sum_at = random() % kOps;
  for (uint64_t sequence = 0; sequence < kOps; ++sequence) {
    if (sequence == sum_at) {
      submit_all(sequence);
    } else {
      blocks.push_back(&submit_blocks(kBoth.at(random() % kBoth.size()), 1 + random() % 40'000,
                                      sequence, random() % 16));
    }
    if (random() % 4 == 0) a_.gpus->let(random() % 8);
    if (random() % 4 == 0) a_.gpus->let_all();
  }
  a_.gpus->let_all();
  expect_ends(Verdict::kOk, kOps);
  for (const Blocks* one : blocks) expect_results(*one);
  for (const auto& rank : ranks_) EXPECT_EQ(rank->gpu, numbers(floats_, 10));
}

INSTANTIATE_TEST_SUITE_P(Seeds, DataGpuRingPrograms, testing::Range(0U, 20U));

// Whose trainer dies has given all the same, wherever its epoch ends.
class DataGpuRingBlocksLose : public DataGpuRingBlocks, public testing::WithParamInterface<size_t> {
 protected:
  // The GPUs of both nodes have begun, which they may before all ranks are ready; of those the
  // nodes hear meanwhile.
  void await_begin() {
    for (const Node* node : {&a_, &b_}) {
      const auto begun = [&] {
        return !node->gpus->allreduces().empty() || !node->gpus->sums().empty();
      };
      while (!begun() && !HasFailure()) std::this_thread::sleep_for(1ms);
    }
    std::this_thread::sleep_for(50ms);
  }
};

TEST_P(DataGpuRingBlocksLose, ARankThatDiesHasGivenAllTheSame) {
  for (const Collective collective : kBoth) {
    for (const unsigned in_place : {0U, 0b1111U}) {
      view_ = view_of({{"a", 2}, {"b", 2}}, 1);
      begin_blocks(kLongSlice, "elastic min=1 max=4");
      a_.gpus->let(GetParam());
      b_.gpus->let(GetParam() * 2);
      const Blocks& blocks = submit_blocks(collective, kBlockFloats, 0, in_place);
      await_begin();
      leave(3);
      a_.gpus->let_all();
      b_.gpus->let_all();
      next_epoch(3);
      expect_ends(Verdict::kOk);
      expect_results(blocks, 3);
      end_nodes();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, DataGpuRingBlocksLose,
                         testing::Values(0, 1, 2, 3, 5, 8, 13, 21));

// What a rank was to give cannot be read any more: nobody gets a part of it.
TEST_F(DataGpuRingBlocks, OfARankWhoseGpuIsLostTheOpFailsAlone) {
  for (const Collective collective : kBoth) {
    view_ = view_of({{"a", 2}, {"b", 2}}, 1);
    begin_blocks(kLongSlice, "elastic min=1 max=4");
    b_.gpus->let(0);
    submit_blocks(collective, 3 * kBlockFloats);
    while (a_.gpus->allreduces().empty() && !HasFailure()) std::this_thread::sleep_for(1ms);
    leave(3, "GPU-1234");
    EXPECT_TRUE(b_.data->next<EngineAbsent>().absence.unfinished);
    b_.gpus->let_all();
    next_epoch(3);
    for (Node* node : {&a_, &a_, &b_, &b_}) {
      const core::Outcome outcome = node->data->next<Completed>().outcome;
      EXPECT_EQ(outcome.verdict, Verdict::kFailed);
      EXPECT_EQ(outcome.failure.cause, Cause::kRootLost);
    }
    end_nodes();
  }
}

}  // namespace
}  // namespace gradring::daemon
