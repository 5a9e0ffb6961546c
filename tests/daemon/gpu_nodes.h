#pragma once

// A node with GPUs beside one that has none, for tests that are the control thread of both.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/recovery.h"
#include "tests/daemon/data_node.h"
#include "tests/daemon/slow_gpus.h"

namespace gradring::daemon {

inline constexpr uint64_t kPartBytes = 64 << 10;
inline constexpr float kUntouched = -1;

// Node a has ranks 0 and 1, and GPUs; node b has rank 2, and none. The nodes end with the test's
// body, before what they read and write.
class GpuNodes : public DataThreadTest {
 protected:
  void SetUp() override {
    connect(a_, b_);
    a_.install(view_);
    b_.install(view_);
  }
  void TearDown() override {
    node_a_.reset();
    node_b_.reset();
  }
  Verdict end_on(DataNode& node) { return node.next<Completed>().outcome.verdict; }
  uint32_t final_slices(DataNode& node) {
    node.post(DescribeJob{1, view_.incarnation});
    const auto description = node.next<JobDescription>();
    return description.ops.empty() ? 0 : description.ops[0].slices_final;
  }
  void until_final_on_b(uint32_t least) {
    while (final_slices(b_) < least && !HasFailure()) std::this_thread::sleep_for(1ms);
  }
  // But for its GPUs.
  void until_over_on_a() {
    uint32_t open = 1;
    while (open > 0 && !HasFailure()) {
      a_.post(DescribeJob{1, view_.incarnation});
      open = a_.next<JobDescription>().ops_open;
    }
  }
  std::vector<DataNode*> members_of_view() {
    std::vector<DataNode*> members = {&a_, &b_};
    std::erase_if(members, [this](DataNode* node) { return !view_.index_of(node->name()); });
    return members;
  }
  // Without this rank of node a.
  void next_epoch(uint32_t lost) {
    std::map<std::string, core::Report> reports;
    Failure died{Cause::kTrainerDied, {}};
    died.blame.rank = lost;
    const std::vector<DataNode*> members = members_of_view();
    for (DataNode* node : members) {
      node->post(FreezeJob{view_.incarnation, view_.epoch});
      core::Report report = *node->next<JobFrozen>().report;
      report.node = node->name();
      report.ranks = view_.members[*view_.index_of(node->name())].ranks;
      std::erase_if(report.ranks, [lost](const core::RankInfo& info) { return info.rank == lost; });
      if (node == &a_) report.lost.push_back({lost, died});
      report.reachable = {"a", "b"};
      reports[node->name()] = report;
    }
    const auto proposal = core::decide(view_, reports, {}, {}, "a rank died");
    ASSERT_TRUE(proposal) << proposal.error();
    view_ = proposal->view;
    for (DataNode* node : members) {
      node->post(AdoptView{view_.incarnation, std::make_shared<const core::Proposal>(*proposal)});
    }
  }
  // Node b is gone.
  void next_epoch_of_a_alone() {
    a_.post(FreezeJob{view_.incarnation, view_.epoch});
    core::Report report = *a_.next<JobFrozen>().report;
    report.node = "a";
    report.ranks = view_.members[*view_.index_of("a")].ranks;
    Failure gone{Cause::kPeerLost, {}};
    gone.blame.node = "b";
    const auto proposal = core::decide(view_, {{"a", report}}, {{"b", gone}}, {}, "b is gone");
    ASSERT_TRUE(proposal) << proposal.error();
    view_ = proposal->view;
    a_.post(AdoptView{view_.incarnation, std::make_shared<const core::Proposal>(*proposal)});
  }
  // Ops of rank 0 whose input is not all there.
  uint32_t coming_on_a() {
    a_.post(DescribeJob{1, view_.incarnation});
    return a_.next<JobDescription>().ranks.at(0).held;
  }
  // At a join point, where the ranks of node a are new ones.
  void grow() {
    core::Proposal proposal{view_, {}};
    core::View& next = proposal.view;
    next.grown = ++next.epoch;
    for (core::RankInfo& info : next.members[0].ranks) info.since = next.epoch;
    for (DataNode* node : {&a_, &b_}) {
      node->post(FreezeJob{view_.incarnation, view_.epoch});
      node->next<JobFrozen>();
    }
    view_ = next;
    for (DataNode* node : {&a_, &b_}) {
      node->post(AdoptView{view_.incarnation, std::make_shared<const core::Proposal>(proposal)});
    }
  }
  // `gpu`: which it has lost.
  void leave(uint32_t rank, const std::string& gpu = "") {
    Failure died{Cause::kTrainerDied, {}};
    died.blame.rank = rank;
    died.blame.device = gpu;
    a_.post(LeaveRank{view_.incarnation, rank, died});
  }

  core::View view_ = view_of({{"a", 2}, {"b", 1}}, 1);
  std::shared_ptr<SlowGpus> gpus_ = std::make_shared<SlowGpus>();
  std::unique_ptr<DataNode> node_a_ = std::make_unique<DataNode>(fabric_, "a", NodeGpus{gpus_});
  std::unique_ptr<DataNode> node_b_ = std::make_unique<DataNode>(fabric_, "b");
  DataNode& a_ = *node_a_;
  DataNode& b_ = *node_b_;
};

}  // namespace gradring::daemon
