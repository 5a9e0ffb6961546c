// An elastic job whose ranks come back before its end is known everywhere: its next life.

#include <gmock/gmock.h>

#include <vector>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

TEST(MembershipAgain, AJobThatAllHaveLeftFormsAnewWhenItIsOver) {
  Town town(1);
  town.drains_at_once = false;
  std::vector<SessionId> first, second;
  for (const uint32_t rank : {0u, 1u}) first.push_back(town.join("a", elastic(rank, 2)));
  town.run();
  const JobId before = town.job_of(first[0]);
  for (const SessionId session : first) town.leave(session);
  for (const uint32_t rank : {0u, 1u}) second.push_back(town.join("a", elastic(rank, 2)));
  town.run();
  EXPECT_TRUE(town.waits(second[0])) << "what is left of the first life is under way yet";
  town.drain("a");
  town.run();
  for (const SessionId session : second) {
    ASSERT_TRUE(town.admitted(session)) << town.refusal(session);
    EXPECT_NE(town.job_of(session), before);
  }
}

TEST(MembershipAgain, ThoughSomeNodesHearLaterThanOthersThatItIsOver) {
  Town town(2);
  std::vector<SessionId> first, second;
  for (const uint32_t rank : {0u, 1u}) first.push_back(town.join(node_of(rank), elastic(rank, 2)));
  town.run();
  town.drains_at_once = false;
  for (const SessionId session : first) town.leave(session);
  for (const uint32_t rank : {0u, 1u}) second.push_back(town.join(node_of(rank), elastic(rank, 2)));
  town.run();
  for (const char* node : {"b", "a"}) {
    town.drain(node);
    town.run();
  }
  for (const SessionId session : second) EXPECT_TRUE(town.admitted(session));
}

// Its launcher has started all ranks anew on the node that is left, which waits for the other.
TEST(MembershipAgain, AJobThatHasLostItsQuorumFormsAnewWhenItGivesUp) {
  for (const bool old_one_stays : {false, true}) {
    Town town(2);
    std::vector<SessionId> first, second;
    for (const uint32_t rank : {0u, 1u}) {
      first.push_back(town.join(node_of(rank), elastic(rank, 2)));
    }
    town.run();
    town.crash("a");
    if (!old_one_stays) town.die(first[1]);
    for (const uint32_t rank : {0u, 1u}) second.push_back(town.join("b", elastic(rank, 2)));
    town.run();
    EXPECT_TRUE(town.waits(second[0])) << "a may come back, and the job go on";
    town.settle();
    EXPECT_EQ(town.closed(first[1]).has_value(), old_one_stays);
    for (const SessionId session : second) EXPECT_TRUE(town.admitted(session));
  }
}

// Its launcher has started all ranks anew while the first one of rank 0 has not even noticed.
TEST(MembershipAgain, AJobThatHasTooFewRanksFormsAnewThoughOneOfThemStays) {
  Town town(2);
  std::vector<SessionId> first, second;
  const auto request = [](uint32_t rank) {
    JoinRequest as = elastic(rank, 2);
    as.policy = "elastic min=2";
    return as;
  };
  for (const uint32_t rank : {0u, 1u}) first.push_back(town.join(node_of(rank), request(rank)));
  town.run();
  town.die(first[1]);
  for (const uint32_t rank : {0u, 1u}) second.push_back(town.join(node_of(rank), request(rank)));
  EXPECT_TRUE(town.admitted(first[0]));
  town.settle();
  EXPECT_TRUE(town.closed(first[0]));
  for (const SessionId session : second) EXPECT_TRUE(town.admitted(session));
}

// Rank 0 was to be taken in. Rank 1 had left, and waited for its place to be free.
TEST(MembershipAgain, AGuestKnowsWhoElseWaitedWhenTheJobIsOverInstead) {
  Town town(3);
  std::vector<SessionId> first, second(3);
  for (const uint32_t rank : {0u, 1u, 2u}) {
    first.push_back(town.join(node_of(rank), elastic(rank, 3)));
  }
  town.run();
  town.die(first[0]);
  town.settle();
  town.leave(first[1]);
  second[1] = town.join("b", elastic(1, 3));
  town.run();
  second[0] = town.join("a", elastic(0, 3));
  town.run();
  ASSERT_EQ(town.engines("a"), 1u) << "it waits for a join point";
  town.leave(first[2]);
  town.run();
  second[2] = town.join("c", elastic(2, 3));
  town.run();
  town.tick(1 * kSecond);
  town.run();
  for (const SessionId session : second) EXPECT_TRUE(town.admitted(session));
}

}  // namespace
}  // namespace gradring::core
