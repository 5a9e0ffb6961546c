// A rank of an elastic job is lost at an awkward moment: while the job forms, or as the last of its
// node while others are lost as well.

#include <gtest/gtest.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

TEST(MembershipRankLost, AnElasticJobFormsWithoutATrainerThatDiesWhileProposed) {
  for (const uint32_t victim : {0u, 1u, 2u}) {
    SCOPED_TRACE(testing::Message() << "rank " << victim);
    Town town(3);
    std::vector<SessionId> sessions;
    for (uint32_t rank = 0; rank < 6; ++rank) {
      JoinRequest request = trainer(rank, 6);
      request.policy = "elastic";
      sessions.push_back(town.join(node_of(rank / 2), request));
    }
    town.hold("c", "a");  // c's answer does not come
    while (town.deliver("b", "a") || town.deliver("a", "b") || town.deliver("a", "c") ||
           town.deliver("b", "c") || town.deliver("c", "b")) {
    }
    town.release("c", "a");
    while (town.engines("a") == 0) ASSERT_TRUE(town.deliver("c", "a"));
    while (town.deliver("a", "b") || town.deliver("a", "c")) {
    }
    ASSERT_EQ(town.engines("b") + town.engines("c"), 2u) << "both have accepted";
    town.die(sessions[2 * victim]);  // of each node one
    town.settle();
    for (uint32_t rank = 0; rank < 6; ++rank) {
      if (rank == 2 * victim) continue;
      EXPECT_TRUE(town.admitted(sessions[rank])) << town.refusal(sessions[rank]);
    }
    EXPECT_EQ(town.at("b").view_of(sessions[3])->size, 5u);
  }
}

TEST(MembershipRankLost, AnElasticFormationThatIsWithdrawnForgetsWhoDiedMeanwhile) {
  Town town(2);
  JoinRequest zero = trainer(0, 2), one = trainer(1, 2);
  zero.policy = one.policy = "elastic";
  const SessionId first = town.join("a", zero);
  const SessionId second = town.join("b", one);
  while (town.engines("b") == 0) {
    ASSERT_TRUE(town.deliver("b", "a") || town.deliver("a", "b"));
  }
  town.die(second);
  town.cut("a", "b");
  EXPECT_TRUE(town.waits(first));
  EXPECT_EQ(town.engines("b"), 0u);
  EXPECT_TRUE(town.at("b").jobs().empty());
  town.connect("a", "b");
  const SessionId again = town.join("b", one);
  town.run();
  EXPECT_TRUE(town.admitted(first) && town.admitted(again));
}

TEST(MembershipRankLost, ANodeWhoseLastRankDiedIsNotLeftOutBecauseAnotherRankDies) {
  // Its ops, and what it holds of them, still count: so it stays until it is drained.
  Town town(3);
  town.drains_at_once = false;
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 4; ++rank) {  // two on a
    JoinRequest request = trainer(rank, 4);
    request.policy = "elastic";
    sessions.push_back(town.join(node_of(rank / 2 + rank / 3), request));
  }
  town.run();
  const JobId job = town.job_of(sessions[0]);
  town.die(sessions[3]);  // the only one of c
  town.run();
  EXPECT_EQ(town.at("a").view_of(job)->epoch, 1u) << "what it left behind may yet complete";
  town.die(sessions[1]);
  town.run();
  EXPECT_EQ(town.at("a").view_of(job)->epoch, 2u);
  EXPECT_TRUE(town.at("a").view_of(job)->index_of("c"));
  town.drain("c");
  town.run();
  EXPECT_EQ(town.at("a").view_of(job)->epoch, 3u);
  EXPECT_FALSE(town.at("a").view_of(job)->index_of("c"));
  EXPECT_TRUE(town.admitted(sessions[0]) && town.admitted(sessions[2]));
}

TEST(MembershipRankLost, ALastWillThatCannotCompleteIsNotWaitedFor) {
  Town town(2);
  town.drains_at_once = false;
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    JoinRequest request = trainer(rank, 2);
    request.policy = "elastic";
    sessions.push_back(town.join(node_of(rank), request));
  }
  town.run();
  const JobId job = town.job_of(sessions[0]);
  town.die(sessions[1]);
  town.run();
  ASSERT_TRUE(town.at("a").view_of(job)->index_of("b"));
  Absence absence{1, "b", {Cause::kTrainerDied, {}}};
  town.at("b").engine_absent(job, absence);
  town.run();
  EXPECT_TRUE(town.at("a").view_of(job)->index_of("b")) << "others may still complete";
  absence.unfinished = true;
  town.at("b").engine_absent(job, absence);
  town.run();
  EXPECT_FALSE(town.at("a").view_of(job)->index_of("b"));
}

TEST(MembershipRankLost, ALastWillIsNotWaitedForLonger) {
  Town town(2);
  town.drains_at_once = false;
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 3; ++rank) {  // two on a
    JoinRequest request = trainer(rank, 3);
    request.policy = "elastic";
    sessions.push_back(town.join(node_of(rank / 2), request));
  }
  town.run();
  const JobId job = town.job_of(sessions[0]);
  town.die(sessions[2]);
  town.tick(1500 * kMillisecond);
  town.die(sessions[1]);
  town.run();
  EXPECT_EQ(town.at("a").view_of(job)->size, 2u);
  town.tick(499 * kMillisecond);
  town.run();
  EXPECT_TRUE(town.at("a").view_of(job)->index_of("b"));
  town.tick(2 * kMillisecond);
  town.run();
  EXPECT_FALSE(town.at("a").view_of(job)->index_of("b"));
}

// What the engine reports counts on what that one left behind, of which not all may ever come.
TEST(MembershipRankLost, OneThatDiesAfterItsEngineWasAskedIsLostToTheNextView) {
  Town town(2);
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 4; ++rank) {  // three on a
    JoinRequest request = trainer(rank, 4);
    request.policy = "elastic";
    sessions.push_back(town.join(node_of(rank / 3), request));
  }
  town.run();
  const JobId job = town.job_of(sessions[0]);
  town.die(sessions[0]);
  town.die(sessions[1]);
  ASSERT_TRUE(town.report("a"));
  while (town.at("a").view_of(job)->epoch == 1) {
    ASSERT_TRUE(town.deliver("a", "b") || town.deliver("b", "a") || town.report("b"));
  }
  EXPECT_EQ(town.at("a").view_of(job)->size, 3u);
  town.run();
  EXPECT_EQ(town.at("a").view_of(job)->size, 2u);
  EXPECT_TRUE(town.admitted(sessions[2]) && town.admitted(sessions[3]));
}

}  // namespace
}  // namespace gradring::core
