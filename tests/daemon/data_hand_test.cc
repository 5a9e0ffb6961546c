// What a view change hands out comes from memory that is no trainer's.

#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/core/recovery.h"
#include "tests/daemon/data_node.h"

namespace gradring::daemon {
namespace {

class DataHandTest : public DataThreadTest {
 protected:
  // Both ways between the nodes of these numbers, by links of this number and the next.
  void connect(uint32_t i, uint32_t j, uint64_t link) {
    // What each expects in frames from the other.
    const uint64_t from_j = 10 * i + j + 1, from_i = 10 * j + i + 1;
    nodes_[i]->post(ExpectPeer{j, from_j});
    nodes_[j]->post(ExpectPeer{i, from_i});
    nodes_[i]->post(ConnectPeer{j, link, nodes_[j]->name(), nodes_[j]->addresses(), from_i, 0});
    nodes_[j]->post(ConnectPeer{i, link + 1, nodes_[i]->name(), nodes_[i]->addresses(), from_j, 0});
  }
  void broadcast(uint32_t rank, std::vector<float>& data) {
    core::Submission submission;
    submission.rank = rank;
    submission.ticket = 1;
    submission.key = {0, 0};
    submission.signature = {Collective::kBroadcast, Dtype::kFloat32, ReduceOp::kSum, 2,
                            data.size()};
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    nodes_[rank]->post(Submit{rank + 1000, view_.incarnation, submission, bytes, bytes});
  }
  void until_only_c_is_missing(DataNode& node) {
    std::vector<std::string> missing;
    while (missing != std::vector<std::string>{"c"} && !HasFailure()) {
      node.post(DescribeJob{1, view_.incarnation});
      const auto description = node.next<JobDescription>();
      if (!description.ops.empty()) missing = description.ops[0].missing_nodes;
    }
  }
  void next_epoch() {
    std::map<std::string, core::Report> reports;
    for (DataNode* node : nodes_) {
      node->post(FreezeJob{view_.incarnation, view_.epoch});
      core::Report report = *node->next<JobFrozen>().report;
      report.node = node->name();
      report.ranks = view_.members[*view_.index_of(node->name())].ranks;
      report.reachable = {"a", "b", "c"};
      reports[node->name()] = report;
    }
    const auto proposal = core::decide(view_, reports, {}, {}, "a link broke");
    ASSERT_TRUE(proposal) << proposal.error();
    view_ = proposal->view;
    for (DataNode* node : nodes_) {
      node->post(AdoptView{view_.incarnation, std::make_shared<const core::Proposal>(*proposal)});
    }
  }

  DataNode a_{fabric_, "a"};
  DataNode b_{fabric_, "b"};
  DataNode c_{fabric_, "c"};
  DataNode* const nodes_[3] = {&a_, &b_, &c_};
  core::View view_ = view_of({{"a", 1}, {"b", 1}, {"c", 1}}, 1);
};

// c gives, a has all of it and cannot pass it on to b. More slices than a has slots, so that some
// of what it keeps lay in slots that were used again, and more than it has spare buffers. c has no
// room to keep them all and waits.
TEST_F(DataHandTest, WhatATrainerOverwritesAfterTheEndIsStillHandedOut) {
  constexpr size_t kSlices = 7;
  connect(0, 1, 1);
  connect(0, 2, 3);
  connect(1, 2, 5);
  for (DataNode* node : nodes_) node->install(view_);

  const std::vector<float> given = numbers(kSlices * kSliceBytes / sizeof(float), 3);
  std::vector<float> x(given.size()), y(given.size()), z = given;
  broadcast(0, x);
  broadcast(1, y);
  until_only_c_is_missing(a_);
  until_only_c_is_missing(b_);
  fabric_.break_link("a", "b");
  broadcast(2, z);
  EXPECT_EQ(a_.next<Completed>().outcome.verdict, Verdict::kOk);
  EXPECT_EQ(x, given);
  std::fill(x.begin(), x.end(), -1.0F);

  connect(0, 1, 7);
  next_epoch();
  for (DataNode* node : {&b_, &c_}) {
    EXPECT_EQ(node->next<Completed>().outcome.verdict, Verdict::kOk);
  }
  EXPECT_EQ(y, given);
}

}  // namespace
}  // namespace gradring::daemon
