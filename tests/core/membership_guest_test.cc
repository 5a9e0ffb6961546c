// Ranks that come to a job that runs, and wait to be taken in.

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <vector>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(MembershipGuest, RanksOfOneNodeComeInTogether) {
  Town town(3);
  JoinRequest request = trainer(0, 2);
  request.policy = "elastic min=1 max=4";
  town.join("a", request);
  request.rank = 1;
  town.join("b", request);
  town.run();
  std::vector<SessionId> guests;
  for (const uint32_t rank : {2u, 3u}) {
    request.rank = rank;
    guests.push_back(town.join("c", request));
    town.run();  // the first is already waiting for a join point when the second comes
    ASSERT_EQ(town.at("c").jobs().size(), 1u);
    EXPECT_EQ(town.at("c").jobs()[0].size, rank + 1);
    EXPECT_EQ(town.at("c").jobs()[0].state, JobState::kProposed);
  }
  town.die(guests[0]);
  town.run();
  ASSERT_EQ(town.at("c").jobs().size(), 1u);
  EXPECT_EQ(town.at("c").jobs()[0].size, 3u);
  EXPECT_EQ(town.engines("c"), 1u);
  EXPECT_TRUE(town.waits(guests[1]));
}

// A daemon that had proposed the job, and knows nothing of that in its next life, where another
// rank waits to be taken in: who accepted then asks it what became of the job.
TEST(MembershipGuest, WhoNeverHeardOfTheFirstViewIsAnsweredByAGuestToo) {
  Town town(3);
  JoinRequest request = trainer(0, 1);
  request.policy = "elastic min=1 max=3";
  town.join("a", request);
  town.run();
  request.rank = 1;
  const SessionId guest = town.join("b", request);
  town.run();
  ASSERT_EQ(town.at("b").jobs().size(), 1u);
  ASSERT_EQ(town.at("b").jobs()[0].state, JobState::kProposed);
  town.at("b").on_message("c", Accept{town.at("b").jobs()[0].incarnation}, kSecond);
  EXPECT_THAT(town.under_way("b", "c"), ElementsAre("Reject()"));
  EXPECT_TRUE(town.waits(guest));
}

// The job would be half of a view with somebody who is not there.
TEST(MembershipGuest, AnOnlyGuestThatGoesIsNotTakenIn) {
  using Going = std::function<void(Town&, SessionId)>;
  const std::vector<Going> ways = {
      [](Town& town, SessionId guest) { town.die(guest); },
      [](Town& town, SessionId guest) { town.leave(guest); },
      [](Town& town, SessionId) { town.cut("a", "b"); },
      [](Town& town, SessionId) { town.tick(301 * kSecond); },
  };
  for (const Going& goes : ways) {
    Town town(2);
    JoinRequest request = trainer(0, 1);
    request.policy = "elastic min=1 max=2";
    const SessionId running = town.join("b", request);
    request.rank = 1;
    const SessionId guest = town.join("a", request);
    town.run();
    ASSERT_TRUE(town.admitted(running));
    EXPECT_TRUE(town.grows("b"));
    goes(town, guest);
    town.run();
    EXPECT_FALSE(town.grows("b"));
    EXPECT_TRUE(town.admitted(running));
  }
}

// Whichever of them comes first: those beyond its size come in once it runs.
TEST(MembershipGuest, AJobFormsOfTheRanksWithinItsSize) {
  for (const char* node : {"a", "b", "c"}) {
    for (const uint32_t beyond_comes : {0u, 1u, 2u}) {
      Town town(3);
      std::map<uint32_t, SessionId> sessions;
      JoinRequest request = trainer(0, 2);
      request.policy = "elastic min=1 max=4";
      std::vector<uint32_t> ranks = {0, 1};
      ranks.insert(ranks.begin() + beyond_comes, 3);
      for (const uint32_t rank : ranks) {
        request.rank = rank;
        sessions[rank] = town.join(rank == 3 ? node : rank == 0 ? "a" : "b", request);
      }
      town.run();
      EXPECT_TRUE(town.admitted(sessions[0])) << town.refusal(sessions[0]);
      EXPECT_TRUE(town.admitted(sessions[1])) << town.refusal(sessions[1]);
      EXPECT_TRUE(town.waits(sessions[3])) << town.refusal(sessions[3]);
      EXPECT_TRUE(town.grows("a"));
    }
  }
}

TEST(MembershipGuest, WhatAGuestHasWithdrawnCountsNoMore) {
  Town town(3);
  JoinRequest request = trainer(0, 2);
  request.policy = "elastic min=1 max=3";
  town.join("a", request);
  request.rank = 1;
  town.join("b", request);
  town.run();
  const auto claimed = [&town] {
    const auto* claims = std::get_if<Claims>(&town.peek("c", "a"));
    return claims == nullptr || claims->ranks.empty() ? 0 : claims->ranks.front().claim;
  };
  request.rank = 2;
  town.hold("c", "a");
  town.join("c", request);
  const uint64_t first = claimed();
  ASSERT_NE(first, 0u);
  town.release("c", "a");
  town.run();
  ASSERT_EQ(town.at("c").jobs()[0].state, JobState::kProposed) << "it waits for a join point";

  town.hold("c", "a");
  town.notice_loss("c", "b");
  ASSERT_EQ(town.engines("c"), 0u) << "what it is sent now is lost";
  EXPECT_NE(claimed(), 0u);
  EXPECT_NE(claimed(), first) << "a must not take it in for what it accepted before";
}

TEST(MembershipGuest, WithoutAMaximumTheGuestsOwnSizeIsTheBound) {
  Town town(2);
  JoinRequest request = trainer(0, 1);
  request.policy = "elastic";
  town.join("a", request);
  town.run();
  request.rank = 3;
  EXPECT_THAT(town.refused_join("b", request).message(), HasSubstr("rank 3 is outside the size 1"));
  request.size = 4;
  town.join("b", request);
  town.run();
  ASSERT_EQ(town.at("b").jobs().size(), 1u);
  EXPECT_EQ(town.at("b").jobs()[0].size, 2u);
  EXPECT_EQ(town.at("b").jobs()[0].state, JobState::kProposed) << "it waits for a join point";
}

TEST(MembershipGuest, WhoDoesNotKnowTheGuestsGivesTheLowestTime) {
  Town town(2);
  JoinRequest request = trainer(0, 2);
  request.policy = "elastic";
  const SessionId zero = town.join("a", request);
  request.rank = 1;
  town.join("b", request);
  town.run();
  const JobId job = town.job_of(zero);
  town.at("b").engine_at_join_point(job);
  town.tick(500 * kMillisecond);  // a machine without time to spare: a is still on its way there
  town.run();
  EXPECT_EQ(town.at("b").view_of(job)->epoch, 1u);
  town.settle();
  EXPECT_EQ(town.at("b").view_of(job)->epoch, 2u) << "but not for ever";
}

// Of its earlier life, as a message that took long.
TEST(MembershipGuest, AGuestIsNotDisturbedByAViewThatIsOlderThanItsAbsence) {
  Town town(3);
  std::vector<SessionId> sessions;
  JoinRequest request = trainer(0, 3);
  request.policy = "elastic min=1";
  for (const char* node : {"a", "b", "c"}) {
    sessions.push_back(town.join(node, request));
    ++request.rank;
  }
  town.run();
  const JobId job = town.job_of(sessions[0]);
  town.at("a").engine_condemned(job, 1);
  town.settle();
  const change::Commit old{job, 2, {1, "a"}, {*town.at("a").view_of(job), {}}};
  ASSERT_EQ(old.proposal.view.epoch, 2u);
  town.die(sessions[2]);
  town.settle();
  ASSERT_EQ(town.at("a").view_of(job)->members.size(), 2u);
  request.rank = 2;
  const SessionId guest = town.join("c", request);
  town.run();
  ASSERT_TRUE(town.grows("a"));
  town.at("c").on_message("b", old, town.now);
  EXPECT_EQ(town.under_way(), 0u) << "takes nothing back";
  town.run();
  EXPECT_TRUE(town.waits(guest));
  EXPECT_TRUE(town.grows("a"));
  EXPECT_EQ(town.engines("c"), 1u);
}

// The others may be connected with nobody else who knows of the view that left it out.
TEST(MembershipGuest, WhoWasLeftOutTellsSoAlsoWhileItWaitsToComeBack) {
  Town town(3);
  std::vector<SessionId> sessions;
  for (const uint32_t rank : {0u, 1u, 2u})
    sessions.push_back(town.join(node_of(rank), elastic(rank, 3)));
  town.run();
  const JobId job = town.job_of(sessions[0]);
  town.die(sessions[2]);
  town.settle();
  ASSERT_EQ(town.at("a").view_of(job)->members.size(), 2u);
  town.join("c", elastic(2, 3));
  town.run();
  ASSERT_TRUE(town.grows("a"));
  town.at("c").on_message("b", change::Ask{job, 1}, town.now);
  EXPECT_THAT(town.under_way("c", "b"), ElementsAre("change::Commit"));
}

// It had the job's engine then, by a rank that has left since. What is said to it once it is taken
// in would be lost, and nobody would say it again.
TEST(MembershipGuest, AGuestIsNotTakenInForWhatItAcceptedAsAMember) {
  Town town(3);
  std::vector<SessionId> sessions;
  for (const uint32_t rank : {0u, 1u, 2u})
    sessions.push_back(town.join(node_of(rank), elastic(rank, 3)));
  town.run();
  const JobId job = town.job_of(sessions[0]);
  town.hold("a", "b");
  const SessionId guest = town.join("b", elastic(3, 4));
  town.run();
  ASSERT_THAT(town.under_way("a", "b"), ElementsAre("Propose"));
  town.die(sessions[1]);
  town.run();
  town.hold("b", "a");
  while (town.deliver("a", "b")) {
  }
  ASSERT_THAT(town.under_way("b", "a"), Contains("Accept"));
  town.run();
  town.at("c").on_message("a", change::Ask{job, 1}, town.now);
  town.run();
  ASSERT_EQ(town.at("a").view_of(job)->members.size(), 2u) << "they go on without it";
  ASSERT_THAT(town.under_way("a", "b"), Contains("Propose")) << "and invite it once more";
  town.release("b", "a");
  town.run();
  EXPECT_FALSE(town.grows("a"));

  town.release("a", "b");
  town.settle();
  EXPECT_TRUE(town.grows("a"));
  town.at_join_points = true;
  town.at("a").engine_at_join_point(job);
  town.settle();
  EXPECT_TRUE(town.admitted(guest)) << town.refusal(guest);
}

// Its engine had reported already, and would have been in the next view with the guest.
TEST(MembershipGuest, AJobThatFailsAsItGrowsLeavesItsGuestsToTheNextOne) {
  Town town(1);
  const SessionId zero = town.join("a", elastic(0, 1));
  const SessionId guest = town.join("a", elastic(1, 2));
  town.run();
  const JobId job = town.job_of(zero);
  ASSERT_TRUE(town.grows("a"));
  town.at("a").engine_at_join_point(job);
  town.at("a").engine_failed(job, {Cause::kDeadline, {}});
  Report report;
  OpReport& point = report.ops.emplace_back();
  point.key = {OpKey::kJoinSpace, 0};
  point.signature.emplace().collective = Collective::kJoinPoint;
  point.contributions = 1;
  town.at("a").engine_frozen(job, 1, report);
  town.settle();
  EXPECT_TRUE(town.closed(zero).has_value());
  EXPECT_TRUE(town.waits(guest));

  town.leave(zero);
  EXPECT_TRUE(town.admitted(town.join("a", elastic(0, 2))));
  EXPECT_TRUE(town.admitted(guest)) << town.refusal(guest);
}

// Else the job would end for those who are well, too: they are half of the view that they
// committed.
TEST(MembershipGuest, AGuestThatClaimsAnewAsItIsTakenInVotesOnGoingOnWithoutIt) {
  for (const bool invited_again : {false, true}) {
    Town town(2);
    JoinRequest request = trainer(0, 1);
    request.policy = "elastic min=1 max=3";
    const SessionId running = town.join("b", request);
    request.rank = 1;
    std::vector<SessionId> guests = {town.join("a", request)};
    town.run();
    ASSERT_TRUE(town.grows("b"));

    town.hold("b", "a");
    town.at_join_points = true;
    town.at("b").engine_at_join_point(town.job_of(running));
    while (town.report("b") || town.deliver("a", "b")) {
    }
    ASSERT_THAT(town.under_way("b", "a"), Contains(HasSubstr("Commit")));
    request.rank = 2;
    guests.push_back(town.join("a", request));
    if (invited_again) town.hold("a", "b");
    town.release("b", "a");
    town.run();
    town.release("a", "b");
    town.settle();
    EXPECT_TRUE(town.admitted(running)) << town.closed(running).has_value();
    town.at("b").engine_at_join_point(town.job_of(running));
    town.settle();
    for (const SessionId guest : guests) EXPECT_TRUE(town.admitted(guest)) << town.refusal(guest);
  }
}

}  // namespace
}  // namespace gradring::core
