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

}  // namespace
}  // namespace gradring::core
