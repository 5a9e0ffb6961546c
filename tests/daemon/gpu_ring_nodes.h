#pragma once

// Two nodes with GPUs, whose slices go from there, for tests that are the control thread of both.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/recovery.h"
#include "tests/daemon/data_node.h"
#include "tests/daemon/slow_gpus.h"

namespace gradring::daemon {

inline constexpr float kNever = -1;
inline constexpr uint32_t kLongSlice = 32 << 10;  // over loopback it goes straight

// Nodes a and b have two ranks each, or as many as the test says, and GPUs.
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
    a_.data = std::make_unique<DataNode>(
        fabric_, "a", NodeGpus{a_.gpus, slice_bytes, true, tree_max_, memory_within_});
    b_.data = std::make_unique<DataNode>(fabric_, "b",
                                         NodeGpus{b_.gpus, slice_bytes, direct_on_b, tree_max_});
    connect(*a_.data, *b_.data, bundle_bytes_);
    a_.data->install(view_);
    b_.data->install(view_);
    fill();
  }
  // The nodes end before what they read and write.
  void TearDown() override { end_nodes(); }
  void end_nodes() {
    a_.gpus->let_all();
    b_.gpus->let_all();
    a_.data.reset();
    b_.data.reset();
  }
  void fill() {
    ranks_.clear();
    for (uint32_t rank = 0; rank < 2 * ranks_on_each_; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(floats_, static_cast<float>(rank + 1)));
    }
  }
  Node& node_of(uint32_t rank) { return rank < ranks_on_each_ ? a_ : b_; }
  // Of one that is not on the GPU the shadow is all there is.
  void submit(uint32_t number, uint64_t sequence = 0, bool on_gpu = true) {
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
    if (on_gpu) submit.gpu_input = submit.gpu_output = {&rank.memory, 0};
    node_of(number).data->post(submit);
  }
  void submit_all(uint64_t sequence = 0) {
    for (uint32_t rank = 0; rank < 2 * ranks_on_each_; ++rank) submit(rank, sequence);
  }
  void expect_sums(float factor) {
    for (Node* node : {&a_, &a_, &b_, &b_}) {
      EXPECT_EQ(node->data->next<Completed>().outcome.verdict, Verdict::kOk);
    }
    for (const auto& rank : ranks_) EXPECT_EQ(rank->gpu, numbers(floats_, factor));
  }
  // That of the host's memory: whether it had any part in it.
  void expect_never_by_host(Node& node) {
    EXPECT_THAT(node.gpus->sums(), testing::IsEmpty());
    for (uint32_t rank = 0; rank < 2 * ranks_on_each_; ++rank) {
      if (&node_of(rank) != &node) continue;
      EXPECT_THAT(ranks_[rank]->host, testing::Each(kNever));
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
    freeze();
    adopt_without(lost);
  }
  void freeze() {
    for (Node* node : {&a_, &b_}) node->data->post(FreezeJob{view_.incarnation, view_.epoch});
  }
  std::map<std::string, core::Report> reports() {
    std::map<std::string, core::Report> all;
    for (Node* node : {&a_, &b_}) {
      core::Report report = *node->data->next<JobFrozen>().report;
      report.node = node->data->name();
      report.ranks = view_.members[*view_.index_of(report.node)].ranks;
      report.reachable = {"a", "b"};
      all[report.node] = report;
    }
    return all;
  }
  void adopt_without(uint32_t lost) {
    std::map<std::string, core::Report> all = reports();
    Failure died{Cause::kTrainerDied, {}};
    died.blame.rank = lost;
    core::Report& its = all.at(node_of(lost).data->name());
    its.lost.push_back({lost, died});
    std::erase_if(its.ranks, [lost](const core::RankInfo& info) { return info.rank == lost; });
    const auto proposal = core::decide(view_, all, {}, {}, "a rank died");
    ASSERT_TRUE(proposal) << proposal.error();
    adopt(*proposal);
  }
  void adopt(const core::Proposal& proposal) {
    view_ = proposal.view;
    for (Node* node : {&a_, &b_}) {
      node->data->post(
          AdoptView{view_.incarnation, std::make_shared<const core::Proposal>(proposal)});
    }
  }
  static core::Tuning all_sizes(const core::Choice& choice) {
    core::Tuning tuning;
    for (uint32_t c = 0; c < core::kSizeClasses; ++c) tuning.set({c, choice, {}});
    return tuning;
  }
  // The same ranks, whose allreduces go as `choice` says from now on, whatever their size.
  void retune(const core::Choice& choice) {
    freeze();
    auto proposal = core::decide(view_, reports(), {}, {}, "the test wants another table");
    ASSERT_TRUE(proposal) << proposal.error();
    proposal->view.tuning = all_sizes(choice);
    adopt(*proposal);
  }

  core::View view_ = view_of({{"a", 2}, {"b", 2}}, 1);
  uint32_t ranks_on_each_ = 2;
  Node a_, b_;
  uint64_t bundle_bytes_ = 0;
  uint32_t tree_max_ = 0;
  core::Time memory_within_ = 10 * core::kSecond;
  size_t floats_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks_;
  ReduceOp op_ = ReduceOp::kSum;
  std::array<double, 4> prescale_ = {1, 1, 1, 1};
  double postscale_ = 1;
};

}  // namespace gradring::daemon
