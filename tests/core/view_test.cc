#include "daemon/core/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradring::core {
namespace {

RankInfo rank(uint32_t number) { return {number, number, 1000 + int64_t{number}, number}; }

View two_nodes() {
  View view;
  view.job = "train";
  view.epoch = 1;
  view.size = 4;
  view.members = {{"a", {rank(0), rank(1)}}, {"b", {rank(2), rank(3)}}};
  return view;
}

TEST(View, AGoodOneHasNoFault) {
  EXPECT_EQ(fault_of(two_nodes()), "");
  View interleaved = two_nodes();
  interleaved.members = {{"a", {rank(0), rank(2)}}, {"b", {rank(1), rank(3)}}};
  EXPECT_EQ(fault_of(interleaved), "");
}

TEST(View, WithoutRanksIsAFault) {
  View view;
  EXPECT_EQ(fault_of(view), "the view has no ranks");
  view = two_nodes();
  view.members.push_back({"c", {}});
  EXPECT_EQ(fault_of(view), "node c has no ranks");
  view.members.clear();
  EXPECT_EQ(fault_of(view), "0 of 4 ranks are there");
}

TEST(View, ANodeTwiceIsAFault) {
  View view = two_nodes();
  view.members[1].node = "a";
  EXPECT_EQ(fault_of(view), "node a is listed twice");
}

TEST(View, ARankOutsideTheSizeIsAFault) {
  View view = two_nodes();
  view.members[1].ranks[1] = rank(4);
  EXPECT_EQ(fault_of(view), "rank 4 is outside the job's size 4");
}

TEST(View, ARankTwiceIsAFaultOnOneNodeAndOnTwo) {
  View view = two_nodes();
  view.members[1].ranks[0] = rank(1);
  EXPECT_EQ(fault_of(view), "rank 1 is there twice");
  view = two_nodes();
  view.members[0].ranks[1] = rank(0);
  EXPECT_EQ(fault_of(view), "rank 0 is there twice");
}

TEST(View, RanksOutOfOrderAreAFault) {
  View view = two_nodes();
  std::swap(view.members[0].ranks[0], view.members[0].ranks[1]);
  EXPECT_EQ(fault_of(view), "the ranks of node a are out of order");
}

TEST(View, AMissingRankIsAFault) {
  View view = two_nodes();
  view.members[1].ranks.pop_back();
  EXPECT_EQ(fault_of(view), "3 of 4 ranks are there");
}

TEST(View, FindsNodesAndRanks) {
  const View view = two_nodes();
  EXPECT_EQ(view.index_of("b"), std::optional<uint32_t>(1));
  EXPECT_EQ(view.index_of("z"), std::nullopt);
  EXPECT_EQ(view.host_of(1), 0u);
  EXPECT_EQ(view.host_of(2), 1u);
  EXPECT_EQ(view.info_of(3).pid, 1003);
}

TEST(ViewDeathTest, AskingForARankOutsideTheViewIsABugOfOurs) {
  EXPECT_DEATH(two_nodes().host_of(4), "rank outside the view");
}

TEST(View, TheRingFollowsTheRanksNotTheNames) {
  std::vector<Member> members = {
      {"a", {rank(5), rank(4)}}, {"b", {rank(1)}}, {"c", {rank(3), rank(0)}}, {"d", {rank(2)}}};
  sort_into_ring(&members);
  std::vector<std::string> ring;
  for (const Member& member : members) ring.push_back(member.node);
  EXPECT_EQ(ring, (std::vector<std::string>{"c", "b", "d", "a"}));
  EXPECT_EQ(members[0].ranks, (std::vector<RankInfo>{rank(0), rank(3)}));
  EXPECT_EQ(members[3].ranks, (std::vector<RankInfo>{rank(4), rank(5)}));
}

// ---- later epochs ----

View of_nodes(const std::vector<std::string>& nodes) {
  View view;
  view.epoch = 3;
  for (const std::string& node : nodes) view.members.push_back({node, {rank(view.size++)}});
  return view;
}

TEST(View, AQuorumIsMoreThanHalfOrTheHalfWithTheLowest) {
  const View three = of_nodes({"b", "a", "c"});  // ring order is not the order of names
  EXPECT_TRUE(is_quorum(three, {"b", "c"}));
  EXPECT_FALSE(is_quorum(three, {"a"}));
  const View four = of_nodes({"d", "c", "b", "a"});
  EXPECT_TRUE(is_quorum(four, {"a", "d"}));
  EXPECT_FALSE(is_quorum(four, {"b", "c"}));
  EXPECT_TRUE(is_quorum(four, {"b", "c", "d"}));
  const View two = of_nodes({"b", "a"});
  EXPECT_TRUE(is_quorum(two, {"a"}));
  EXPECT_FALSE(is_quorum(two, {"b"}));
  EXPECT_TRUE(is_quorum(of_nodes({"a"}), {"a"}));
  EXPECT_FALSE(is_quorum(two, {"b", "x", "y", "b"})) << "strangers and echoes have no vote";
}

TEST(View, AnyTwoQuorumsHaveAMemberInCommon) {
  for (uint32_t n = 1; n <= 6; ++n) {
    std::vector<std::string> names;
    for (uint32_t i = 0; i < n; ++i) names.emplace_back(1, static_cast<char>('a' + (i + 1) % n));
    const View view = of_nodes(names);
    for (uint32_t one = 0; one < 1u << n; ++one) {
      for (uint32_t other = 0; other < 1u << n; ++other) {
        if ((one & other) != 0) continue;
        const auto chosen = [&](uint32_t bits) {
          std::vector<std::string> list;
          for (uint32_t i = 0; i < n; ++i) {
            if ((bits >> i & 1) != 0) list.push_back(names[i]);
          }
          return list;
        };
        EXPECT_FALSE(is_quorum(view, chosen(one)) && is_quorum(view, chosen(other)));
      }
    }
  }
}

TEST(View, ALostRankLeavesAGap) {
  View view = two_nodes();
  view.epoch = 2;
  view.size = 3;
  view.members[0].ranks = {rank(1)};
  EXPECT_EQ(fault_of(view), "");
  EXPECT_FALSE(view.has(0));
  EXPECT_EQ(view.host_of(3), 1u);
  view.epoch = 1;
  EXPECT_EQ(fault_of(view), "rank 3 is outside the job's size 3") << "it forms without gaps";
}

TEST(View, OnlyAClosedOneHasNodesWithoutRanks) {
  View view = two_nodes();
  view.epoch = 2;
  view.size = 2;
  view.members[1].ranks.clear();
  EXPECT_EQ(fault_of(view), "node b has no ranks");
  view.closed = Failure{Cause::kTrainerDied, {}};
  EXPECT_EQ(fault_of(view), "");
  std::swap(view.members[0], view.members[1]);
  sort_into_ring(&view.members);
  EXPECT_EQ(view.members[1].node, "b") << "they come last";
}

TEST(View, TheOldestRankIsTheLowestOfThoseWhoAreThereLongest) {
  View view = two_nodes();
  EXPECT_EQ(view.oldest_rank(), 0u);
  view.members[0].ranks[0].since = 4;  // a new process of that number
  EXPECT_EQ(view.oldest_rank(), 1u);
  view.members[0].ranks[1].since = 3;
  EXPECT_EQ(view.oldest_rank(), 2u);
}

}  // namespace
}  // namespace gradring::core
