// What a view of a thousand nodes costs the one that decides on it, which says nothing to the
// others meanwhile: were it long, they would take that one for dead as well.

#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/recovery.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

constexpr uint32_t kNodes = 1000;
constexpr uint32_t kOps = 200;
constexpr uint32_t kDead = 500;
constexpr double kSecondsAtMost = kSanitized ? 60 : 5;  // a tenth of it or less

std::string host(uint32_t node) { return "cluster-node-" + std::to_string(10000 + node); }

struct Large {
  Large() {
    view.job = "train";
    view.epoch = 1;
    view.size = kNodes;
    view.policy = "elastic";
    for (uint32_t i = 0; i < kNodes; ++i) {
      view.members.push_back({host(i), {{i, 0, 1000 + int64_t{i}, i}}});
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
        op.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 4096};
        op.contributions = 1;
        op.expected = kNodes;
      }
    }
  }

  View view;
  std::map<std::string, Report> reports;
};

double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

TEST(RecoveryLarge, AViewOfAThousandNodesIsDecidedInAMoment) {
  const Large large;
  const double began = seconds();
  const auto proposal = decide(large.view, large.reports, {}, {});
  const double took = seconds() - began;
  ASSERT_TRUE(proposal) << proposal.error();
  EXPECT_EQ(proposal->view.members.size(), kNodes - 1);
  EXPECT_EQ(proposal->ops.all().size(), kOps);
  EXPECT_LT(took, kSecondsAtMost);
}

TEST(RecoveryLarge, AHundredThatNobodyReachesGoOneAfterTheOther) {
  Large large;
  for (uint32_t i = 0; i < kNodes; i += 10) {
    if (i != kDead) large.reports[host(i)].reachable.clear();
  }
  const double began = seconds();
  const std::vector<std::string> members = choose_members(large.view, large.reports);
  const double took = seconds() - began;
  std::vector<std::string> expected;
  for (uint32_t i = 0; i < kNodes; ++i) {
    if (i % 10 != 0) expected.push_back(host(i));
  }
  EXPECT_EQ(members, expected);
  EXPECT_LT(took, kSecondsAtMost);
}

TEST(RecoveryLarge, TheVotesOfAThousandAreCountedAtEach) {
  const Large large;
  const double began = seconds();
  for (const bool lowest_first : {true, false}) {
    std::vector<std::string> votes;
    for (uint32_t i = 0; i < kNodes; ++i) {
      votes.push_back(host(lowest_first ? i : kNodes - 1 - i));
      const bool half = 2 * votes.size() == kNodes;
      EXPECT_EQ(is_quorum(large.view, votes), half ? lowest_first : 2 * votes.size() > kNodes);
    }
  }
  EXPECT_LT(seconds() - began, kSecondsAtMost);
}

}  // namespace
}  // namespace gradring::core
