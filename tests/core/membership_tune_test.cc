// The table by which sums go, as part of a job's view: which one it begins with, and when another
// one can be asked for.

#include <gtest/gtest.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

Tuning some_table() {
  Tuning table;
  table.set({10, {Choice::Way::kRing, 64 << 10}, {}});
  return table;
}

// Ranks 0, 1, 2 of an elastic job on a, b, c.
std::vector<SessionId> elastic_trio(Town* town) {
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    JoinRequest request = trainer(rank, 3);
    request.policy = "elastic";
    sessions.push_back(town->join(std::string(1, static_cast<char>('a' + rank)), request));
  }
  town->run();
  return sessions;
}

const View& view_on(Town& town, const std::string& node, SessionId session) {
  return *town.at(node).view_of(session);
}

TEST(MembershipTune, EveryNodeGetsTheTableThatOneAsksFor) {
  Town town(3);
  const auto sessions = elastic_trio(&town);
  const JobId job = town.job_of(sessions[0]);
  ASSERT_TRUE(town.at("a").tune(job, some_table()));
  town.settle();
  EXPECT_EQ(view_on(town, "c", sessions[2]).epoch, 2u);
  EXPECT_EQ(view_on(town, "c", sessions[2]).tuning, some_table());
  EXPECT_EQ(view_on(town, "c", sessions[2]).size, 3u);
}

TEST(MembershipTune, ANodeThatWasLostKeepsNobodyFromAnotherTable) {
  Town town(3);
  const auto sessions = elastic_trio(&town);
  const JobId job = town.job_of(sessions[1]);
  town.crash("a");
  EXPECT_FALSE(town.at("b").tune(job, some_table())) << "first they agree on who is left";
  town.settle();
  ASSERT_EQ(view_on(town, "b", sessions[1]).epoch, 2u);
  EXPECT_TRUE(town.at("b").tune(job, some_table()));
  town.settle();
  EXPECT_EQ(view_on(town, "c", sessions[2]).tuning, some_table());
  EXPECT_EQ(view_on(town, "c", sessions[2]).size, 2u);
}

TEST(MembershipTune, AJobThatEndsIsLeftAlone) {
  Town town(3);
  const auto sessions = elastic_trio(&town);
  const JobId job = town.job_of(sessions[0]);
  town.leave(sessions[2]);
  town.run();
  EXPECT_FALSE(town.at("a").tune(job, some_table())) << "c is done";
  EXPECT_FALSE(town.at("a").tune({1, 2, 3}, some_table())) << "no such job";
}

TEST(MembershipTune, OneRankMakesAJobDeterministic) {
  for (const bool asks : {false, true}) {
    Town town(3);
    JoinRequest last = trainer(2, 3);
    last.deterministic = asks;
    const SessionId first = town.join("a", trainer(0, 3));
    town.join("b", trainer(1, 3));
    const SessionId third = town.join("c", last);
    town.run();
    EXPECT_EQ(view_on(town, "a", first).tuning.fixed, asks);
    EXPECT_EQ(view_on(town, "c", third).tuning.fixed, asks);
  }
}

}  // namespace
}  // namespace gradring::core
