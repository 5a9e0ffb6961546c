// A proposal that does not come to its commit: everybody gathers again, or everybody is told why
// not.

#include <gmock/gmock.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// a, b and c have claimed one rank each; a has proposed, and its proposals are under way.
struct Proposed : Town {
  explicit Proposed(bool b_knows_c = true) : Town(3, false) {
    connect("a", "b");
    connect("a", "c");
    if (b_knows_c) connect("b", "c");
    zero = join("a", trainer(0, 3));
    one = join("b", trainer(1, 3));
    two = join("c", trainer(2, 3));
    while (deliver("b", "a") || deliver("c", "a") || deliver("b", "c") || deliver("c", "b")) {
    }
    EXPECT_EQ(engines("a"), 1u);
  }
  // What a has sent arrives, up to and including the proposal.
  void propose_to(const std::string& node) {
    for (bool last = false; !last;) {
      last = name_of(peek("a", node)) == "Propose";
      deliver("a", node);
    }
  }
  SessionId zero, one, two;
};

TEST(MembershipWithdraw, AStaleProposalIsRejectedWithoutAReasonAndTheJobFormsAnew) {
  // c's trainer is replaced between its claim and the proposal.
  Proposed town;
  town.die(town.two);
  const SessionId new_two = town.join("c", trainer(2, 3));
  town.propose_to("b");  // b accepts
  town.propose_to("c");
  EXPECT_THAT(town.under_way("c", "a"), Contains("Reject()"));
  EXPECT_EQ(town.engines("c"), 0u);
  town.run();
  for (const SessionId session : {town.zero, town.one, new_two}) {
    EXPECT_TRUE(town.admitted(session)) << town.refusal(session);
    EXPECT_EQ(town.job_of(session), town.job_of(town.zero));
  }
  for (const char* node : {"a", "b", "c"}) EXPECT_EQ(town.engines(node), 1u);
}

TEST(MembershipWithdraw, AStaleProposalAndNobodyInTheEmptyPlace) {
  Proposed town;
  town.die(town.two);
  town.run();
  EXPECT_TRUE(town.waits(town.zero));
  EXPECT_TRUE(town.waits(town.one));
  for (const char* node : {"a", "b", "c"}) EXPECT_EQ(town.engines(node), 0u);
  EXPECT_EQ(town.at("a").jobs().at(0).missing.first, std::vector<uint32_t>{2});
  const SessionId new_two = town.join("b", trainer(2, 3));  // the restarted trainer, elsewhere
  town.run();
  for (const SessionId session : {town.zero, town.one, new_two}) {
    EXPECT_TRUE(town.admitted(session));
  }
}

TEST(MembershipWithdraw, WhoeverDefersSaysItsClaimsAgain) {
  // b waits for a connection to c; meanwhile c's trainer was replaced, so a's proposal is
  // withdrawn. a has used up what it knew of b.
  Proposed town(false);
  town.propose_to("b");
  town.die(town.two);
  const SessionId new_two = town.join("c", trainer(2, 3));
  town.run();
  EXPECT_TRUE(town.waits(town.one));
  town.connect("b", "c");
  town.run();
  for (const SessionId session : {town.zero, town.one, new_two}) {
    EXPECT_TRUE(town.admitted(session)) << town.refusal(session);
  }
}

TEST(MembershipWithdraw, WhoeverDefersIsToldThatTheFormationFailed) {
  // A trainer of a dies while b defers: then b must not accept, later, what nobody remembers.
  Proposed town(false);
  town.propose_to("b");
  town.die(town.zero);
  town.run();
  EXPECT_THAT(town.refusal(town.one), AllOf(HasSubstr("rank 0"), HasSubstr("killed by signal 9")));
  town.connect("b", "c");
  town.run();
  EXPECT_EQ(town.engines("b"), 0u);
  EXPECT_EQ(town.engines("a"), 0u);
}

TEST(MembershipWithdraw, WhoeverDefersMayGiveUp) {
  Proposed town(false);
  town.propose_to("b");
  town.die(town.one);
  town.run();
  EXPECT_EQ(town.engines("a"), 0u) << "the proposal was answered: stale";
  EXPECT_TRUE(town.waits(town.zero));
  town.connect("b", "c");
  const SessionId new_one = town.join("b", trainer(1, 3));
  town.run();
  for (const SessionId session : {town.zero, new_one, town.two}) {
    EXPECT_TRUE(town.admitted(session)) << town.refusal(session);
  }
}

TEST(MembershipWithdraw, AMemberThatIsLostWhileProposed) {
  // a loses c: b, which has accepted, gathers again. c returns with a new daemon.
  Proposed town;
  town.propose_to("b");
  town.crash("c");
  town.run();
  EXPECT_TRUE(town.waits(town.zero) || !town.refusal(town.zero).empty());
  EXPECT_EQ(town.waits(town.zero), town.waits(town.one)) << "both or none";
  EXPECT_EQ(town.engines("a") + town.engines("b"), 0u);
}

TEST(MembershipWithdraw, AMemberLostByTheProposerAlone) {
  Proposed town;
  town.propose_to("b");
  town.propose_to("c");
  town.notice_loss("a", "c");
  town.run();
  EXPECT_TRUE(town.waits(town.zero));
  EXPECT_TRUE(town.waits(town.one));
  EXPECT_EQ(town.engines("a"), 0u);
  EXPECT_EQ(town.engines("b"), 0u);
  town.notice_loss("c", "a");
  town.run();
  EXPECT_EQ(town.engines("c"), 0u);
  town.connect("a", "c");
  town.run();
  for (const SessionId session : {town.zero, town.one, town.two}) {
    EXPECT_TRUE(town.admitted(session)) << town.refusal(session);
  }
}

TEST(MembershipWithdraw, TheProposerIsLostBeforeAnybodyWasAdmitted) {
  Proposed town;
  town.propose_to("b");
  town.propose_to("c");
  town.crash("a");
  town.run();
  EXPECT_TRUE(town.waits(town.one));
  EXPECT_TRUE(town.waits(town.two));
  EXPECT_EQ(town.engines("b") + town.engines("c"), 0u);
  town.connect("a", "b");
  town.connect("a", "c");
  const SessionId new_zero = town.join("a", trainer(0, 3));
  town.run();
  for (const SessionId session : {new_zero, town.one, town.two}) {
    EXPECT_TRUE(town.admitted(session)) << town.refusal(session);
  }
}

TEST(MembershipWithdraw, TheProposerIsLostAfterItHadCommittedToSomebody) {
  // c heard the commit, b did not, and a is gone. b gathers again until c tells it what has failed.
  Proposed town;
  town.propose_to("b");
  town.propose_to("c");
  town.deliver("b", "a");
  town.deliver("c", "a");
  ASSERT_TRUE(town.admitted(town.zero));
  town.deliver("a", "c");
  ASSERT_TRUE(town.admitted(town.two));
  town.hold("c", "b");
  town.crash("a");
  town.settle();
  EXPECT_TRUE(town.waits(town.one));
  EXPECT_EQ(town.closed(town.two)->cause, Cause::kPeerLost);
  town.release("c", "b");
  town.run();
  EXPECT_THAT(town.refusal(town.one), AllOf(HasSubstr("job train"), HasSubstr("node a")));
  EXPECT_EQ(town.engines("b"), 0u);
}

TEST(MembershipWithdraw, TheProposerHasLeftInGoodOrderBeforeAllHaveHeardTheCommit) {
  // a commits, c runs; a's trainer has nothing to do and leaves, a is done and stops. b has not
  // heard the commit and gathers again: then c must not go on without it.
  for (const bool c_hears_of_b_first : {false, true}) {
    Proposed town;
    town.propose_to("b");
    town.propose_to("c");
    town.deliver("b", "a");
    town.deliver("c", "a");
    ASSERT_TRUE(town.admitted(town.zero));
    town.leave(town.zero);
    if (c_hears_of_b_first) {
      town.notice_loss("b", "a");
      while (town.deliver("b", "c")) {
      }
    }
    while (town.deliver("a", "c")) {  // the commit, and that a is done
    }
    town.crash("a");
    town.settle();
    EXPECT_FALSE(town.admitted(town.two));
    EXPECT_EQ(town.waits(town.one), town.waits(town.two)) << "both may gather, or none";
    EXPECT_EQ(town.engines("b"), 0u);
  }
}

TEST(MembershipWithdraw, AMemberGivesUpBeforeItsFellowHasHeardOfTheProposal) {
  // c accepts, loses a and gathers again, before b has even got the proposal; a does not notice.
  Proposed town;
  town.propose_to("c");
  town.notice_loss("c", "a");
  while (town.deliver("c", "b") || town.deliver("c", "a")) {
  }
  town.propose_to("b");
  town.deliver("b", "a");
  ASSERT_TRUE(town.admitted(town.zero)) << "a has the word of both";
  town.leave(town.zero);
  while (town.deliver("a", "b")) {
  }
  town.crash("a");
  town.settle();
  EXPECT_FALSE(town.admitted(town.one)) << "c is not in this job";
}

TEST(MembershipWithdraw, AMemberGivesUpAfterItHasAcceptedAndTheOthersGoTheirWay) {
  // c accepts, loses a and gathers again. a commits, and notices only then that c is lost.
  Proposed town;
  town.propose_to("b");
  town.propose_to("c");
  town.deliver("b", "a");
  town.deliver("c", "a");
  ASSERT_TRUE(town.admitted(town.zero));
  town.notice_loss("c", "a");
  town.notice_loss("a", "c");
  town.settle();
  ASSERT_TRUE(town.closed(town.zero).has_value());
  ASSERT_TRUE(town.closed(town.one).has_value());
  EXPECT_THAT(town.refusal(town.two), HasSubstr("job train")) << "it need not wait for a deadline";
  town.leave(town.zero);
  town.leave(town.one);
  town.run();
  for (const char* node : {"a", "b", "c"}) {
    EXPECT_EQ(town.engines(node), 0u) << "nobody waits for c to say that it has begun";
  }
}

TEST(MembershipWithdraw, WhatComesBackMeetsWhatJoinedMeanwhile) {
  // While b's rank 1 is proposed, a trainer of a wrong launch joins b with the same name and token.
  JoinRequest elastic = trainer(0, 3);
  elastic.policy = "elastic";
  const std::pair<JoinRequest, std::string> strays[] = {{trainer(1, 3), "claim the same rank"},
                                                        {trainer(1, 2), "says size"},
                                                        {elastic, "says policy elastic"}};
  for (const auto& [request, complaint] : strays) {
    Proposed town;
    town.propose_to("b");
    const SessionId stray = town.join("b", request);
    town.die(town.two);  // the proposal will come back
    town.run();
    for (const SessionId session : {stray, town.one}) {
      EXPECT_THAT(town.refusal(session), HasSubstr(complaint));
      EXPECT_THAT(town.refusal(session),
                  AllOf(HasSubstr("pid " + std::to_string(town.pid_of(stray))),
                        HasSubstr("pid " + std::to_string(town.pid_of(town.one)))));
    }
  }
}

TEST(MembershipWithdraw, ALargeJobComesBackToASmallGathering) {
  // b's rank 7 of 8 is proposed; a trainer of a job of two joins b under the same name and token.
  Town town(2);
  for (uint32_t rank = 0; rank < 7; ++rank) town.join("a", trainer(rank, 8));
  const SessionId seven = town.join("b", trainer(7, 8));
  while (town.deliver("b", "a")) {
  }
  while (town.deliver("a", "b")) {
  }
  ASSERT_EQ(town.engines("b"), 1u);
  const SessionId stray = town.join("b", trainer(1, 2));
  town.notice_loss("b", "a");
  for (const SessionId session : {seven, stray}) {
    EXPECT_THAT(town.refusal(session), AllOf(HasSubstr("size 8"), HasSubstr("size 2")));
  }
}

TEST(MembershipWithdraw, AnAcceptThatNobodyWaitsForIsAnswered) {
  Town town(2);
  town.at("a").on_message("b", Accept{{5}}, town.now);
  EXPECT_THAT(town.under_way("a", "b"), ElementsAre("Reject()"));
}

}  // namespace
}  // namespace gradring::core
