// Two lanes between data threads, each a network of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/recovery.h"
#include "tests/daemon/data_node.h"

namespace gradring::daemon {
namespace {

constexpr size_t kOfManySlices = 100'000;  // some hundred slices

class DataLanes : public DataThreadTest {
 protected:
  void SetUp() override {
    connect(a_, b_);
    for (DataNode* node : {&a_, &b_}) {
      node->next<Pulse>([](const Pulse& pulse) {
        if (pulse.peers.empty()) return false;
        const auto& lanes = pulse.peers[0].lanes;
        return lanes.size() == 2 && lanes[0].heard && lanes[1].heard;
      });
    }
    for (DataNode* node : {&a_, &b_}) node->install(view_);
  }
  Lanes join(const std::string& name) {
    Lanes lanes;
    lanes.push_back(fabric_.join(name));
    lanes.push_back(second_.join(name));
    return lanes;
  }
  void submit(uint64_t sequence) {
    x_ = numbers(kOfManySlices, 1);
    y_ = numbers(kOfManySlices, 2);
    a_.submit(view_, 0, x_, sequence);
    b_.submit(view_, 1, y_, sequence);
  }
  void expect_sum() {
    for (DataNode* node : {&a_, &b_}) {
      EXPECT_EQ(node->next<Completed>().outcome.verdict, Verdict::kOk);
    }
    EXPECT_EQ(x_, numbers(kOfManySlices, 3));
    EXPECT_EQ(y_, numbers(kOfManySlices, 3));
  }
  // What both nodes sent on each lane, as soon as that has been counted.
  std::vector<uint64_t> sent_by_lane(uint64_t least) {
    std::vector<uint64_t> sent;
    a_.next<Pulse>([&](const Pulse& pulse) {
      sent.clear();
      for (const LaneTraffic& lane : pulse.peers.at(0).lanes) sent.push_back(lane.sent_bytes);
      return pulse.peers[0].sent_bytes() >= least;
    });
    return sent;
  }
  void set_lane_1(SetLane::To to) {
    a_.post(SetLane{0, 7, 1, to});
    b_.post(SetLane{0, 8, 1, to});
  }
  // As the control threads do: both stop, report, and begin the next epoch with the same members.
  void next_epoch() {
    std::map<std::string, core::Report> reports;
    for (DataNode* node : {&a_, &b_}) {
      node->post(FreezeJob{view_.incarnation, view_.epoch});
      core::Report report = *node->next<JobFrozen>().report;
      report.node = node->name();
      report.ranks = view_.members[*view_.index_of(node->name())].ranks;
      report.reachable = {"a", "b"};
      reports[node->name()] = report;
    }
    const auto proposal = core::decide(view_, reports, {}, {}, "a lane was lost");
    ASSERT_TRUE(proposal) << proposal.error();
    EXPECT_THAT(proposal->view.explanation, testing::HasSubstr("after a lane was lost"));
    view_ = proposal->view;
    for (DataNode* node : {&a_, &b_}) {
      node->post(AdoptView{view_.incarnation, std::make_shared<const core::Proposal>(*proposal)});
    }
  }

  transport::Fabric second_;
  DataNode a_{"a", join("a")};
  DataNode b_{"b", join("b")};
  core::View view_ = view_of({{"a", 1}, {"b", 1}}, 1);
  std::vector<float> x_, y_;
};

TEST_F(DataLanes, ShareTheSlices) {
  submit(0);
  expect_sum();
  const std::vector<uint64_t> sent = sent_by_lane(kOfManySlices * sizeof(float));
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_NEAR(static_cast<double>(sent[0]), static_cast<double>(sent[1]), 2 * kSliceBytes);
}

TEST_F(DataLanes, OneThatBreaksIsToldAndTheOtherGoesOn) {
  second_.break_link("a", "b");
  for (DataNode* node : {&a_, &b_}) EXPECT_EQ(node->next<PeerDataLost>().lane, 1);
  submit(0);
  expect_sum();
  EXPECT_EQ(sent_by_lane(kOfManySlices * sizeof(float))[1], 0u);
}

TEST_F(DataLanes, WhatOneSwallowedIsSentInTheNextEpoch) {
  transport::LinkFaults hole;
  hole.black_hole = true;
  second_.set_faults("a", "b", hole);
  submit(0);
  a_.next<Pulse>([](const Pulse& pulse) { return pulse.peers.at(0).lanes.at(1).sent_bytes > 0; });
  set_lane_1(SetLane::To::kClosed);
  next_epoch();
  expect_sum();
}

TEST_F(DataLanes, OneThatIsMendedIsHeardBeforeItCarries) {
  set_lane_1(SetLane::To::kClosed);
  set_lane_1(SetLane::To::kTried);
  a_.next<Pulse>([](const Pulse& pulse) { return pulse.peers.at(0).lanes.at(1).heard; });
  submit(0);
  expect_sum();
  EXPECT_EQ(sent_by_lane(kOfManySlices * sizeof(float))[1], 0u);
  set_lane_1(SetLane::To::kCarries);
  submit(1);
  expect_sum();
  EXPECT_GT(sent_by_lane(2 * kOfManySlices * sizeof(float))[1], 0u);
}

TEST_F(DataLanes, NewsOfAnEarlierConnectionChangeNothing) {
  a_.post(SetLane{0, 6, 1, SetLane::To::kClosed});
  submit(0);
  expect_sum();
  EXPECT_GT(sent_by_lane(kOfManySlices * sizeof(float))[1], 0u);
}

}  // namespace
}  // namespace gradring::daemon
