// Slices of what lies on GPUs of two nodes go round the ring there: the network reaches them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/gpu_ring_nodes.h"

namespace gradring::daemon {
namespace {

using testing::Each;
using testing::IsEmpty;
using testing::SizeIs;

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

TEST_F(DataGpuRing, ShortSlicesThatCameTogetherAreBroughtUpEach) {
  constexpr size_t kSlices = 50;
  bundle_bytes_ = kBundleBytesMax;
  begin(kSliceBytes, kSlices * kSliceBytes / sizeof(float));
  submit_all();
  expect_sums(10);
  const auto bundled = [](const Pulse& pulse) { return pulse.bundles_sent > 0; };
  for (Node* node : {&a_, &b_}) {
    node->data->next<Pulse>(bundled);
    EXPECT_THAT(node->gpus->spreads(), SizeIs(kSlices));
  }
}

// What goes along the tree is folded on the host.
TEST_F(DataGpuRing, WhatIsPlannedAnewMayNotRideAnyMore) {
  constexpr size_t kFloats = kSliceBytes / sizeof(float);
  tree_max_ = kSliceBytes;
  view_.tuning = all_sizes({core::Choice::Way::kRing, 0});
  begin(kSliceBytes, kFloats);
  for (const uint32_t rank : {0, 1}) submit(rank);
  std::this_thread::sleep_for(20ms);  // a has chosen its way
  retune({core::Choice::Way::kWhole, 0});
  for (const uint32_t rank : {2, 3}) {
    ranks_[rank]->host = ranks_[rank]->gpu;
    submit(rank, 0, false);
  }
  for (Node* node : {&a_, &a_, &b_, &b_}) {
    EXPECT_EQ(node->data->next<Completed>().outcome.verdict, Verdict::kOk);
  }
  for (const uint32_t rank : {0, 1}) EXPECT_EQ(ranks_[rank]->gpu, numbers(kFloats, 10));
  for (const uint32_t rank : {2, 3}) EXPECT_EQ(ranks_[rank]->host, numbers(kFloats, 10));
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

// Whose data goes with READY, into memory that is the host's alone.
TEST_F(DataGpuRing, SmallOpsOfTheHostsMemoryGoOnBesideThem) {
  floats_ = 100'000;
  for (Node* node : {&a_, &b_}) {
    const std::string name = node == &a_ ? "a" : "b";
    Lanes lanes;
    lanes.push_back(fabric_.join(name));
    node->data = std::make_unique<DataNode>(name, std::move(lanes), false, 64 << 20, false, 16,
                                            NodeGpus{node->gpus, kLongSlice, true});
  }
  connect(*a_.data, *b_.data);
  for (Node* node : {&a_, &b_}) node->data->install(view_);
  fill();
  std::vector<std::vector<float>> small;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    small.push_back(numbers(10, static_cast<float>(rank + 1)));
  }
  for (uint32_t rank = 0; rank < 4; ++rank) {
    node_of(rank).data->submit(view_, rank, small[rank], 5);
  }
  for (Node* node : {&a_, &a_, &b_, &b_}) {
    EXPECT_EQ(node->data->next<Completed>().outcome.verdict, Verdict::kOk);
  }
  for (const auto& one : small) EXPECT_EQ(one, numbers(10, 10));
  submit_all(6);
  expect_sums(10);
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

}  // namespace
}  // namespace gradring::daemon
