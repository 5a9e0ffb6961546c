// A daemon that was killed comes back with what it promised, and without what it held (rule R2).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "daemon/core/membership.h"
#include "tests/core/membership_hands.h"

namespace gradring::core {
namespace {

using testing::NiceMock;

// Rank 0 on a, which is this node, rank 1 on b.
JobRecord of_two() {
  JobRecord record;
  View& view = record.view;
  view.job = "job";
  view.incarnation[0] = 1;
  view.epoch = 3;
  view.size = 2;
  view.policy = "elastic";
  view.members = {{"a", {{0, 0, 100, 11, 1}}}, {"b", {{1, 0, 200, 12, 1}}}};
  record.local = {{1001, 0, 0, 100, 11, true}};
  record.acceptor.epoch = 3;
  return record;
}

Proposal without_a(const JobRecord& record) {
  Proposal proposal{record.view, {}};
  ++proposal.view.epoch;
  proposal.view.size = 1;
  proposal.view.members.erase(proposal.view.members.begin());
  return proposal;
}

class WitnessStory : public testing::Test {
 protected:
  WitnessStory() {
    ON_CALL(hands_, send).WillByDefault([this](const std::string& to, const JobMessage& message) {
      EXPECT_EQ(to, "b");
      said_.push_back(message);
    });
    ON_CALL(hands_, record).WillByDefault([this](const JobRecord& r) { written_ = r; });
  }

  void come_back(const JobRecord& record) {
    next_.bear_witness(record, {Cause::kPeerLost, {{}, "a", 0, "", "its daemon was killed"}}, 1);
  }
  void hear(const JobMessage& message) { next_.on_message("b", message, kSecond); }
  template <typename Message>
  Message only() {
    EXPECT_EQ(said_.size(), 1u);
    const JobMessage message = said_.at(0);
    said_.clear();
    return std::get<Message>(message);
  }

  const JobRecord record_ = of_two();
  const JobId job_ = record_.view.incarnation;
  std::vector<JobMessage> said_;
  JobRecord written_;
  NiceMock<MockHands> hands_;
  Membership next_{"a", {}, 1, &hands_};
};

TEST_F(WitnessStory, VotesForAViewThatLeavesItOut) {
  EXPECT_CALL(hands_, leave_engine).Times(0);
  EXPECT_CALL(hands_, freeze_engine).Times(0);
  EXPECT_CALL(hands_, adopt_engine).Times(0);
  EXPECT_CALL(hands_, remove).Times(0);
  come_back(record_);
  ASSERT_EQ(next_.jobs().size(), 1u);
  EXPECT_NE(next_.jobs()[0].explanation.find("votes"), std::string::npos);

  hear(change::Prepare{job_, 3, {1, "b"}});
  const auto promise = only<change::Promise>();
  EXPECT_TRUE(promise.report.ranks.empty() && promise.report.wants_out);
  ASSERT_EQ(promise.report.lost.size(), 1u);
  EXPECT_EQ(promise.report.lost[0].failure.blame.evidence, "its daemon was killed");
  EXPECT_EQ(promise.report.lost[0].failure.blame.pid, 100);
  EXPECT_EQ(written_.acceptor.promised, (Ballot{1, "b"})) << "before it is said";

  hear(change::Accept{job_, 3, {1, "b"}, without_a(record_)});
  only<change::Accepted>();
  EXPECT_TRUE(written_.acceptor.accepted);

  EXPECT_CALL(hands_, forget(job_));
  hear(change::Commit{job_, 4, {1, "b"}, without_a(record_)});
  EXPECT_TRUE(next_.jobs().empty());
  hear(change::Prepare{job_, 3, {9, "b"}});  // of one who has not heard of it
  EXPECT_EQ(std::get<change::Commit>(said_.at(0)).epoch, 4u) << "rule V6";
}

TEST_F(WitnessStory, KeepsWhatItsLastLifePromisedAndAccepted) {
  JobRecord record = record_;
  record.acceptor.promised = {5, "c"};
  record.acceptor.accepted = Vote{{5, "c"}, without_a(record_)};
  record.acceptor.report = Report{};
  record.acceptor.report->ranks = record.view.members[0].ranks;
  come_back(record);
  hear(change::Prepare{job_, 3, {4, "b"}});
  EXPECT_EQ(only<change::Refuse>().promised, (Ballot{5, "c"}));
  hear(change::Prepare{job_, 3, {6, "b"}});
  const auto promise = only<change::Promise>();
  EXPECT_EQ(promise.accepted->ballot, (Ballot{5, "c"}));
  EXPECT_TRUE(promise.report.ranks.empty()) << "what that one reported is gone";
}

// An earlier life may have voted in it already, and have left nothing written down.
TEST_F(WitnessStory, HasNoVoteInAViewThatCountsOnRanksOfWhichItKnowsNothing) {
  hear(change::Commit{job_, 3, {1, "b"}, {record_.view, {}}});
  EXPECT_EQ(only<Left>().incarnation, job_);
  hear(change::Prepare{job_, 3, {2, "b"}});
  for (const JobMessage& said : said_) {
    EXPECT_FALSE(std::holds_alternative<change::Promise>(said));
  }
}

// A view with this node in it was agreed on, on the strength of what its last life had reported.
TEST_F(WitnessStory, AsksToBeLeftOutOfAViewThatCountsOnIt) {
  come_back(record_);
  Proposal with_both{record_.view, {}};
  ++with_both.view.epoch;
  hear(change::Commit{job_, 4, {1, "b"}, with_both});
  EXPECT_EQ(only<Left>().incarnation, job_);
  hear(change::Prepare{job_, 4, {1, "b"}});
  EXPECT_TRUE(only<change::Promise>().report.wants_out);
}

TEST_F(WitnessStory, TellsAPeerThatIsBackOfTheViewThatOnlyItsLastLifeKnew) {
  JobRecord record = record_;
  Proposal with_both{record_.view, {}};
  ++with_both.view.epoch;
  record.acceptor = {};
  record.acceptor.epoch = 4;
  record.acceptor.last_commit = change::Commit{job_, 4, {1, "a"}, with_both};
  come_back(record);
  next_.peer_up("b");
  EXPECT_TRUE(std::any_of(said_.begin(), said_.end(), [](const JobMessage& message) {
    return std::holds_alternative<Left>(message);
  }));
  said_.clear();
  hear(change::Prepare{job_, 3, {2, "b"}});
  EXPECT_EQ(only<change::Commit>().epoch, 4u);
}

// Who is taken in by a view that others told it late has heard of our end before, and of no
// member's.
TEST_F(WitnessStory, SaysOnceMoreToAMemberThatAsksThatItIsGone) {
  come_back(record_);
  said_.clear();
  hear(change::Ask{job_, record_.view.epoch});
  const auto left = only<Left>();
  EXPECT_EQ(left.epoch, record_.view.epoch);
  EXPECT_EQ(left.failure.blame.rank, 0u);
}

TEST_F(WitnessStory, IsOverWhenTheOthersAreOrNobodyAsks) {
  come_back(record_);
  EXPECT_CALL(hands_, forget(job_)).Times(3);
  hear(JobDone{job_});
  EXPECT_TRUE(next_.jobs().empty());
  come_back(record_);
  next_.tick(kSecond + 120 * kSecond);
  EXPECT_TRUE(next_.jobs().empty());
  JobRecord record = record_;
  record.view.policy = "fail";
  come_back(record);
  EXPECT_TRUE(next_.jobs().empty()) << "who is left ends such a job at once";
}

// The last life knew of it, and ended before it had written down that it was out.
TEST_F(WitnessStory, OfAViewThatLeavesItOutPassesThatOn) {
  JobRecord record = record_;
  record.acceptor = {};
  record.acceptor.epoch = 4;
  record.acceptor.last_commit = change::Commit{job_, 4, {1, "b"}, without_a(record_)};
  EXPECT_CALL(hands_, forget(job_));
  next_.peer_up("b");
  said_.clear();
  come_back(record);
  EXPECT_TRUE(said_.empty() && next_.jobs().empty());
  hear(change::Ask{job_, 3});
  EXPECT_EQ(std::get<change::Commit>(said_.at(0)).epoch, 4u);
}

// Its last life had proposed the job, and b accepted, and was cut off before it heard any more.
TEST_F(WitnessStory, TellsWhoNeverHeardOfTheFirstViewThatTheOthersWentOnWithoutIt) {
  JobRecord record = record_;
  record.view.members[1].node = "c";
  record.acceptor.last_commit = change::Commit{job_, 3, {1, "a"}, {record.view, {}}};
  come_back(record);
  hear(Accept{job_});
  EXPECT_EQ(only<change::Commit>().epoch, 3u);
}

TEST_F(WitnessStory, TellsAGuestThatItIsNotExpected) {
  come_back(record_);
  hear(change::Ask{job_, 0});
  only<Reject>();
}

// Ranks that are started anew on this node come in as others', while the vote of the dead is there.
TEST_F(WitnessStory, IsOverWhenOtherRanksOfThisNodeHaveComeIn) {
  come_back(record_);
  Proposal anew = without_a(record_);
  anew.view.epoch = 4;
  anew.view.size = 2;
  anew.view.members.insert(anew.view.members.begin(), {"a", {{0, 0, 300, 77, 4}}});
  EXPECT_CALL(hands_, forget(job_));
  hear(change::Commit{job_, 4, {1, "b"}, anew});
  EXPECT_TRUE(next_.jobs().empty());
}

}  // namespace
}  // namespace gradring::core
