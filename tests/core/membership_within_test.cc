// A job within a job: it cannot come about without a rank that the outer one has lost.

#include <gmock/gmock.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// An elastic job of three ranks, each on a node of its own.
class MembershipWithin : public ::testing::Test {
 protected:
  MembershipWithin() {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      JoinRequest request = trainer(rank, 3);
      request.policy = "elastic";
      ranks_.push_back(town_.join(node_of(rank), request));
    }
    town_.run();
    outer_ = town_.job_of(ranks_[0]);
  }
  JoinRequest pair(uint32_t rank, uint32_t place, std::vector<uint32_t> ranks) {
    JoinRequest request = trainer(place, 2);
    request.job = "train[" + std::to_string(ranks[0]) + ":" + std::to_string(ranks[1]) + "]";
    request.within = Within{outer_, town_.at(node_of(rank)).view_of(outer_)->grown, ranks};
    return request;
  }
  std::string explanation(const std::string& node, const std::string& job) {
    for (const JobInfo& info : town_.at(node).jobs()) {
      if (info.name == job) return info.explanation;
    }
    return "";
  }
  void kill(uint32_t rank) {
    town_.die(ranks_[rank]);
    town_.settle();
  }

  Town town_{3};
  std::vector<SessionId> ranks_;
  JobId outer_{};
};

TEST_F(MembershipWithin, ComesAboutWhereAllItsRanksAreThere) {
  const SessionId one = town_.join("b", pair(1, 0, {1, 2}));
  const SessionId two = town_.join("c", pair(2, 1, {1, 2}));
  town_.run();
  EXPECT_TRUE(town_.admitted(one) && town_.admitted(two));
}

TEST_F(MembershipWithin, SaysWhoOfTheJobDoesNotCome) {
  town_.join("b", pair(1, 0, {1, 2}));
  town_.run();
  EXPECT_EQ(explanation("b", "train[1:2]"), "waits for 1 of 2 ranks: rank 2 (node c, pid " +
                                                std::to_string(town_.pid_of(ranks_[2])) +
                                                ") of job train");
}

TEST_F(MembershipWithin, OfAJobThatIsCutOffItIsSaidWhomItCannotReach) {
  EXPECT_EQ(explanation("a", "train"), "epoch 1: formed of 3 ranks on 3 nodes");
  town_.cut("a", "b");
  town_.cut("a", "c");
  town_.run();
  EXPECT_THAT(explanation("a", "train"),
              AllOf(HasSubstr("formed of 3 ranks on 3 nodes; now: agreeing on a new view"),
                    HasSubstr("too few members can be reached, lost are: b, c")));
}

TEST_F(MembershipWithin, GathersNoLongerWhenOneOfItsRanksIsLost) {
  const SessionId waits = town_.join("b", pair(1, 0, {1, 2}));
  const SessionId other = town_.join("a", pair(0, 0, {0, 1}));
  town_.run();
  kill(2);
  EXPECT_THAT(town_.refusal(waits),
              AllOf(HasSubstr("job train[1:2] cannot come about: rank 2 of job train is gone"),
                    HasSubstr("killed by signal 9")));
  EXPECT_TRUE(town_.waits(other)) << "it needs no rank that is lost";
  town_.join("b", pair(1, 1, {0, 1}));
  town_.run();
  EXPECT_TRUE(town_.admitted(other));
}

TEST_F(MembershipWithin, GathersNoLongerWhenOneOfItsRanksHasLeft) {
  const SessionId waits = town_.join("b", pair(1, 0, {1, 2}));
  const SessionId other = town_.join("a", pair(0, 0, {0, 1}));
  town_.run();
  town_.leave(ranks_[2]);
  town_.run();
  EXPECT_THAT(town_.refusal(waits), HasSubstr("job train[1:2] cannot come about: rank 2 of job "
                                              "train has left it"));
  EXPECT_THAT(town_.refused_join("b", pair(1, 0, {1, 2})).message(), HasSubstr("has left it"));
  EXPECT_TRUE(town_.waits(other)) << "it needs no rank that has left";
  town_.leave(ranks_[1]);
  town_.run();
  EXPECT_THAT(town_.refusal(other), HasSubstr("rank 1 of job train has left it"));
}

TEST_F(MembershipWithin, OfRanksOfOneNodeGathersNoLongerWhenOneHasLeft) {
  JoinRequest first = trainer(0, 2), second = trainer(1, 2);
  first.job = second.job = "near";
  const SessionId one = town_.join("a", first), two = town_.join("a", second);
  town_.run();
  JoinRequest inner = trainer(0, 2);
  inner.job = "near[0-1]";
  inner.within = Within{town_.job_of(one), 1, {0, 1}};
  const SessionId waits = town_.join("a", inner);
  town_.run();
  ASSERT_TRUE(town_.waits(waits));
  town_.leave(two);
  town_.run();
  EXPECT_THAT(town_.refusal(waits), HasSubstr("rank 1 of job near has left it"));
}

TEST_F(MembershipWithin, IsRefusedToWhoComesLater) {
  kill(2);
  const Status refused = town_.refused_join("b", pair(1, 0, {1, 2}));
  EXPECT_EQ(refused.code(), Code::kAborted);
  EXPECT_THAT(refused.message(), HasSubstr("rank 2 of job train is gone"));
}

TEST_F(MembershipWithin, IsNotWaitedForWhenItsProposalComesBack) {
  const SessionId one = town_.join("b", pair(1, 0, {1, 2}));
  town_.join("c", pair(2, 1, {1, 2}));
  while (town_.engines("b") == 1) ASSERT_TRUE(town_.deliver("c", "b"));
  town_.hold("b", "c");  // with the proposal
  town_.cut("a", "c");
  town_.settle();
  ASSERT_FALSE(town_.at("b").view_of(outer_)->has(2));
  ASSERT_TRUE(town_.waits(one));
  town_.cut("b", "c");
  EXPECT_THAT(town_.refusal(one), HasSubstr("rank 2 of job train is gone"));
}

// What forms a daemon forgets: its trainers join anew.
TEST_F(MembershipWithin, IsNotWaitedForByWhoMissedInARestartThatItCameAbout) {
  for (const bool over_before : {false, true}) {
    Town town(2);
    JoinRequest first = trainer(0, 2), second = trainer(1, 2);
    const JobId outer{7};
    for (JoinRequest* const request : {&first, &second}) {
      request->job = "train[0-1]";
      request->within = Within{outer, 1, {0, 1}};
    }
    const SessionId one = town.join("a", first);
    town.join("b", second);
    town.hold("a", "b");
    while (!town.admitted(one)) {
      town.run();
      ASSERT_TRUE(town.deliver("a", "b"));
    }
    town.crash("b");
    if (over_before) {
      town.settle();
      ASSERT_TRUE(town.closed(one));
      town.leave(one);
    }
    town.release("a", "b");
    const SessionId again = town.join("b", second);
    ASSERT_TRUE(town.waits(again));
    town.connect("a", "b");
    town.settle();
    EXPECT_THAT(town.refusal(again), AllOf(HasSubstr("job train[0-1]: "), HasSubstr("node b")));
  }
}

// Of the ranks of a job of which no node knows.
std::vector<JoinRequest> group_of_three() {
  std::vector<JoinRequest> requests;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    requests.push_back(trainer(rank, 3));
    requests.back().job = "train[0-2]";
    requests.back().within = Within{JobId{7}, 1, {0, 1, 2}};
  }
  return requests;
}

TEST_F(MembershipWithin, IsNotWaitedForByARankThatComesLongAfterAnotherOfItsNodeHasHeardSo) {
  Town town(2);
  const std::vector<JoinRequest> requests = group_of_three();
  const SessionId one = town.join("a", requests[0]);
  town.join("b", requests[1]);
  town.join("b", requests[2]);
  town.run();
  ASSERT_TRUE(town.admitted(one));
  town.crash("b");
  town.settle();
  ASSERT_TRUE(town.closed(one));
  town.leave(one);

  const SessionId second = town.join("b", requests[1]);
  town.connect("a", "b");
  town.settle();
  EXPECT_THAT(town.refusal(second), HasSubstr("job train[0-2]: "));
  const SessionId next = town.join("b", requests[1]);
  town.settle();
  EXPECT_TRUE(town.waits(next)) << "for the next of that name";
  const SessionId third = town.join("b", requests[2]);
  town.settle();
  EXPECT_THAT(town.refusal(third), HasSubstr("job train[0-2]: "));
  EXPECT_TRUE(town.waits(next));
}

// Whoever would tell it may not be connected to it, and be in another life when it is.
TEST_F(MembershipWithin, IsNotWaitedForByWhoMissedItWhereOneThatKnowsHasForgottenIt) {
  Town town(3);
  const std::vector<JoinRequest> requests = group_of_three();
  const SessionId one = town.join("a", requests[0]);
  const SessionId two = town.join("b", requests[1]);
  town.join("c", requests[2]);
  town.hold("a", "c");
  while (!town.admitted(one)) {
    town.run();
    ASSERT_TRUE(town.deliver("a", "c"));
  }
  town.crash("c");
  town.settle();
  ASSERT_TRUE(town.closed(one) && town.closed(two));
  town.crash("a");
  town.release("a", "c");
  const SessionId again = town.join("c", requests[2]);
  town.connect("a", "c");
  town.settle();
  ASSERT_TRUE(town.waits(again)) << "it knows nothing";
  town.connect("b", "c");
  town.settle();
  EXPECT_THAT(town.refusal(again), AllOf(HasSubstr("job train[0-2]: "), HasSubstr("node c")));
}

// A pair that begins anew has the same name and token, and what it was told of the last its daemon
// may have forgotten.
TEST_F(MembershipWithin, IsWaitedForAnewThoughItsDaemonForgotThatItFailedLongAgo) {
  Town town(2);
  JoinRequest first = trainer(0, 2), second = trainer(1, 2);
  for (JoinRequest* const request : {&first, &second}) {
    request->job = "train[0:1]";
    request->within = Within{JobId{7}, 1, {0, 1}};
  }
  const SessionId one = town.join("a", first), two = town.join("b", second);
  town.run();
  town.die(two);
  town.settle();
  ASSERT_TRUE(town.closed(one));
  town.leave(one);
  town.run();
  town.crash("b");
  town.tick(MembershipOptions{}.form_deadline + 1);
  town.connect("a", "b");
  const SessionId again = town.join("b", second);
  town.settle();
  ASSERT_TRUE(town.waits(again));
  town.join("a", first);
  town.run();
  EXPECT_TRUE(town.admitted(again));
}

// Under a name and token of its own it may begin anew.
TEST_F(MembershipWithin, IsWaitedForAnewByThoseWhoSawItFail) {
  const SessionId one = town_.join("b", pair(1, 0, {1, 2}));
  const SessionId two = town_.join("c", pair(2, 1, {1, 2}));
  town_.run();
  town_.die(one);
  town_.settle();
  ASSERT_TRUE(town_.closed(two));
  town_.leave(two);
  town_.run();
  const SessionId again = town_.join("c", pair(2, 1, {1, 2}));
  town_.run();
  EXPECT_TRUE(town_.waits(again));
  town_.join("b", pair(1, 0, {1, 2}));
  town_.run();
  EXPECT_TRUE(town_.admitted(again));
}

TEST_F(MembershipWithin, DoesNotTakeOneThatCameInLaterForTheOneThatItNeeds) {
  JoinRequest before = pair(1, 0, {1, 2});
  before.within->grown = 0;  // all have come in the first epoch
  EXPECT_THAT(town_.refused_join("b", before).message(), HasSubstr("rank 1 of job train is gone"));
}

TEST_F(MembershipWithin, EndsWithAJobThatFails) {
  JoinRequest request = trainer(0, 2), other = trainer(1, 2);
  request.job = other.job = "strict";
  const SessionId first = town_.join("a", request), second = town_.join("b", other);
  town_.run();
  JoinRequest inner = trainer(0, 2);
  inner.job = "strict[0-1]";
  inner.within = Within{town_.job_of(first), 1, {0, 1}};
  const SessionId waits = town_.join("a", inner);
  town_.run();
  town_.die(second);
  town_.settle();
  EXPECT_THAT(town_.refusal(waits),
              HasSubstr("job strict[0-1] cannot come about: job strict has failed"));
}

TEST_F(MembershipWithin, OfAnotherUidSaysNothing) {
  kill(2);
  JoinRequest stranger = pair(1, 0, {1, 2});
  stranger.uid = 4711;
  EXPECT_TRUE(town_.waits(town_.join("b", stranger)));
}

}  // namespace
}  // namespace gradring::core
