// A job's memory on the host, which a driver pins before a card is told of it: it may take its time
// for that, as beside another pin of many GB, or for a GPU that hangs.

#include <gtest/gtest.h>

#include <vector>

#include "tests/daemon/gpu_ring_nodes.h"

namespace gradring::daemon {
namespace {

// One job runs on both nodes when another begins, which node a cannot pin the memory of.
class DataGpuPin : public DataGpuRing {
 protected:
  static constexpr size_t kFloats = 20 * kLongSlice / sizeof(float);

  void SetUp() override {
    begin(kLongSlice, kFloats);
    submit_all();
    expect_sums(10);
    a_.gpus->keep_pins(true);
    for (Node* node : {&a_, &b_}) node->data->install(next_);
  }
  void TearDown() override {
    a_.gpus->keep_pins(false);
    DataGpuRing::TearDown();
  }
  void expect_verdict(Node& node, Verdict verdict) {
    EXPECT_EQ(node.data->next<Completed>().outcome.verdict, verdict);
  }
  void the_other_job_goes_on() {
    fill();
    submit_all(1);
    expect_sums(10);
  }

  const core::View next_ = view_of({{"a", 1}, {"b", 1}}, 2);
  std::vector<float> x_ = numbers(kFloats, 1), y_ = numbers(kFloats, 2);
};

TEST_F(DataGpuPin, KeepsNoOtherJobAndIsWaitedForByItsOwn) {
  a_.data->submit(next_, 0, x_);
  b_.data->submit(next_, 1, y_);  // so that node a hears of it before it can take part
  the_other_job_goes_on();
  EXPECT_EQ(y_, numbers(kFloats, 2)) << "nothing has begun before there was memory for it";
  a_.gpus->keep_pins(false);
  for (Node* node : {&a_, &b_}) expect_verdict(*node, Verdict::kOk);
  EXPECT_EQ(x_, numbers(kFloats, 3));
  EXPECT_EQ(y_, numbers(kFloats, 3));
}

// What a rank submitted before it left counts.
TEST_F(DataGpuPin, IsWaitedForByWhatARankSubmittedBeforeItLeft) {
  a_.data->submit(next_, 0, x_);
  std::thread pins([this] {
    std::this_thread::sleep_for(50ms);
    a_.gpus->keep_pins(false);
  });
  a_.data->post(LeaveRank{next_.incarnation, 0, {Cause::kTrainerDied, {}}});
  b_.data->submit(next_, 1, y_);
  expect_verdict(b_, Verdict::kOk);
  expect_verdict(a_, Verdict::kOk);
  pins.join();
}

TEST_F(DataGpuPin, MayOutlastItsJob) {
  a_.data->submit(next_, 0, x_);
  a_.data->post(FailJob{next_.incarnation, {Cause::kTrainerDied, {}}});
  EXPECT_EQ(a_.data->next<Completed>().outcome.failure.cause, Cause::kTrainerDied);
  a_.data->post(RemoveJob{next_.incarnation});
  the_other_job_goes_on();
}

class DataGpuPinInTime : public DataGpuPin {
 protected:
  DataGpuPinInTime() { memory_within_ = 200 * core::kMillisecond; }
};

// A card would have the driver pin it all the same.
TEST_F(DataGpuPinInTime, OrItsJobEndsInWords) {
  a_.data->submit(next_, 0, x_);
  const auto failed = a_.data->next<EngineFailed>();
  EXPECT_EQ(failed.job, next_.incarnation);
  EXPECT_EQ(failed.failure.blame.node, "a");
  EXPECT_THAT(failed.failure.blame.evidence, testing::HasSubstr("did not pin"));
  a_.data->post(FailJob{next_.incarnation, failed.failure});
  expect_verdict(a_, Verdict::kFailed);
  the_other_job_goes_on();
}

}  // namespace
}  // namespace gradring::daemon
