// What an op costs each member of a job of a thousand nodes with eight ranks each: the thread that
// thinks about it has heartbeats to send.

#include <gtest/gtest.h>

#include <string>

#include "daemon/core/job_engine.h"
#include "tests/core/cpu_seconds.h"
#include "tests/core/no_actions.h"

namespace gradring::core {
namespace {

constexpr uint32_t kNodes = 1000;
constexpr uint32_t kRanks = 8;
constexpr uint64_t kManyOps = 200;

class Hands : public NoActions {
 public:
  void send(uint32_t, const Frame&) override {}
  void send_slice(uint32_t, const Frame&, Staging) override {}
  void send_direct(uint32_t, const Frame&, Staging) override {}
  void complete(uint32_t, uint64_t, const Outcome&) override {}
  void fail_job(const Failure& failure) override { FAIL() << describe(failure); }
  void absent(const Absence&) override {}
  void condemned(const Failure&) override {}
};

// Ranks lie side by side on a node, or go round.
class EngineLarge : public testing::TestWithParam<bool> {};

TEST_P(EngineLarge, AnOpThatNeedsAllRanksTakesNoLongTime) {
  View view;
  view.job = "train";
  view.epoch = 1;
  view.size = kNodes * kRanks;
  view.policy = "elastic";
  for (uint32_t i = 0; i < kNodes; ++i) {
    Member& member = view.members.emplace_back();
    member.node = "cluster-node-" + std::to_string(10000 + i);
    for (uint32_t k = 0; k < kRanks; ++k) {
      const uint32_t rank = GetParam() ? k * kNodes + i : i * kRanks + k;
      member.ranks.push_back({rank, k, 1000, rank});
    }
  }
  constexpr uint32_t kMe = kNodes / 2;
  Hands hands;
  JobEngine engine(view, kMe, EngineOptions{}, &hands);
  const double began = cpu_seconds();
  for (uint64_t number = 0; number < kManyOps; ++number) {
    for (const RankInfo& info : view.members[kMe].ranks) {
      Submission submission;
      submission.rank = submission.position = info.rank;
      submission.ticket = number + 1;
      submission.key = {0, number};
      submission.signature = {Collective::kAllgather, Dtype::kFloat32, ReduceOp::kNone, 0, 16};
      submission.signature.ranks = view.size;
      const Status status = engine.submit(submission, 1);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    const Op* const op = engine.find({0, number});
    ASSERT_NE(op, nullptr);
    ASSERT_TRUE(op->ready_here());
    ASSERT_EQ(op->plan.seats.size(), view.size);
    for (uint32_t rank = 0; rank < view.size; rank += 777) {
      ASSERT_EQ(op->plan.seats[rank].rank, rank);
      ASSERT_EQ(op->plan.seats[rank].member, view.host_of(rank));
    }
  }
  const double took = cpu_seconds() - began;
  EXPECT_LT(took, kCpuSecondsAtMost);
}

INSTANTIATE_TEST_SUITE_P(Placements, EngineLarge, testing::Bool());

}  // namespace
}  // namespace gradring::core
