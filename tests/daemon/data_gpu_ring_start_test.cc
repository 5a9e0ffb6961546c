// A job's memory on GPUs, which takes a driver its time.

#include <gtest/gtest.h>

#include <vector>

#include "tests/daemon/gpu_ring_nodes.h"

namespace gradring::daemon {
namespace {

class DataGpuRingStart : public DataGpuRing {
 protected:
  static constexpr size_t kFloats = 20 * kLongSlice / sizeof(float);

  void SetUp() override {
    a_.gpus->keep_memory(true);
    begin(kLongSlice, kFloats);
  }
  // Not before the node has done what it was told until now.
  uint32_t ops_open_on_a() {
    a_.data->post(DescribeJob{1, view_.incarnation});
    return a_.data->next<JobDescription>().ops_open;
  }
};

TEST_F(DataGpuRingStart, KeepsNobodyElse) {
  submit_all();
  const core::View other = view_of({{"a", 1}, {"b", 1}}, 2);
  a_.data->install(other);
  b_.data->install(other);
  std::vector<float> x = numbers(kFloats, 1), y = numbers(kFloats, 2);
  a_.data->submit(other, 0, x);
  b_.data->submit(other, 1, y);
  for (Node* node : {&a_, &b_}) {
    EXPECT_EQ(node->data->next<Completed>().outcome.verdict, Verdict::kOk);
  }
  EXPECT_EQ(x, numbers(kFloats, 3));
  a_.gpus->keep_memory(false);
  expect_sums(10);
  expect_never_by_host(a_);
  expect_never_by_host(b_);
}

TEST_F(DataGpuRingStart, IsWaitedForByWhatARankSubmittedBeforeItLeft) {
  submit(0);
  submit(1);
  leave(1);
  std::this_thread::sleep_for(20ms);
  a_.gpus->keep_memory(false);
  submit(2);
  submit(3);
  expect_sums(10);
  expect_never_by_host(a_);
}

// With one that is lost a driver may be at it for ever.
TEST_F(DataGpuRingStart, IsNotWaitedForByWhoHasLostItsGpu) {
  submit(1);
  leave(1, "GPU-1234");
  EXPECT_EQ(a_.data->next<Completed>().outcome.failure.blame.device, "GPU-1234");
  a_.gpus->keep_memory(false);
}

// As of a driver that waits for a GPU which hangs.
class DataGpuRingStartInTime : public DataGpuRingStart {
 protected:
  DataGpuRingStartInTime() { memory_within_ = 200 * core::kMillisecond; }
};

TEST_F(DataGpuRingStartInTime, OrItsSlicesGoByTheHost) {
  submit_all();
  expect_sums(10);
  EXPECT_THAT(a_.gpus->sums(), testing::Not(testing::IsEmpty()));
  a_.gpus->keep_memory(false);
}

TEST_F(DataGpuRingStart, ThatCannotBeHadIsMissedByNobodyElse) {
  a_.gpus->fill_up(0);
  a_.gpus->keep_memory(false);
  submit_all();
  expect_sums(10);
  EXPECT_THAT(a_.gpus->sums(), testing::Not(testing::IsEmpty()));
  expect_never_by_host(b_);
}

// Of two GPUs one is full.
class DataGpuRingStartOnOne : public DataGpuRingStart, public testing::WithParamInterface<size_t> {
 protected:
  void SetUp() override {
    a_.gpus->have(2);
    a_.gpus->fill_up(full_);
    DataGpuRingStart::SetUp();
    a_.gpus->keep_memory(false);
  }
  const size_t full_ = GetParam();
  const size_t other_ = 1 - full_;
};

INSTANTIATE_TEST_SUITE_P(Either, DataGpuRingStartOnOne, testing::Values(size_t{0}, size_t{1}));

TEST_P(DataGpuRingStartOnOne, IsEnoughForWhatLiesThere) {
  for (const uint32_t rank : {0u, 1u}) ranks_[rank]->memory.lies_on(other_);
  submit_all();
  expect_sums(10);
  expect_never_by_host(a_);
  expect_never_by_host(b_);
}

// Whatever else of the op lies where there is some.
TEST_P(DataGpuRingStartOnOne, LeavesWhatLiesOnTheFullOneToTheHost) {
  ranks_[0]->memory.lies_on(other_);
  ranks_[1]->memory.lies_on(full_);
  submit_all();
  expect_sums(10);
  EXPECT_THAT(a_.gpus->sums(), testing::Not(testing::IsEmpty()));
  expect_never_by_host(b_);
}

TEST_F(DataGpuRingStart, ThatNeverComesKeepsNobodyWhenARankLeaves) {
  submit(0);
  leave(0);
  const core::View other = view_of({{"a", 1}, {"b", 1}}, 2);
  std::vector<float> x = numbers(100, 1), y = numbers(100, 2);
  for (Node* node : {&a_, &b_}) node->data->install(other);
  a_.data->submit(other, 0, x);
  b_.data->submit(other, 1, y);
  EXPECT_EQ(b_.data->next<Completed>().outcome.verdict, Verdict::kOk);
  a_.gpus->keep_memory(false);
  end_nodes();  // before what they write
}

TEST_F(DataGpuRingStart, EndsWithTheJob) {
  submit(0);
  EXPECT_EQ(ops_open_on_a(), 0u) << "nobody knows of it yet";
  a_.data->post(FailJob{view_.incarnation, {Cause::kTrainerDied, {}}});
  EXPECT_EQ(a_.data->next<Completed>().outcome.failure.cause, Cause::kTrainerDied);
  a_.data->post(RemoveJob{view_.incarnation});
  EXPECT_EQ(ops_open_on_a(), 0u);
  a_.gpus->keep_memory(false);
}

TEST_F(DataGpuRingStart, EndsBeforeTheNode) {
  std::thread frees([this] {
    std::this_thread::sleep_for(20ms);
    a_.gpus->keep_memory(false);
  });
  a_.data.reset();
  frees.join();
}

}  // namespace
}  // namespace gradring::daemon
