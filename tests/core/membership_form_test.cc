// Rule J0: a job is formed once, by the daemon of rank 0, of claims that all agree.

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The commit that a has sent to b is under way, and nothing before it.
void run_until_b_is_to_hear_of_the_commit(Town* town) {
  town->hold("a", "b");
  town->run();
  while (!town->under_way("a", "b").empty() && town->under_way("a", "b").front() != "Commit") {
    town->deliver("a", "b");
    town->run();
  }
  ASSERT_FALSE(town->under_way("a", "b").empty());
}

// Of those who have accepted one is lost, and then it turns out that the others have begun.
TEST(MembershipForm, AnElasticJobThatHasBegunGoesOnWithoutWhomANodeLostBefore) {
  for (const bool comes_back : {false, true}) {
    Town town(3);
    std::vector<SessionId> sessions;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      JoinRequest request = trainer(rank, 3);
      request.policy = "elastic";
      sessions.push_back(town.join(node_of(rank), request));
    }
    run_until_b_is_to_hear_of_the_commit(&town);
    EXPECT_TRUE(town.admitted(sessions[0]));
    EXPECT_TRUE(town.waits(sessions[1]));
    town.crash("c");
    if (comes_back) {  // as another, which knows nothing of it
      town.connect("a", "c");
      town.connect("b", "c");
    }
    town.release("a", "b");
    town.settle();
    EXPECT_TRUE(town.admitted(sessions[0])) << comes_back;
    EXPECT_TRUE(town.admitted(sessions[1])) << comes_back;
    EXPECT_EQ(town.at("b").view_of(sessions[1])->size, 2u) << comes_back;
  }
}

// b and c lose and find each other before they know that the job has begun.
TEST(MembershipForm, WhoIsFoundAgainBeforeAnElasticJobBeginsIsNotLostToIt) {
  Town town(3);
  std::vector<SessionId> sessions;
  JoinRequest request = trainer(0, 3);
  request.policy = "elastic";
  town.hold("a", "c");
  for (const char* node : {"a", "b", "c"}) {
    sessions.push_back(town.join(node, request));
    ++request.rank;
  }
  town.run();
  ASSERT_EQ(town.engines("b"), 1u);
  town.cut("b", "c");
  town.connect("b", "c");
  town.release("a", "c");
  town.settle();
  for (const SessionId session : sessions) {
    EXPECT_TRUE(town.admitted(session)) << town.refusal(session);
    EXPECT_LE(town.at(town.node_of(session)).view_of(session)->epoch, 2u);
  }
}

TEST(MembershipForm, TwoNodesStepByStep) {
  Town town(2);
  // Rank 1 comes first: a hears of the claim, and can do nothing yet.
  const SessionId one = town.join("b", trainer(1, 2));
  EXPECT_THAT(town.under_way("b", "a"), ElementsAre("Claims(1)"));
  town.run();
  EXPECT_THAT(town.under_way("a", "b"), IsEmpty());

  // Rank 0 completes the job: a tells its claim and proposes at once.
  const SessionId zero = town.join("a", trainer(0, 2));
  EXPECT_EQ(town.engines("a"), 1u) << "frames may come as soon as b has accepted";
  EXPECT_TRUE(town.waits(zero)) << "b has not accepted";
  ASSERT_THAT(town.under_way("a", "b"), ElementsAre("Claims(0)", "Propose"));
  town.deliver("a", "b");
  const View view = std::get<Propose>(town.peek("a", "b")).view;
  EXPECT_EQ(fault_of(view), "");
  EXPECT_EQ(view.epoch, 1u);
  EXPECT_EQ(view.job, "train");
  EXPECT_EQ(view.members[1].ranks[0].pid, town.pid_of(one));

  // b accepts: its engine is there before anybody is admitted.
  town.deliver("a", "b");
  EXPECT_THAT(town.under_way("b", "a"), ElementsAre("Accept"));
  EXPECT_EQ(town.engines("b"), 1u);
  EXPECT_TRUE(town.waits(one));

  // a commits and admits; b admits when it hears of it.
  town.deliver("b", "a");
  EXPECT_TRUE(town.admitted(zero));
  EXPECT_TRUE(town.waits(one)) << "not before the commit";
  EXPECT_EQ(town.under_way("a", "b").front(), "Commit");
  town.run();
  EXPECT_TRUE(town.admitted(one));
  EXPECT_EQ(town.job_of(zero), view.incarnation);
  EXPECT_EQ(town.job_of(one), view.incarnation);
  ASSERT_NE(town.at("b").view_of(one), nullptr);
  EXPECT_EQ(*town.at("b").view_of(one), view);
  EXPECT_EQ(*town.at("a").view_of(view.incarnation), view);
}

// Whoever has accepted, and loses the connection to a proposer that may come back, cannot know
// whether that had committed.
TEST(MembershipForm, AProposerThatIsAwayIsAskedForItsCommitWhenItIsBack) {
  for (const char* policy : {"fail", "elastic"}) {
    for (const char* lost : {"Propose", "Accept", "Commit"}) {
      Town town(3);
      std::vector<SessionId> sessions;
      for (uint32_t rank = 0; rank < 3; ++rank) {
        JoinRequest request = trainer(rank, 3);
        request.policy = policy;
        sessions.push_back(town.join(node_of(rank), request));
      }
      if (lost == std::string("Propose")) {
        town.hold("a", "b");
        town.run();
      } else if (lost == std::string("Accept")) {
        town.hold("b", "a");
        town.run();
      } else {
        run_until_b_is_to_hear_of_the_commit(&town);
      }
      town.part("a", "b");
      town.release("a", "b");
      town.release("b", "a");
      town.settle();
      EXPECT_TRUE(town.waits(sessions[1])) << lost;
      town.connect("a", "b");
      town.settle();
      for (const SessionId session : sessions) {
        EXPECT_TRUE(town.admitted(session)) << policy << lost << town.refusal(session);
        EXPECT_EQ(town.job_of(session), town.job_of(sessions[0])) << policy << lost;
      }
    }
  }
}

TEST(MembershipForm, WhoAcceptedIsToldOfAJobThatFailedWhileItsProposerWasAway) {
  Town town(2);
  const SessionId zero = town.join("a", trainer(0, 2));
  const SessionId one = town.join("b", trainer(1, 2));
  run_until_b_is_to_hear_of_the_commit(&town);
  town.part("a", "b");
  town.release("a", "b");
  town.at("a").engine_failed(town.job_of(zero), {Cause::kProtocol, {}});
  town.run();
  EXPECT_TRUE(town.waits(one));
  town.connect("a", "b");
  town.settle();
  EXPECT_THAT(town.refusal(one), HasSubstr("job train: "));
}

TEST(MembershipForm, ASingleNodeFormsAtOnce) {
  Town town(1);
  const SessionId one = town.join("a", trainer(1, 2));
  EXPECT_TRUE(town.waits(one));
  const SessionId zero = town.join("a", trainer(0, 2));
  EXPECT_TRUE(town.admitted(zero));
  EXPECT_TRUE(town.admitted(one));
  ASSERT_EQ(town.at("a").jobs().size(), 1u);
  EXPECT_EQ(town.at("a").jobs()[0].state, JobState::kRunning);
  EXPECT_EQ(town.at("a").jobs()[0].explanation, "epoch 1: formed of 2 ranks on 1 node");
}

TEST(MembershipForm, ARankFormsAlone) {
  Town town(1);
  EXPECT_TRUE(town.admitted(town.join("a", trainer(0, 1))));
  EXPECT_EQ(town.at("a").jobs()[0].explanation, "epoch 1: formed of 1 rank on 1 node");
}

TEST(MembershipForm, ClaimsInAnyOrder) {
  std::vector<uint32_t> order = {0, 1, 2, 3};
  do {
    Town town(3);
    // Ranks 0 and 3 on c, 1 on a, 2 on b.
    const char* const host[] = {"c", "a", "b", "c"};
    std::vector<SessionId> sessions;
    for (const uint32_t rank : order) {
      sessions.push_back(town.join(host[rank], trainer(rank, 4)));
      if (rank % 2 == 0) town.run();
    }
    town.run();
    for (const SessionId session : sessions) {
      ASSERT_TRUE(town.admitted(session));
      ASSERT_EQ(town.job_of(session), town.job_of(sessions[0]));
    }
    const View& view = *town.at("a").view_of(town.job_of(sessions[0]));
    EXPECT_EQ(view.members[0].node, "c") << "the ring follows the ranks";
    EXPECT_EQ(view.members[1].node, "a");
    EXPECT_EQ(view.members[2].node, "b");
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(MembershipForm, DaemonsMayMeetAfterTheirTrainersHaveJoined) {
  Town town(3, false);
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    sessions.push_back(town.join(std::string(1, static_cast<char>('a' + rank)), trainer(rank, 3)));
  }
  town.connect("a", "c");
  town.run();
  town.connect("b", "c");
  town.run();
  for (const SessionId session : sessions) EXPECT_TRUE(town.waits(session));
  town.connect("a", "b");
  town.run();
  for (const SessionId session : sessions) EXPECT_TRUE(town.admitted(session));
}

TEST(MembershipForm, AMemberThatIsNotConnectedToAnotherDefersAndAcceptsWhenItIs) {
  Town town(3, false);
  town.connect("a", "b");
  town.connect("a", "c");
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    sessions.push_back(town.join(std::string(1, static_cast<char>('a' + rank)), trainer(rank, 3)));
  }
  town.run();
  // a knows all ranks and has proposed, but b and c cannot talk to one another.
  for (const SessionId session : sessions) EXPECT_TRUE(town.waits(session));
  EXPECT_EQ(town.engines("a"), 1u);
  EXPECT_EQ(town.engines("b"), 0u);
  EXPECT_THAT(town.at("b").jobs().at(0).explanation,
              HasSubstr("waits for node b to be connected to node c"));
  town.connect("b", "c");
  town.run();
  for (const SessionId session : sessions) EXPECT_TRUE(town.admitted(session));
}

TEST(MembershipForm, ClaimsThatCameBeforeTheConnectionWasUpHereAreNotProposedToNobody) {
  // b has its connection to a already and sends its claim; a's own is not up yet.
  Town town(2, false);
  const SessionId zero = town.join("a", trainer(0, 2));
  const SessionId one = town.join("b", trainer(1, 2));
  Claims claims;
  claims.job = "train";
  claims.token = "t";
  claims.revision = 1;
  claims.uid = 1000;
  claims.size = 2;
  claims.policy = "fail";
  claims.ranks = {{1, 1, town.pid_of(one), 12345}};
  town.at("a").on_message("b", claims, town.now);
  EXPECT_EQ(town.engines("a"), 0u) << "a proposal could not be sent";
  town.connect("a", "b");
  town.run();
  EXPECT_TRUE(town.admitted(zero));
  EXPECT_TRUE(town.admitted(one));
}

TEST(MembershipForm, WhoIsNoMemberIsNotConcerned) {
  Town town(3);
  town.join("a", trainer(0, 2));
  const SessionId one = town.join("b", trainer(1, 2));
  town.run();
  EXPECT_TRUE(town.admitted(one));
  EXPECT_EQ(town.engines("c"), 0u);
  EXPECT_THAT(town.at("c").jobs(), IsEmpty());
}

TEST(MembershipForm, AStrangeProposalIsRejectedInWords) {
  Town town(3);
  town.join("b", trainer(1, 2));
  town.run();
  View view;
  view.job = "train";
  view.incarnation = {9};
  view.epoch = 1;
  view.size = 2;
  view.policy = "fail";
  view.uid = 1000;
  view.members = {{"a", {{0, 0, 1, 1}}}, {"b", {{1, 1, 1, 1}}}};
  const auto answer = [&](const std::string& from, const View& proposed) {
    town.at("b").on_message(from, Propose{"t", proposed}, town.now);
    const std::vector<std::string> answers = town.under_way("b", from);
    EXPECT_EQ(answers.size(), 1u);
    town.run();
    return answers.back();
  };
  EXPECT_THAT(answer("c", view),
              HasSubstr("node c proposed a view although it does not host rank 0"));
  View torn = view;
  torn.size = 3;
  EXPECT_THAT(answer("a", torn), HasSubstr("2 of 3 ranks are there"));
  View without_us = view;
  without_us.members[1].node = "c";
  EXPECT_THAT(answer("a", without_us), HasSubstr("node b is not in the proposed view"));
  EXPECT_EQ(town.engines("b"), 0u);
}

TEST(MembershipForm, OnlyTheProposerCommits) {
  Town town(3);
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    sessions.push_back(town.join(std::string(1, static_cast<char>('a' + rank)), trainer(rank, 3)));
  }
  town.hold("b", "a");
  town.hold("c", "a");
  town.release("b", "a");
  town.release("c", "a");
  town.deliver("b", "a");
  town.deliver("c", "a");  // a proposes
  while (town.deliver("a", "b")) {
  }
  const JobId id = town.at("a").jobs().at(0).incarnation;
  town.at("b").on_message("c", Commit{id}, town.now);
  EXPECT_TRUE(town.waits(sessions[1]));
  town.at("b").on_message("c", Reject{id, "go away"}, town.now);
  EXPECT_TRUE(town.waits(sessions[1]));
  town.run();
  for (const SessionId session : sessions) EXPECT_TRUE(town.admitted(session));
}

// Its word that it accepts was lost with a connection, and so was that the others began.
TEST(MembershipForm, WhoAsksForAJobThatWentOnWithoutItIsToldSo) {
  Town town(3);
  JoinRequest request = trainer(0, 3);
  request.policy = "elastic min=1";
  std::vector<SessionId> sessions;
  for (const char* node : {"a", "b", "c"}) {
    sessions.push_back(town.join(node, request));
    ++request.rank;
  }
  town.run();
  const JobId job = town.job_of(sessions[0]);
  town.die(sessions[2]);
  town.settle();
  ASSERT_FALSE(town.at("a").view_of(job)->index_of("c"));
  town.at("a").on_message("c", Accept{job}, town.now);
  EXPECT_THAT(town.under_way("a", "c"), testing::Contains(testing::HasSubstr("Commit")));
}

}  // namespace
}  // namespace gradring::core
