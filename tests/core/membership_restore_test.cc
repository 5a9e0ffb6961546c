// What the next life of a daemon makes of records that its last life was about to change.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "daemon/core/membership.h"
#include "tests/core/membership_hands.h"

namespace gradring::core {
namespace {

using testing::_;
using testing::NiceMock;

// Two ranks of a, and one of b.
JobRecord running() {
  JobRecord record;
  View& view = record.view;
  view.job = "job";
  view.incarnation[0] = 1;
  view.epoch = 3;
  view.size = 3;
  view.policy = "elastic";
  view.members = {{"a", {{0, 0, 100, 11, 1}, {1, 1, 101, 12, 3}}}, {"b", {{2, 0, 200, 13, 1}}}};
  record.local = {{1001, 0, 0, 100, 11, true}, {1002, 1, 1, 101, 12, true}};
  record.acceptor.epoch = 3;
  return record;
}

class MembershipRestore : public testing::Test {
 protected:
  NiceMock<MockHands> hands_;
  Membership next_{"a", {}, 1, &hands_};
};

TEST(JobRecord, AnEngineIsInItsViewOrOneBehindOrAGuestsThatHasJustComeIn) {
  JobRecord record = running();
  EXPECT_TRUE(record.fits_engine(3));
  EXPECT_TRUE(record.fits_engine(2));
  EXPECT_FALSE(record.fits_engine(1));
  EXPECT_FALSE(record.fits_engine(4));
  EXPECT_TRUE(record.fits_engine(0));
  record.acceptor.epoch = 4;  // it was killed before it entered the view that it had heard of
  EXPECT_TRUE(record.fits_engine(4));
  EXPECT_FALSE(record.fits_engine(2));
}

TEST_F(MembershipRestore, NobodyIsLostWhoIsThere) {
  EXPECT_CALL(hands_, leave_engine(_, _, _)).Times(0);
  next_.restore(running(), 3, kSecond);
}

TEST_F(MembershipRestore, WhoWentAwayWhileItWasTakenInIsLostInTheNextLifeToo) {
  JobRecord record = running();
  record.local.pop_back();  // its claim was given up; the view has it all the same
  EXPECT_CALL(hands_, leave_engine(_, 1, _));
  next_.restore(record, 3, kSecond);
}

TEST_F(MembershipRestore, ASessionThatEndedBeforeItsRankWasWrittenDownAsLost) {
  next_.restore(running(), 3, kSecond);
  EXPECT_CALL(hands_, leave_engine(_, 1, _));
  next_.session_lost(1002, "ended while its daemon was restarted");
}

// Killed between the two.
TEST_F(MembershipRestore, AnEngineThatDoesNotKnowOfTheViewIsTold) {
  JobRecord record = running();
  change::Commit commit;
  commit.incarnation = record.view.incarnation;
  commit.epoch = 3;
  commit.proposal.view = record.view;
  record.acceptor.last_commit = commit;
  EXPECT_CALL(hands_, adopt_engine(record.view.incarnation, commit.proposal,
                                   testing::ElementsAre(SessionId{1001}, SessionId{1002})));
  next_.restore(record, 2, kSecond);
}

// Killed when it had written down that, and nothing that follows from it. The view after its own
// says why it is not in it; a later one says something else.
TEST_F(MembershipRestore, WhoIsNoMemberOfTheViewThatItHeardOfIsExcluded) {
  for (const auto& [later, words] :
       {std::pair{1, "the others go on without it; "},
        std::pair{5, "the others went on without it, unheard; by now "}}) {
    Membership restored{"a", {}, 1, &hands_};
    JobRecord record = running();
    const uint64_t epoch = record.view.epoch + later;
    change::Commit commit;
    commit.incarnation = record.view.incarnation;
    commit.epoch = epoch;
    commit.proposal.view = record.view;
    commit.proposal.view.epoch = epoch;
    commit.proposal.view.explanation = "what they say";
    commit.proposal.view.size = 1;
    commit.proposal.view.members = {{"b", {{2, 0, 200, 13, 1}}}};
    record.acceptor.epoch = epoch;
    record.acceptor.last_commit = commit;
    const auto excluded = testing::Truly([words = std::string(words)](const Failure& failure) {
      return failure.cause == Cause::kExcluded && failure.blame.evidence == words + "what they say";
    });
    EXPECT_CALL(hands_, close(1001, _, excluded));
    EXPECT_CALL(hands_, close(1002, _, excluded));
    restored.restore(record, 3, kSecond);
  }
}

// All others were done with the first job, so it waits for nobody; b is met again for the sake of
// the second one. What was said to b in the new view of the first one before that is lost: nobody
// says it again unless that view ends.
TEST_F(MembershipRestore, WhoIsMetAgainForAnotherJobMissedWordsOfThisOneToo) {
  JobRecord first = running();
  first.view.members.push_back({"c", {{3, 0, 300, 14, 1}}});
  first.view.size = 4;
  JobRecord second = first;
  second.view.incarnation[0] = 2;
  second.local = {{2001, 0, 0, 110, 11, true}, {2002, 1, 1, 111, 12, true}};
  first.done = {"b", "c"};  // so that it goes on at once
  const JobId id = first.view.incarnation;
  EXPECT_CALL(hands_, freeze_engine(_, 3)).Times(testing::AnyNumber());
  next_.restore(first, 3, kSecond);
  next_.restore(second, 3, kSecond);
  next_.peer_up("c");
  change::Commit commit;
  commit.incarnation = id;
  commit.epoch = 4;
  commit.proposal.view = first.view;
  commit.proposal.view.epoch = 4;
  EXPECT_CALL(hands_, adopt_engine(id, commit.proposal, _));
  next_.on_message("c", commit, 2 * kSecond);
  EXPECT_CALL(hands_, freeze_engine(id, 4)).Times(0);
  next_.tick(3 * kSecond);
  testing::Mock::VerifyAndClearExpectations(&hands_);

  EXPECT_CALL(hands_, freeze_engine(id, 4));
  next_.peer_up("b");
  next_.tick(20 * kSecond);
}

// The others were done with the job, and their daemons are gone for good: nobody could answer, and
// what a rank here still asks for can only fail, as it would have without the restart.
TEST_F(MembershipRestore, WhereAllOthersAreDoneAndGoneTheJobGoesOnAsItIs) {
  JobRecord record = running();
  record.view.policy = "fail";
  record.view.members.push_back({"c", {{3, 0, 300, 14, 1}}});
  record.view.size = 4;
  record.done = {"b", "c"};
  const JobId id = record.view.incarnation;
  EXPECT_CALL(hands_, freeze_engine(_, _)).Times(0);
  EXPECT_CALL(hands_, close(_, _, _)).Times(0);
  EXPECT_CALL(hands_, member_gone(id, _, _)).Times(2);
  next_.restore(record, 3, kSecond);
  for (const char* node : {"b", "c"}) next_.peer_lost(node, Cause::kPeerLost, "was not met again");
  for (Time now = 2; now < 200; ++now) next_.tick(now * kSecond);
  testing::Mock::VerifyAndClearExpectations(&hands_);

  EXPECT_CALL(hands_, close(1001, id, _));
  EXPECT_CALL(hands_, close(1002, id, _));
  next_.engine_absent(id, {std::nullopt, "b", {Cause::kPeerLost, {}}, true});
  for (Time now = 200; now < 300; ++now) next_.tick(now * kSecond);
}

TEST_F(MembershipRestore, WhereAllOthersWereDoneAndOneComesBackTheViewEnds) {
  JobRecord record = running();
  record.done = {"b"};
  next_.restore(record, 3, kSecond);
  EXPECT_CALL(hands_, freeze_engine(record.view.incarnation, 3));
  next_.peer_up("b");
}

// Only nodes that are there no more were to tell it that the job went on without it: c has come in
// since, and invites the rank that was started again.
TEST_F(MembershipRestore, AnInvitationToAJobThatHasLeftItOutIsAnsweredByAQuestion) {
  std::vector<JobMessage> said;
  ON_CALL(hands_, send("c", _)).WillByDefault([&said](const std::string&, const JobMessage& one) {
    said.push_back(one);
  });
  const JobRecord before = running();
  next_.restore(before, 3, kSecond);
  next_.peer_up("c");
  for (const SessionId session : {1001, 1002}) next_.session_lost(session, "killed by signal 9");
  JoinRequest request;
  request.session = 1003;
  request.job = before.view.job;
  request.rank = 1;
  request.size = 3;
  request.policy = before.view.policy;
  request.timeout = 300 * kSecond;
  ASSERT_TRUE(next_.join(request, kSecond).ok());
  next_.tick(2 * kSecond);
  ASSERT_FALSE(said.empty());
  const auto claims = std::get<Claims>(said.back());
  ASSERT_EQ(claims.ranks.size(), 1u);

  said.clear();
  View view = before.view;
  view.epoch = 0;  // an invitation
  view.size = 2;
  view.members = {{"c", {{0, 0, 300, 21, 5}}}, {"a", claims.ranks}};
  next_.on_message("c", Propose{"", view}, 2 * kSecond);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(std::get<change::Ask>(said[0]).epoch, 3u);
}

}  // namespace
}  // namespace gradring::core
