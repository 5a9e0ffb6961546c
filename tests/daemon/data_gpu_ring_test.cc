// Slices of what lies on GPUs of two nodes go round the ring there: the network reaches them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/recovery.h"
#include "tests/daemon/data_node.h"
#include "tests/daemon/slow_gpus.h"

namespace gradring::daemon {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr float kNever = -1;
constexpr uint32_t kLongSlice = 32 << 10;  // over loopback it goes straight

// Nodes a and b have two ranks each, and GPUs.
class DataGpuRing : public DataThreadTest {
 protected:
  struct Rank {
    Rank(size_t floats, float factor) : gpu(numbers(floats, factor)), host(floats, kNever) {}
    std::vector<float> gpu;
    std::vector<float> host;  // its shadow, which has no part in it
    SlowGpus::Memory memory{&gpu};
  };
  struct Node {
    std::shared_ptr<SlowGpus> gpus = std::make_shared<SlowGpus>();
    std::unique_ptr<DataNode> data;
  };

  void begin(uint32_t slice_bytes, size_t floats, bool direct_on_b = true,
             const std::string& policy = "fail") {
    view_.policy = policy;
    floats_ = floats;
    a_.data = std::make_unique<DataNode>(fabric_, "a", NodeGpus{a_.gpus, slice_bytes, true});
    b_.data = std::make_unique<DataNode>(fabric_, "b", NodeGpus{b_.gpus, slice_bytes, direct_on_b});
    connect(*a_.data, *b_.data);
    a_.data->install(view_);
    b_.data->install(view_);
    fill();
  }
  // The nodes end before what they read and write.
  void TearDown() override {
    a_.gpus->let_all();
    b_.gpus->let_all();
    a_.data.reset();
    b_.data.reset();
  }
  void fill() {
    ranks_.clear();
    for (uint32_t rank = 0; rank < 4; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(floats_, static_cast<float>(rank + 1)));
    }
  }
  Node& node_of(uint32_t rank) { return rank < 2 ? a_ : b_; }
  void submit(uint32_t number, uint64_t sequence = 0) {
    Rank& rank = *ranks_[number];
    core::Submission submission;
    submission.rank = number;
    submission.ticket = sequence + 1;
    submission.key = {0, sequence};
    submission.signature = {Collective::kAllreduce, Dtype::kFloat32, op_, 0, rank.gpu.size()};
    submission.prescale = prescale_[number];
    submission.signature.postscale = postscale_;
    auto* const host = reinterpret_cast<std::byte*>(rank.host.data());
    Submit submit{number + 1000, view_.incarnation, submission, host, host};
    submit.gpu_input = submit.gpu_output = {&rank.memory, 0};
    node_of(number).data->post(submit);
  }
  void submit_all(uint64_t sequence = 0) {
    for (uint32_t rank = 0; rank < 4; ++rank) submit(rank, sequence);
  }
  void expect_sums(float factor) {
    for (Node* node : {&a_, &a_, &b_, &b_}) {
      EXPECT_EQ(node->data->next<Completed>().outcome.verdict, Verdict::kOk);
    }
    for (const auto& rank : ranks_) EXPECT_EQ(rank->gpu, numbers(floats_, factor));
  }
  // That of the host's memory: whether it had any part in it.
  void expect_never_by_host(Node& node) {
    EXPECT_THAT(node.gpus->sums(), IsEmpty());
    for (uint32_t rank = 0; rank < 4; ++rank) {
      if (&node_of(rank) != &node) continue;
      EXPECT_THAT(ranks_[rank]->host, Each(kNever));
    }
  }
  uint64_t sent(Node& node) {
    return node.data->next<Pulse>([](const Pulse& pulse) { return pulse.gpus.sent > 0; }).gpus.sent;
  }
  uint32_t final_slices(Node& node) {
    node.data->post(DescribeJob{1, view_.incarnation});
    const auto description = node.data->next<JobDescription>();
    return description.ops.empty() ? 0 : description.ops[0].slices_final;
  }
  // `gpu`: which it has lost.
  void leave(uint32_t rank, const std::string& gpu = "") {
    Failure died{Cause::kTrainerDied, {}};
    died.blame.rank = rank;
    died.blame.device = gpu;
    node_of(rank).data->post(LeaveRank{view_.incarnation, rank, died});
  }
  void next_epoch(uint32_t lost) {
    std::map<std::string, core::Report> reports;
    Failure died{Cause::kTrainerDied, {}};
    died.blame.rank = lost;
    for (Node* node : {&a_, &b_}) node->data->post(FreezeJob{view_.incarnation, view_.epoch});
    for (Node* node : {&a_, &b_}) {
      core::Report report = *node->data->next<JobFrozen>().report;
      report.node = node->data->name();
      report.ranks = view_.members[*view_.index_of(report.node)].ranks;
      std::erase_if(report.ranks, [lost](const core::RankInfo& info) { return info.rank == lost; });
      if (&node_of(lost) == node) report.lost.push_back({lost, died});
      report.reachable = {"a", "b"};
      reports[report.node] = report;
    }
    const auto proposal = core::decide(view_, reports, {}, {}, "a rank died");
    ASSERT_TRUE(proposal) << proposal.error();
    view_ = proposal->view;
    for (Node* node : {&a_, &b_}) {
      node->data->post(
          AdoptView{view_.incarnation, std::make_shared<const core::Proposal>(*proposal)});
    }
  }

  core::View view_ = view_of({{"a", 2}, {"b", 2}}, 1);
  Node a_, b_;
  size_t floats_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks_;
  ReduceOp op_ = ReduceOp::kSum;
  std::array<double, 4> prescale_ = {1, 1, 1, 1};
  double postscale_ = 1;
};

TEST_F(DataGpuRing, SlicesGoFromGpuToGpu) {
  constexpr size_t kFloats = 40 * kLongSlice / sizeof(float) + 5000;
  begin(kLongSlice, kFloats);
  for (uint64_t step = 0; step < 3; ++step) {
    fill();
    submit_all(step);
    expect_sums(10);
  }
  expect_never_by_host(a_);
  expect_never_by_host(b_);
  EXPECT_GE(sent(a_), 3 * kFloats * sizeof(float) / 2);
}

// Over loopback they land in the host's memory, as what a transport receives by itself.
TEST_F(DataGpuRing, SlicesThatLandOnTheHostAreBroughtUp) {
  begin(2 * kSliceBytes, 100'000);
  submit_all();
  expect_sums(10);
  expect_never_by_host(a_);
  EXPECT_THAT(a_.gpus->spreads(), testing::Not(IsEmpty()));
}

// They may share messages with others, which are gathered by the processor.
TEST_F(DataGpuRing, ShortSlicesGoByWayOfTheHost) {
  begin(kSliceBytes, 50'000);
  submit_all();
  expect_sums(10);
  EXPECT_THAT(a_.gpus->sums(), Each(1)) << "each brought down as it was";
}

TEST_F(DataGpuRing, AnAverageIsDividedOnce) {
  op_ = ReduceOp::kAverage;
  begin(kLongSlice, 200'000);
  submit_all();
  expect_sums(2.5);
}

TEST_F(DataGpuRing, FactorsAreAppliedOnce) {
  prescale_ = {2, 1, 0.5, 3};
  postscale_ = 0.25;
  begin(kLongSlice, 200'000);
  submit_all();
  expect_sums((2 * 1 + 1 * 2 + 0.5F * 3 + 3 * 4) * 0.25F);
  expect_never_by_host(a_);
}

// Of the first that is not finite: whose input it was, and nobody's who only passes it on.
TEST_F(DataGpuRing, WhatIsNotFiniteIsTheRanksWhoGaveIt) {
  begin(kLongSlice, 200'000);
  constexpr size_t kElement = 100'077;
  ranks_[2]->gpu[kElement] = std::numeric_limits<float>::infinity();
  submit_all();
  for (Node* node : {&a_, &a_, &b_, &b_}) node->data->next<Completed>();
  EXPECT_EQ(ranks_[0]->gpu[kElement], std::numeric_limits<float>::infinity());
  a_.data->post(DescribeJob{1, view_.incarnation});
  for (const RankActivity& rank : a_.data->next<JobDescription>().ranks) {
    EXPECT_EQ(rank.nonfinite, 0u) << rank.rank;
  }
  fill();
  ranks_[1]->gpu[kElement] = ranks_[2]->gpu[kElement] = std::numeric_limits<float>::quiet_NaN();
  submit_all(1);
  const NonfiniteOrigin origin = a_.data->next<NonfiniteFound>().origin;
  EXPECT_EQ(origin.kind, NonfiniteOrigin::Kind::kNan);
  EXPECT_EQ(origin.rank, 1u);
  EXPECT_EQ(origin.element, kElement);
  for (Node* node : {&a_, &a_, &b_, &b_}) node->data->next<Completed>();
}

TEST_F(DataGpuRing, TheRankIsNamedOnItsNode) {
  begin(kLongSlice, 200'000);
  ranks_[3]->gpu[7] = std::numeric_limits<float>::quiet_NaN();
  submit_all();
  const NonfiniteOrigin origin = b_.data->next<NonfiniteFound>().origin;
  EXPECT_EQ(origin.rank, 3u);
  EXPECT_EQ(origin.element, 7u);
}

TEST_F(DataGpuRing, ANodeWhoseSlicesGoFromTheHostTakesPart) {
  begin(kLongSlice, 200'000, false);
  submit_all();
  expect_sums(10);
  expect_never_by_host(a_);
  EXPECT_THAT(b_.gpus->sums(), testing::Not(IsEmpty()));
}

// Each node decides that for itself, and only a processor can check it.
TEST_F(DataGpuRing, WhatComesWithAChecksumIsCheckedBeforeItIsBroughtUp) {
  floats_ = 50'000;
  view_ = view_of({{"a", 2}, {"b", 1}}, 1);
  a_.data = std::make_unique<DataNode>(fabric_, "a", NodeGpus{a_.gpus, kSliceBytes, true});
  b_.data = std::make_unique<DataNode>("b", fabric_.join("b"), true);
  connect(*a_.data, *b_.data);
  a_.data->install(view_);
  b_.data->install(view_);
  fill();
  ranks_.resize(2);
  std::vector<float> other = numbers(floats_, 3);
  submit(0);
  submit(1);
  b_.data->submit(view_, 2, other);
  for (Node* node : {&a_, &a_, &b_}) {
    EXPECT_EQ(node->data->next<Completed>().outcome.verdict, Verdict::kOk);
  }
  for (const auto& rank : ranks_) EXPECT_EQ(rank->gpu, numbers(floats_, 6));
  EXPECT_EQ(other, numbers(floats_, 6));
  EXPECT_GT(sent(a_), 0u);
}

TEST_F(DataGpuRing, SlicesGoByTheLanesThatAreNearTheirGpu) {
  floats_ = 30 * kLongSlice / sizeof(float);
  for (Node* node : {&a_, &b_}) {
    const std::string name = node == &a_ ? "a" : "b";
    Lanes lanes;
    for (const char* lane : {"0", "1", "2"}) lanes.push_back(fabric_.join(name + lane));
    node->data = std::make_unique<DataNode>(name, std::move(lanes), false, 1 << 20, false, 0,
                                            NodeGpus{node->gpus, kLongSlice, true});
  }
  connect(*a_.data, *b_.data);
  for (Node* node : {&a_, &b_}) {
    for (uint8_t lane = 0; lane < 3; ++lane) {
      node->data->post(
          SetLane{0, node == &a_ ? uint64_t{7} : uint64_t{8}, lane, SetLane::To::kCarries});
    }
    node->data->post(SetGpuLanes{{{2, 1}}});
    node->data->install(view_);
  }
  fill();
  submit_all();
  expect_sums(10);
  const Pulse pulse = a_.data->next<Pulse>(
      [this](const Pulse& one) { return one.gpus.sent >= floats_ * sizeof(float); });
  const auto& sent = pulse.peers[0].lanes;
  EXPECT_EQ(sent[0].sent_bytes, 0u);
  EXPECT_GT(sent[1].sent_bytes, 0u);
  EXPECT_GT(sent[2].sent_bytes, 0u);
}

// GPUs that are far behind hold the ring up, and nothing is written over what they still read.
TEST_F(DataGpuRing, GpusThatAreBehindAreWaitedFor) {
  begin(kLongSlice, 100 * kLongSlice / sizeof(float));
  a_.gpus->let(0);
  submit_all();
  std::this_thread::sleep_for(50ms);
  const size_t most = a_.gpus->most();
  EXPECT_LE(most, 3 * 4 + 4 + 8u) << "four slots, twice as many more buffers, four start buffers";
  for (int i = 0; i < 30; ++i) {
    a_.gpus->let(7);
    b_.gpus->let(i % 2 == 0 ? 3 : 20);
    std::this_thread::sleep_for(1ms);
  }
  a_.gpus->let_all();
  b_.gpus->let_all();
  expect_sums(10);
}

TEST_F(DataGpuRing, NothingIsToldBeforeTheGpusAreDone) {
  begin(kLongSlice, 3 * kLongSlice / sizeof(float));
  a_.gpus->let(0);
  submit_all();
  a_.data->next<Pulse>();
  EXPECT_EQ(final_slices(b_), 0u) << "what goes to others waits until it is made";
  a_.gpus->let_all();
  expect_sums(10);
}

TEST_F(DataGpuRing, OpsOfTheHostsMemoryGoOnBesideThem) {
  begin(kLongSlice, 50 * kLongSlice / sizeof(float));
  std::vector<std::vector<float>> others;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    others.push_back(numbers(100'000, static_cast<float>(rank + 1)));
  }
  for (uint32_t rank = 0; rank < 4; ++rank) {
    node_of(rank).data->submit(view_, rank, others[rank], 5);
    submit(rank);
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(node_of(i).data->next<Completed>().outcome.verdict, Verdict::kOk);
  }
  expect_sums(10);
  for (const auto& other : others) EXPECT_EQ(other, numbers(100'000, 10));
}

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
