// Every wait has a bound, and whoever waited in vain is told for whom.

#include <gmock/gmock.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(MembershipDeadline, WhileGatheringTheMissingRanksAreNamed) {
  Town town(2);
  town.unreachable = "10.0.0.3:7000 (connection refused)";
  JoinRequest request = trainer(0, 4);
  request.timeout = 10 * kSecond;
  const SessionId zero = town.join("a", request);
  request = trainer(2, 4);
  request.timeout = 20 * kSecond;
  const SessionId two = town.join("b", request);
  town.run();
  town.tick(9 * kSecond);
  EXPECT_TRUE(town.waits(zero));
  town.tick(1 * kSecond);
  EXPECT_THAT(town.refusal(zero),
              AllOf(HasSubstr("job train: time ran out while forming"),
                    HasSubstr("missing ranks: 1 3;"), HasSubstr("10.0.0.3:7000")));
  EXPECT_TRUE(town.waits(two)) << "each has its own patience";
  town.run();
  town.tick(10 * kSecond);
  EXPECT_THAT(town.refusal(two), HasSubstr("missing ranks: 1 3; ranks that came and went: 0;"));
  EXPECT_TRUE(town.at("a").jobs().empty());
  EXPECT_TRUE(town.at("b").jobs().empty());
}

// As where all are started at once, and each node looks at its own clock.
TEST(MembershipDeadline, WhoWaitedInVainBeforeIsNotTakenForMissing) {
  Town town(2);
  std::vector<SessionId> ranks;
  for (const uint32_t rank : {0, 1, 2}) {
    JoinRequest request = trainer(rank, 4);
    request.timeout = (10 + rank) * kSecond;
    ranks.push_back(town.join(rank == 2 ? "b" : "a", request));
  }
  town.run();
  for (int second = 0; second < 12; ++second) {
    town.tick(1 * kSecond);
    town.run();
  }
  EXPECT_THAT(town.refusal(ranks[0]), EndsWith("missing ranks: 3"));
  EXPECT_THAT(town.refusal(ranks[1]), EndsWith("missing ranks: 3; ranks that came and went: 0"));
  EXPECT_THAT(town.refusal(ranks[2]), EndsWith("missing ranks: 3; ranks that came and went: 0 1"));
}

TEST(MembershipDeadline, WhoCameAndDiedIsTold) {
  Town town(2);
  JoinRequest request = trainer(0, 3);
  request.timeout = 10 * kSecond;
  const SessionId waits = town.join("a", request);
  const SessionId dies = town.join("b", trainer(1, 3));
  town.run();
  town.die(dies);
  town.run();
  town.tick(10 * kSecond);
  EXPECT_THAT(town.refusal(waits), EndsWith("missing ranks: 2; ranks that came and went: 1"));
}

TEST(MembershipDeadline, ARankThatIsThereWithAnotherTokenIsNamed) {
  Town town(2);
  JoinRequest request = trainer(1, 2);
  request.token = "another";
  const SessionId one = town.join("b", request);
  const SessionId zero = town.join("a", trainer(0, 2));
  town.run();
  const auto told = [&](SessionId rank, const std::string& what) {
    return "; rank " + what + std::to_string(town.pid_of(rank)) + ") is there with another token";
  };
  EXPECT_THAT(town.at("a").jobs().at(0).explanation,
              HasSubstr("waits for 1 of 2 ranks: 1" + told(one, "1 (node b, pid ")));
  EXPECT_THAT(town.at("b").jobs().at(0).explanation, HasSubstr(told(zero, "0 (node a, pid ")));
  town.tick(300 * kSecond);
  EXPECT_THAT(town.refusal(zero), HasSubstr("missing ranks: 1" + told(one, "1 (node b, pid ")));
}

TEST(MembershipDeadline, ARankThatRunsAlreadyIsNamed) {
  Town town(2);
  const SessionId zero = town.join("a", trainer(0, 2));
  town.join("b", trainer(1, 2));
  town.run();
  const SessionId again = town.join("b", trainer(1, 2));
  town.run();
  const std::string told = "; rank 0 (node a, pid " + std::to_string(town.pid_of(zero)) +
                           ") is in a job of that name that runs already, and takes nobody in: "
                           "has this rank been started twice?";
  EXPECT_THAT(town.at("b").jobs().at(0).explanation, HasSubstr("waits for 1 of 2 ranks: 0" + told));
  town.tick(300 * kSecond);
  EXPECT_THAT(town.refusal(again), HasSubstr("missing ranks: 0" + told));
}

TEST(MembershipDeadline, OfAnotherUsersLaunchNothingIsTold) {
  Town town(2);
  JoinRequest request = trainer(1, 2);
  request.token = "another";
  request.uid = 2000;
  town.join("b", request);
  const SessionId zero = town.join("a", trainer(0, 2));
  town.run();
  EXPECT_EQ(town.at("a").jobs().at(0).explanation, "waits for 1 of 2 ranks: 1");
  town.tick(300 * kSecond);
  EXPECT_THAT(town.refusal(zero), EndsWith("missing ranks: 1"));
}

TEST(MembershipDeadline, NobodyWaitsLongerThanTheDaemonAllows) {
  MembershipOptions options;
  options.form_deadline = 30 * kSecond;
  Town town(1, true, options);
  JoinRequest request = trainer(0, 2);
  request.timeout = 10'000 * kSecond;
  const SessionId patient = town.join("a", request);
  request = trainer(0, 2);
  request.token = "other";
  const SessionId no_opinion = town.join("a", request);
  town.tick(29 * kSecond);
  EXPECT_TRUE(town.waits(patient));
  town.tick(1 * kSecond);
  EXPECT_NE(town.refusal(patient), "");
  EXPECT_NE(town.refusal(no_opinion), "");
}

TEST(MembershipDeadline, WhoAsksForMoreHasItAsFarAsTheDaemonAllows) {
  MembershipOptions options;
  options.form_deadline = 30 * kSecond;
  options.form_deadline_most = 100 * kSecond;
  Town town(1, true, options);
  JoinRequest request = trainer(0, 2);
  request.timeout = 10'000 * kSecond;
  const SessionId patient = town.join("a", request);
  request = trainer(0, 2);
  request.token = "other";
  const SessionId no_opinion = town.join("a", request);
  town.tick(30 * kSecond);
  EXPECT_TRUE(town.waits(patient));
  EXPECT_NE(town.refusal(no_opinion), "");
  town.tick(70 * kSecond);
  EXPECT_NE(town.refusal(patient), "");
}

TEST(MembershipDeadline, SeveralOfOneNodeAtOnce) {
  Town town(1);
  const SessionId zero = town.join("a", trainer(0, 40));
  const SessionId one = town.join("a", trainer(1, 40));
  town.tick(300 * kSecond);
  for (const SessionId session : {zero, one}) {
    EXPECT_THAT(town.refusal(session),
                AllOf(HasSubstr("missing ranks: 2 3 4"), HasSubstr("17 and 22 more")));
  }
}

TEST(MembershipDeadline, WhomTheJobThatRunsDoesNotTakeInIsToldWhy) {
  Town town(1);
  JoinRequest request = trainer(0, 1);
  request.policy = "elastic";
  const SessionId first = town.join("a", request);
  ASSERT_TRUE(town.admitted(first));
  for (const uint32_t size : {1u, 3u}) {
    request.size = size;
    const SessionId second = town.join("a", request);
    town.tick(300 * kSecond);
    EXPECT_THAT(town.refusal(second), AllOf(HasSubstr("time ran out"),
                                            HasSubstr("rank 0 of it lives"), HasSubstr("on node a"),
                                            HasSubstr("pid " + std::to_string(town.pid_of(first))),
                                            Not(HasSubstr("missing ranks"))));
  }
  const SessionId other = town.join("a", trainer(0, 1));
  town.tick(300 * kSecond);
  EXPECT_THAT(town.refusal(other), HasSubstr("with policy 'elastic' instead of 'fail'"));
}

TEST(MembershipDeadline, WhileProposedThoseWhoDidNotAnswerAreNamed) {
  Town town(3);
  const SessionId zero = town.join("a", trainer(0, 3));
  const SessionId one = town.join("b", trainer(1, 3));
  const SessionId two = town.join("c", trainer(2, 3));
  while (town.deliver("b", "a") || town.deliver("c", "a")) {
  }
  town.hold("c", "a");  // b accepts, c's answer does not come
  town.run();
  town.tick(300 * kSecond);
  EXPECT_THAT(town.refusal(zero), AllOf(HasSubstr("time ran out"), HasSubstr("not accepted by: c"),
                                        Not(HasSubstr("by: b"))));
  EXPECT_EQ(town.engines("a"), 0u);
  town.release("c", "a");
  town.run();
  for (const SessionId session : {one, two}) {
    EXPECT_THAT(town.refusal(session), HasSubstr("not accepted by: c"));
  }
  EXPECT_EQ(town.engines("b") + town.engines("c"), 0u);
}

TEST(MembershipDeadline, WhoeverDefersSaysForWhichConnection) {
  Town town(3, false);
  town.connect("a", "b");
  town.connect("a", "c");
  JoinRequest request = trainer(1, 3);
  request.timeout = 5 * kSecond;
  const SessionId one = town.join("b", request);
  const SessionId two = town.join("c", trainer(2, 3));
  const SessionId zero = town.join("a", trainer(0, 3));
  town.run();
  town.tick(5 * kSecond);
  EXPECT_THAT(town.refusal(one),
              AllOf(HasSubstr("time ran out"), HasSubstr("node b to be connected to node c"),
                    Not(HasSubstr("missing ranks"))));
  town.run();
  // The others wait on: rank 1 may come back.
  EXPECT_TRUE(town.waits(zero));
  EXPECT_TRUE(town.waits(two));
  EXPECT_EQ(town.engines("a"), 0u);
  EXPECT_EQ(town.at("a").jobs().at(0).missing.first, std::vector<uint32_t>{1});
}

TEST(MembershipDeadline, TheProposersTimeEndsTheWaitOfThoseWhoDefer) {
  Town town(3, false);
  town.connect("a", "b");
  town.connect("a", "c");
  JoinRequest request = trainer(0, 3);
  request.timeout = 5 * kSecond;
  const SessionId one = town.join("b", trainer(1, 3));
  const SessionId two = town.join("c", trainer(2, 3));
  const SessionId zero = town.join("a", request);
  town.run();
  town.tick(5 * kSecond);
  town.run();
  for (const SessionId session : {zero, one, two}) {
    EXPECT_THAT(town.refusal(session), HasSubstr("not accepted by: b c"));
  }
}

// Who comes too late to a job that runs, on a node that is not in it, and what is in its way.
class MembershipUnwelcome : public testing::Test {
 protected:
  static JoinRequest elastic(uint32_t rank, const std::string& policy = "elastic min=1 max=4") {
    JoinRequest request = trainer(rank, 2);
    request.policy = policy;
    request.timeout = 10 * kSecond;
    return request;
  }
  MembershipUnwelcome() {
    zero_ = town_.join("a", elastic(0));
    one_ = town_.join("b", elastic(1));
    town_.run();
  }
  std::string shown(const std::string& node) {
    const auto jobs = town_.at(node).jobs();
    return jobs.empty() ? "" : jobs.front().explanation;
  }
  std::string told_in_the_end(const JoinRequest& request) {
    const SessionId late = town_.join("c", request);
    town_.settle();
    town_.tick(10 * kSecond);
    return town_.refusal(late);
  }

  Town town_{3};
  SessionId zero_ = 0, one_ = 0;
};

TEST_F(MembershipUnwelcome, IsToldOfTheOtherPolicy) {
  EXPECT_THAT(told_in_the_end(elastic(2, "elastic min=2 max=4")),
              AllOf(HasSubstr("it runs already, with policy 'elastic min=1 max=4' instead of "
                              "'elastic min=2 max=4'"),
                    Not(HasSubstr("missing"))));
}

TEST_F(MembershipUnwelcome, IsToldOfTheRankThatLives) {
  EXPECT_THAT(told_in_the_end(elastic(1)),
              AllOf(HasSubstr("rank 1 of it lives: pid " + std::to_string(town_.pid_of(one_)) +
                              " on node b"),
                    Not(HasSubstr("missing"))));
}

TEST_F(MembershipUnwelcome, OfAnotherUserIsToldWhoseTheJobIs) {
  JoinRequest request = elastic(2);
  request.uid = 2000;
  EXPECT_THAT(told_in_the_end(request), HasSubstr("belongs to uid 1000"));
}

TEST_F(MembershipUnwelcome, ComesInWhenNothingIsInItsWayAnyMore) {
  const SessionId late = town_.join("c", elastic(1));
  town_.settle();
  EXPECT_THAT(shown("c"), HasSubstr("rank 1 of it lives"));
  town_.die(one_);
  town_.settle();
  EXPECT_TRUE(town_.grows("a"));
  town_.at_join_points = true;
  town_.at("a").engine_at_join_point(town_.job_of(zero_));
  town_.settle();
  EXPECT_TRUE(town_.admitted(late)) << shown("c");
}

TEST_F(MembershipUnwelcome, IsToldOfTheMissingAgainWhenTheJobIsOver) {
  const SessionId late = town_.join("c", elastic(1));
  town_.settle();
  town_.leave(zero_);
  town_.leave(one_);
  town_.settle();
  EXPECT_THAT(shown("c"), HasSubstr("waits for 1 of 2 ranks: "));
  town_.tick(10 * kSecond);
  EXPECT_THAT(town_.refusal(late), HasSubstr("missing ranks: 0"));
}

TEST_F(MembershipUnwelcome, ForgetsWhatALostNodeSaid) {
  const SessionId late = town_.join("c", elastic(1));
  town_.settle();
  town_.crash("a");
  town_.crash("b");
  town_.tick(10 * kSecond);
  EXPECT_THAT(town_.refusal(late), HasSubstr("missing ranks: 0"));
}

}  // namespace
}  // namespace gradring::core
