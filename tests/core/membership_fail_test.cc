// One part is lost: the job ends everywhere, each trainer is told once, with the cause. With policy
// fail that is a view that takes no new op; or, where no quorum is left to agree on one, a flood.

#include <gmock/gmock.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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
  EXPECT_EQ(town.at("a").jobs().at(0).missing.first, (std::vector<uint32_t>{1, 2}));
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
    EXPECT_EQ(town.at(node_of(rank)).view_of(sessions[rank])->closed, failure);
    EXPECT_THAT(town.failed_engines(node_of(rank)), testing::IsEmpty())
        << "what has moved may yet end well";
    EXPECT_EQ(town.at(node_of(rank)).jobs().at(0).state, JobState::kFailed);
    EXPECT_EQ(town.at(node_of(rank)).jobs().at(0).size, 3u) << "as many as it had";
    EXPECT_EQ(town.at(node_of(rank)).busy_jobs(), 0u);
  }
  for (const uint32_t rank : {0u, 2u}) town.leave(sessions[rank]);
  town.run();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(town.engines(node_of(rank)), 0u) << "the last trainer is out of it";
    EXPECT_EQ(town.at(node_of(rank)).jobs().at(0).state, JobState::kFailed);
    EXPECT_EQ(town.at(node_of(rank)).jobs().at(0).size, 3u);
    EXPECT_THAT(town.at(node_of(rank)).jobs().at(0).explanation, HasSubstr("exited with status 1"));
  }
}

// As where a launcher ends all ranks once one has failed.
TEST(MembershipFail, WhoDiesOfTheEndIsNotTheOneWhoIsToldToHaveCausedIt) {
  Town town(3);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 3);
  town.run();
  town.die(sessions[1], "killed by signal 9");
  town.run();
  const std::string why = town.at("a").jobs().at(0).explanation;
  EXPECT_THAT(why, AllOf(HasSubstr("rank 1"), HasSubstr("killed by signal 9")));
  for (const uint32_t rank : {0u, 2u}) {
    town.die(sessions[rank], "killed by signal 15");
    town.run();
    for (const std::string node : {"a", "b", "c"}) {
      EXPECT_EQ(town.at(node).jobs().at(0).explanation, why) << node;
    }
  }
}

// b and c are gone: a alone is no quorum of three, and waits for nobody.
TEST(MembershipFail, WhereNoQuorumIsLeftTheRestGivesUp) {
  Town town(3);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 3);
  town.run();
  town.crash("c");
  town.crash("b");
  town.settle();
  ASSERT_TRUE(town.closed(sessions[0]).has_value());
  EXPECT_EQ(town.closed(sessions[0])->cause, Cause::kPeerLost);
  EXPECT_EQ(town.closed(sessions[0])->blame.node, "b") << "the first of them, in ring order";
  EXPECT_THAT(town.failed_engines("a"), testing::SizeIs(1));
  town.leave(sessions[0]);
  EXPECT_EQ(town.engines("a"), 0u);
}

// The lower of two decides alone; the higher cannot, and gives up.
TEST(MembershipFail, EitherOfTwoIsTold) {
  for (const uint32_t lives : {0u, 1u}) {
    Town town(2);
    const std::vector<SessionId> sessions = join_one_rank_each(&town, 2);
    town.run();
    town.crash(node_of(1 - lives));
    town.settle();
    ASSERT_TRUE(town.closed(sessions[lives]).has_value());
    EXPECT_EQ(town.closed(sessions[lives])->cause, Cause::kPeerLost);
    EXPECT_EQ(town.closed(sessions[lives])->blame.node, node_of(1 - lives));
    EXPECT_THAT(town.failed_engines(node_of(lives)), testing::SizeIs(lives));
    town.leave(sessions[lives]);
    town.run();
    EXPECT_EQ(town.engines(node_of(lives)), 0u);
  }
}

// The view is closed, and then another part of the job is lost: no news for those who know.
TEST(MembershipFail, ASecondCauseIsNotTold) {
  Town town(3);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 3);
  town.run();
  town.die(sessions[1], "exited with status 1");
  town.run();
  const std::optional<Failure> first = town.closed(sessions[0]);
  ASSERT_TRUE(first.has_value());
  town.at("c").engine_failed(town.job_of(sessions[2]), {Cause::kProtocol, {}});
  town.run();
  for (const uint32_t rank : {0u, 2u}) {
    EXPECT_EQ(town.closed(sessions[rank]), first);
    EXPECT_THAT(town.failed_engines(node_of(rank)), ElementsAre(*first));
    EXPECT_THAT(town.at(node_of(rank)).jobs().at(0).explanation, HasSubstr("exited with status 1"));
    EXPECT_EQ(town.engines(node_of(rank)), 1u) << "its trainer has not left yet";
    town.leave(sessions[rank]);
    EXPECT_EQ(town.engines(node_of(rank)), 0u);
  }
  town.run();
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

// The same, and it is a loss that makes another view.
TEST(MembershipFail, WhoWasToldThatTheJobFailedHearsNothingOfLaterViews) {
  Town town(3);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 3);
  town.run();
  town.die(sessions[1]);
  town.run();
  ASSERT_TRUE(town.closed(sessions[0]).has_value());
  town.crash("c");
  town.settle();  // Town checks that the trainer is not spoken to
  EXPECT_EQ(town.closed(sessions[0])->cause, Cause::kTrainerDied);
  town.leave(sessions[0]);
  town.settle();
  EXPECT_EQ(town.engines("a") + town.engines("b"), 0u);
}

// The view that a hears of has a member that a has lost meanwhile. It must be entered before it is
// left again; Town's engines check that.
TEST(MembershipFail, AMemberThatIsLostWhileAViewIsAgreedOn) {
  Town town(3);
  const std::vector<SessionId> sessions = join_one_rank_each(&town, 3);
  town.run();
  town.cut("b", "c");
  town.connect("b", "c");
  town.tick(31 * kMillisecond);  // b and c propose, and c has the higher ballot
  for (int round = 0; round < 20; ++round) {
    for (const char* from : {"a", "b", "c"}) {
      town.report(from);
      for (const char* to : {"a", "b", "c"}) {
        const auto next = town.under_way(from, to);
        if (!next.empty() && next[0] != "change::Commit") town.deliver(from, to);
      }
    }
  }
  ASSERT_THAT(town.under_way("c", "a"), ElementsAre("change::Commit"));
  town.notice_loss("a", "b");
  town.notice_loss("b", "a");
  town.deliver("c", "a");
  EXPECT_TRUE(town.admitted(sessions[0])) << "in a view with b";
  town.settle();
  for (const uint32_t rank : {0u, 2u}) {
    ASSERT_TRUE(town.closed(sessions[rank]).has_value());
    // By the view that it is in, or by those that go on without it.
    EXPECT_THAT(town.closed(sessions[rank])->cause,
                testing::AnyOf(Cause::kPeerLost, Cause::kExcluded));
  }
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
  town.settle();
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
  EXPECT_EQ(town.at("a").jobs().at(0).missing.first, std::vector<uint32_t>{2});
  town.crash("b");
  EXPECT_TRUE(town.waits(zero));
  EXPECT_EQ(town.at("a").jobs().at(0).missing.first, (std::vector<uint32_t>{1, 2}));
  // A new daemon, new trainers, and its revisions count from one again.
  town.connect("a", "b");
  const SessionId one = town.join("b", trainer(1, 3));
  const SessionId two = town.join("b", trainer(2, 3));
  town.run();
  for (const SessionId session : {zero, one, two}) EXPECT_TRUE(town.admitted(session));
}

// The town checks that an epoch begins before its engine is asked for a report of it.
TEST(MembershipFail, OneThatIsLostWhileAViewIsAgreedOnIsLeftOutOfTheNext) {
  Town town(4);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    JoinRequest request = trainer(rank, 4);
    request.policy = "elastic";
    town.join(node_of(rank), request);
  }
  town.run();
  town.hold("b", "a");
  town.hold("c", "a");
  town.crash("d");
  town.run();
  for (const std::string node : {"b", "c"}) {  // their reports
    while (town.deliver(node, "a")) {
    }
  }
  town.run();
  EXPECT_EQ(town.at("a").jobs().at(0).epoch, 1u) << "not accepted yet";
  town.notice_loss("a", "c");
  while (town.deliver("b", "a")) {
  }
  EXPECT_EQ(town.at("a").jobs().at(0).epoch, 2u);
  town.release("b", "a");
  town.notice_loss("c", "a");
  town.settle();
  EXPECT_EQ(town.at("a").jobs().at(0).epoch, 3u);
  EXPECT_EQ(town.at("a").jobs().at(0).size, 2u);
  EXPECT_EQ(town.at("b").jobs().at(0).size, 2u);
}

}  // namespace
}  // namespace gradring::core
