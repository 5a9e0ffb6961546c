// One part is lost: the job ends everywhere, each trainer is told once, with the cause.

#include <gmock/gmock.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string node_of(uint32_t rank) { return std::string(1, static_cast<char>('a' + rank)); }

std::vector<SessionId> join_one_rank_each(Town* town, uint32_t ranks) {
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    sessions.push_back(town->join(node_of(rank), trainer(rank, ranks)));
  }
  return sessions;
}

TEST(MembershipFail, ATrainerThatDiesWhileGatheringIsReplaced) {
  Town town(2);
  const SessionId zero = town.join("a", trainer(0, 3));
  const SessionId one = town.join("b", trainer(1, 3));
  town.run();
  town.die(one);
  town.run();
  EXPECT_TRUE(town.waits(zero)) << "nothing has begun";
  EXPECT_EQ(town.at("a").jobs().at(0).missing_ranks, (std::vector<uint32_t>{1, 2}));
  const SessionId new_one = town.join("a", trainer(1, 3));  // elsewhere, even
  const SessionId two = town.join("b", trainer(2, 3));
  town.run();
  for (const SessionId session : {zero, new_one, two}) EXPECT_TRUE(town.admitted(session));
}

TEST(MembershipFail, ATrainerThatDiesOrLeavesWhileProposedFailsTheFormation) {
  for (const bool dies : {true, false}) {
    for (const uint32_t victim : {0u, 1u}) {
      SCOPED_TRACE(testing::Message() << "rank " << victim << (dies ? " dies" : " leaves"));
      Town town(3);
      town.hold("c", "a");  // c's answer does not come
      const std::vector<SessionId> sessions = join_one_rank_each(&town, 3);
      town.deliver("c", "a");
      town.deliver("b", "a");
      while (town.deliver("a", "b")) {
      }
      while (town.deliver("a", "c")) {
      }
      ASSERT_EQ(town.engines("a") + town.engines("b") + town.engines("c"), 3u);
      if (dies) {
        town.die(sessions[victim]);
      } else {
        town.leave(sessions[victim]);
      }
      while (town.deliver("b", "a")) {
      }
      town.release("c", "a");
      town.run();
      for (uint32_t rank = 0; rank < 3; ++rank) {
        if (rank == victim) continue;
        EXPECT_THAT(town.refusal(sessions[rank]),
                    AllOf(HasSubstr("job train"), HasSubstr("rank " + std::to_string(victim)),
                          HasSubstr(dies ? "killed by signal 9" : "left while the job formed")));
        EXPECT_EQ(town.engines(node_of(rank)), 0u);
      }
    }
  }
}

TEST(MembershipFail, ATrainerThatDiesEndsTheJobEverywhereOnce) {
  Town town(3);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 3);
  town.run();
  town.die(sessions[1], "exited with status 1");
  town.run();
  for (const uint32_t rank : {0u, 2u}) {
    ASSERT_TRUE(town.closed(sessions[rank]).has_value());
    const Failure failure = *town.closed(sessions[rank]);
    EXPECT_EQ(failure.cause, Cause::kTrainerDied);
    EXPECT_EQ(failure.blame.rank, 1u);
    EXPECT_EQ(failure.blame.node, "b");
    EXPECT_EQ(failure.blame.pid, town.pid_of(sessions[1]));
    EXPECT_EQ(failure.blame.evidence, "exited with status 1");
    EXPECT_THAT(town.failed_engines(node_of(rank)), ElementsAre(failure));
    EXPECT_EQ(town.at(node_of(rank)).jobs().at(0).state, JobState::kFailed);
    town.leave(sessions[rank]);
    EXPECT_EQ(town.engines(node_of(rank)), 0u) << "the last trainer is out of it";
  }
  EXPECT_EQ(town.engines("b"), 0u);
}

TEST(MembershipFail, TheFirstCauseHeardIsTheOneThatIsTold) {
  Town town(2);
  const SessionId zero = town.join("a", trainer(0, 3));
  const SessionId one = town.join("b", trainer(1, 3));
  const SessionId two = town.join("b", trainer(2, 3));
  town.run();
  town.die(one);
  town.die(two);
  town.at("a").engine_failed(town.job_of(zero), {Cause::kProtocol, {}});
  town.run();
  EXPECT_EQ(town.closed(zero)->cause, Cause::kProtocol) << "a knew of that first";
  EXPECT_THAT(town.failed_engines("b"), testing::SizeIs(1));
}

TEST(MembershipFail, AnEngineThatFailsEndsTheJobEverywhere) {
  Town town(2);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 2);
  town.run();
  Failure failure{Cause::kDeadline, {}};
  failure.blame.rank = 1;
  town.at("b").engine_failed(town.job_of(sessions[1]), failure);
  town.at("b").engine_failed(town.job_of(sessions[1]), failure);
  town.run();
  EXPECT_EQ(town.closed(sessions[0]), failure);
  EXPECT_EQ(town.closed(sessions[1]), failure);
  EXPECT_THAT(town.failed_engines("a"), ElementsAre(failure));
  EXPECT_THAT(town.failed_engines("b"), ElementsAre(failure));
  town.at("b").engine_failed({42}, failure);  // a job that is not here
}

TEST(MembershipFail, APeerThatIsLostEndsTheJobWithTheCause) {
  Town town(3);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 3);
  town.run();
  town.crash("b");
  town.run();
  for (const uint32_t rank : {0u, 2u}) {
    ASSERT_TRUE(town.closed(sessions[rank]).has_value());
    EXPECT_EQ(town.closed(sessions[rank])->cause, Cause::kPeerLost);
    EXPECT_EQ(town.closed(sessions[rank])->blame.node, "b");
    EXPECT_EQ(town.closed(sessions[rank])->blame.evidence, "connection closed");
  }
}

TEST(MembershipFail, TheNewsArrivesWhereTheDirectWayIsCut) {
  // Only a notices that d is lost; the way from a to c is blocked. c hears it from b.
  Town town(4);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 4);
  town.run();
  town.hold("a", "c");
  town.hold("d", "c");
  town.notice_loss("a", "d");
  town.run();
  ASSERT_TRUE(town.closed(sessions[2]).has_value());
  EXPECT_EQ(town.closed(sessions[2])->blame.node, "d");
  town.release("a", "c");
  town.release("d", "c");
  town.run();
  EXPECT_THAT(town.failed_engines("c"), testing::SizeIs(1)) << "the second news is no news";
}

TEST(MembershipFail, ALostPeerOfAnotherJobIsNoConcern) {
  Town town(3);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 2);
  town.run();
  town.crash("c");
  town.run();
  for (const SessionId session : sessions) EXPECT_TRUE(town.admitted(session));
}

TEST(MembershipFail, ALostPeerWhileGatheringTakesItsClaimsAlong) {
  Town town(2);
  const SessionId zero = town.join("a", trainer(0, 3));
  town.join("b", trainer(1, 3));
  town.run();
  EXPECT_EQ(town.at("a").jobs().at(0).missing_ranks, std::vector<uint32_t>{2});
  town.crash("b");
  EXPECT_TRUE(town.waits(zero));
  EXPECT_EQ(town.at("a").jobs().at(0).missing_ranks, (std::vector<uint32_t>{1, 2}));
  // A new daemon, new trainers, and its revisions count from one again.
  town.connect("a", "b");
  const SessionId one = town.join("b", trainer(1, 3));
  const SessionId two = town.join("b", trainer(2, 3));
  town.run();
  for (const SessionId session : {zero, one, two}) EXPECT_TRUE(town.admitted(session));
}

}  // namespace
}  // namespace gradring::core
