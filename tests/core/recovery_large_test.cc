// What a view of a thousand nodes costs the one that decides on it, which says nothing to the
// others meanwhile: were it long, they would take that one for dead as well.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "daemon/core/recovery.h"
#include "tests/core/cpu_seconds.h"

namespace gradring::core {
namespace {

constexpr uint32_t kNodes = 1000;
constexpr uint32_t kOps = 200;
constexpr uint32_t kDead = 500;

std::string host(uint32_t node) { return "cluster-node-" + std::to_string(10000 + node); }

struct Large {
  explicit Large(Collective collective = Collective::kAllreduce, uint32_t ranks = 1) {
    view.job = "train";
    view.epoch = 1;
    view.size = kNodes * ranks;
    view.policy = "elastic";
    for (uint32_t i = 0; i < kNodes; ++i) {
      Member& member = view.members.emplace_back();
      member.node = host(i);
      for (uint32_t k = 0; k < ranks; ++k) {
        const uint32_t rank = i * ranks + k;
        member.ranks.push_back({rank, k, 1000 + int64_t{rank}, rank});
      }
    }
    for (uint32_t i = 0; i < kNodes; ++i) {
      if (i == kDead) continue;
      Report& report = reports[host(i)];
      report.node = host(i);
      report.ranks = view.members[i].ranks;
      for (uint32_t other = 0; other < kNodes; ++other) {
        if (other != i && other != kDead) report.reachable.push_back(host(other));
      }
      for (uint64_t k = 0; k < kOps; ++k) {
        OpReport& op = report.ops.emplace_back();
        op.key = {0, k};
        op.signature = {collective, Dtype::kFloat32, ReduceOp::kSum, 0, 4096};
        if (needs_all_ranks(collective)) op.signature->ranks = view.size;
        op.contributions = ranks;
        op.expected = view.size;
      }
    }
  }

  View view;
  std::map<std::string, Report> reports;
};

TEST(RecoveryLarge, AViewOfAThousandNodesIsDecidedInAMoment) {
  const Large large;
  const double began = cpu_seconds();
  const auto proposal = decide(large.view, large.reports, {}, {});
  const double took = cpu_seconds() - began;
  ASSERT_TRUE(proposal) << proposal.error();
  EXPECT_EQ(proposal->view.members.size(), kNodes - 1);
  EXPECT_EQ(proposal->ops.all().size(), kOps);
  EXPECT_LT(took, kCpuSecondsAtMost);
}

// Of each op the rank that is gone is to be named, of thousands.
TEST(RecoveryLarge, OpsThatNeedAllRanksAreDecidedInAMoment) {
  const Large large(Collective::kReduceScatter, 16);
  const double began = cpu_seconds();
  const auto proposal = decide(large.view, large.reports, {}, {});
  const double took = cpu_seconds() - began;
  ASSERT_TRUE(proposal) << proposal.error();
  ASSERT_EQ(proposal->ops.all().size(), kOps);
  for (const OpFate& fate : proposal->ops.all()) {
    EXPECT_EQ(fate.kind, OpFate::Kind::kFail);
    EXPECT_EQ(fate.failure.blame.rank, kDead * 16);
    EXPECT_EQ(fate.failure.blame.node, host(kDead));
  }
  EXPECT_LT(took, kCpuSecondsAtMost);
}

TEST(RecoveryLarge, AHundredThatNobodyReachesGoOneAfterTheOther) {
  Large large;
  for (uint32_t i = 0; i < kNodes; i += 10) {
    if (i != kDead) large.reports[host(i)].reachable.clear();
  }
  const double began = cpu_seconds();
  const std::vector<std::string> members = choose_members(large.view, large.reports);
  const double took = cpu_seconds() - began;
  std::vector<std::string> expected;
  for (uint32_t i = 0; i < kNodes; ++i) {
    if (i % 10 != 0) expected.push_back(host(i));
  }
  EXPECT_EQ(members, expected);
  EXPECT_LT(took, kCpuSecondsAtMost);
}

TEST(RecoveryLarge, TheVotesOfAThousandAreCountedAtEach) {
  const Large large;
  const double began = cpu_seconds();
  for (const bool lowest_first : {true, false}) {
    std::vector<std::string> votes;
    for (uint32_t i = 0; i < kNodes; ++i) {
      votes.push_back(host(lowest_first ? i : kNodes - 1 - i));
      const bool half = 2 * votes.size() == kNodes;
      EXPECT_EQ(is_quorum(large.view, votes), half ? lowest_first : 2 * votes.size() > kNodes);
    }
  }
  EXPECT_LT(cpu_seconds() - began, kCpuSecondsAtMost);
}

}  // namespace
}  // namespace gradring::core
