// What is summed from GPU to GPU when one of them is lost in the midst.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/daemon/gpu_nodes.h"

namespace gradring::daemon {
namespace {

using testing::Each;

// Of a job on node a alone, with so many GPUs that not all of their parts are begun at once.
class DataGpuLost : public GpuNodes {
 protected:
  static constexpr uint32_t kRanks = 6;
  static constexpr size_t kFloats = 60 * kSliceBytes / sizeof(float);

  struct Rank {
    std::vector<float> input = numbers(kFloats, 1), output = std::vector<float>(kFloats);
    std::vector<float> shadow = std::vector<float>(kFloats, kUntouched);
    SlowGpus::Memory input_memory{&input}, output_memory{&output};
  };

  void begin() {
    view_ = view_of({{"a", kRanks}}, 2);
    gpus_->let(0);
    view_.policy = "elastic min=1 max=6";
    a_.install(view_);
    for (uint32_t i = 0; i < kRanks; ++i) {
      ranks_.push_back(std::make_unique<Rank>());
      ranks_[i]->input_memory.lies_on(i);
      ranks_[i]->output_memory.lies_on(i);
    }
  }
  void submit_all(bool in_place) {
    for (uint32_t i = 0; i < kRanks; ++i) {
      Rank& rank = *ranks_[i];
      core::Submission submission;
      submission.rank = i;
      submission.ticket = 1;
      submission.signature = {Collective::kAllreduce, Dtype::kFloat32, op_, 0, kFloats};
      auto* const host = reinterpret_cast<std::byte*>(rank.shadow.data());
      Submit submit{i + 1000, view_.incarnation, submission, host, host};
      submit.part_bytes = kSliceBytes;
      submit.gpu_input = {&rank.input_memory, 0};
      submit.gpu_output = {in_place ? &rank.input_memory : &rank.output_memory, 0};
      a_.post(submit);
    }
  }
  void lose_one_in_the_midst() {
    gpus_->let(1);
    while (gpus_->allreduces().size() < 5 && !HasFailure()) std::this_thread::sleep_for(1ms);
    leave(kLost, "GPU-1234");
    EXPECT_TRUE(a_.next<EngineAbsent>().absence.unfinished);
    const size_t begun = gpus_->allreduces().size();
    gpus_->let_all();
    next_epoch(kLost);
    ends_.clear();
    for (uint32_t i = 0; i < kRanks; ++i) ends_.push_back(a_.next<Completed>());
    const std::vector<size_t> all = gpus_->allreduces();
    ASSERT_GT(all.size(), begun);
    const std::vector<size_t> after(all.begin() + static_cast<ptrdiff_t>(begun), all.end());
    EXPECT_THAT(after, Each(kRanks - 1)) << "nothing of it is read any more";
  }
  // Whole parts, of all at first and then without that rank; `element`: of its one number.
  void expect_both(const std::vector<float>& result, float with, float without) {
    size_t i = 0;
    while (i < kFloats && result[i] == with * static_cast<float>(i % 1000)) ++i;
    EXPECT_GT(i, kSliceBytes / sizeof(float));
    EXPECT_LT(i, kFloats);
    while (i < kFloats && result[i] == without * static_cast<float>(i % 1000)) ++i;
    EXPECT_EQ(i, kFloats);
  }
  void expect_ends() {
    for (const Completed& end : ends_) {
      EXPECT_EQ(end.outcome.verdict, Verdict::kOkShrunk);
      EXPECT_EQ(end.outcome.ranks_min, kRanks - 1);
      EXPECT_EQ(end.outcome.ranks_max, kRanks);
    }
  }

  static constexpr uint32_t kLost = 1;
  ReduceOp op_ = ReduceOp::kSum;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Completed> ends_;
};

TEST_F(DataGpuLost, TheOthersGoOnWithWhatNobodyHasOverwritten) {
  begin();
  submit_all(false);
  lose_one_in_the_midst();
  expect_ends();
  for (uint32_t i = 0; i < kRanks; ++i) {
    EXPECT_EQ(ranks_[i]->input, numbers(kFloats, 1));
    if (i != kLost) expect_both(ranks_[i]->output, kRanks, kRanks - 1);
  }
  EXPECT_EQ(ranks_[0]->output, ranks_[5]->output);
}

// Each part is read before it is overwritten, and is whole or as it was.
TEST_F(DataGpuLost, InPlaceToo) {
  begin();
  submit_all(true);
  lose_one_in_the_midst();
  expect_ends();
  for (uint32_t i = 0; i < kRanks; ++i) {
    if (i != kLost) expect_both(ranks_[i]->input, kRanks, kRanks - 1);
  }
  EXPECT_EQ(ranks_[0]->input, ranks_[5]->input);
}

TEST_F(DataGpuLost, AnAverageIsDividedByThoseWhoAreIn) {
  op_ = ReduceOp::kAverage;
  begin();
  submit_all(true);
  lose_one_in_the_midst();
  for (uint32_t i = 0; i < kRanks; ++i) {
    if (i == kLost) continue;
    EXPECT_EQ(ranks_[i]->input, numbers(kFloats, 1)) << i;
  }
}

}  // namespace
}  // namespace gradring::daemon
