// What must not count in an election: words on another ballot, and what was known of a node before.

#include <gmock/gmock.h>

#include "tests/core/view_change_council.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr JobId kTrain{7};

// A proposal comes before the report is there, and a higher ballot before that as well.
TEST(ViewChange, WhatIsOwedIsAnsweredOnlyIfNothingHigherWasPromisedSince) {
  Council council(3);
  council.reports_at_once = false;
  Proposal proposal;
  proposal.view = council.at("a").view();
  proposal.view.epoch = 2;
  council.inject("a", "c", change::Accept{kTrain, 1, {2, "a"}, proposal});
  council.inject("b", "c", change::Prepare{kTrain, 1, {3, "b"}});
  council.report("c");
  EXPECT_THAT(council.sent<change::Accepted>("c", "a"), IsEmpty());
  ASSERT_THAT(council.sent<change::Promise>("c", "b"), SizeIs(1));
  EXPECT_EQ(council.sent<change::Promise>("c", "b")[0].accepted, std::nullopt);
}

// What was said of a's ballot before is no word on this one.
TEST(ViewChange, AnswersToAnEarlierBallotDoNotCount) {
  Council council(3);
  council.hold("a", "b");
  council.hold("a", "c");
  council.at("a").want(true, council.now);
  council.run();
  const Ballot first = council.sent<change::Prepare>("a", "b").back().ballot;
  while (council.sent<change::Prepare>("a", "b").size() == 1) council.settle(10 * kMillisecond);
  const Ballot second = council.sent<change::Prepare>("a", "b").back().ballot;
  ASSERT_GT(second, first);
  const auto promise = [&](const std::string& from, const Ballot& ballot) {
    change::Promise message{kTrain, 1, ballot, std::nullopt, {}};
    message.report.node = from;
    message.report.ranks = council.at("a").view().members[from == "b" ? 1 : 2].ranks;
    message.report.reachable = {"a", "b", "c"};
    council.inject(from, "a", message);
  };
  for (const char* from : {"b", "c"}) promise(from, first);
  EXPECT_THAT(council.sent<change::Accept>("a", "b"), IsEmpty());
  for (const char* from : {"b", "c"}) promise(from, second);
  ASSERT_THAT(council.sent<change::Accept>("a", "b"), SizeIs(1));
  for (const char* from : {"b", "c"}) council.inject(from, "a", change::Accepted{kTrain, 1, first});
  EXPECT_EQ(council.epoch("a"), 1u);
  council.inject("b", "a", change::Accepted{kTrain, 1, second});
  EXPECT_EQ(council.epoch("a"), 2u);
}

TEST(ViewChange, WhoWasDoneAndIsMetAgainIsCountedOn) {
  Council council(2, "fail");
  council.at("b").gone("a");
  council.at("b").found("a", council.now);
  council.hold("a", "b");
  council.at("b").want(true, council.now);
  council.settle(100 * kMillisecond);
  EXPECT_EQ(council.gave_up("b"), std::nullopt) << "it may answer";
  council.release("a", "b");
  council.run();
  EXPECT_EQ(council.epoch("b"), 2u);
}

TEST(ViewChange, WhoMissedAViewDoesNotEnterTheOneBehindIt) {
  Council council(3);
  Proposal proposal;
  proposal.view = council.at("c").view();
  proposal.view.epoch = 3;  // c was left out of the second, and comes back: another life of it
  council.inject("a", "c", change::Commit{kTrain, 3, {1, "a"}, proposal});
  EXPECT_EQ(council.epoch("c"), 1u);
}

TEST(ViewChange, WhoLeftForGoodAndComesInAgainIsNotLost) {
  Council council(3);
  Proposal proposal;
  proposal.view = council.at("b").view();
  proposal.view.epoch = 3;
  for (const char* node : {"a", "b"}) council.lose(node, "c", true);
  council.at("b").found("c", council.now);
  EXPECT_TRUE(council.at("b").is_lost("c")) << "although it is connected";
  council.settle(kSecond);
  ASSERT_EQ(council.members("b"), "a b");
  council.inject("a", "b", change::Commit{kTrain, 3, {1, "a"}, proposal});
  EXPECT_EQ(council.members("b"), "a b c");
  EXPECT_FALSE(council.at("b").is_lost("c"));
  EXPECT_FALSE(council.at("b").wanted());
}

// It was done with the job when its daemon began to restart, and does not come back from that.
TEST(ViewChange, WhoIsGoneIsWaitedForNoMore) {
  Council council(3);
  council.crash("c");
  for (const std::string node : {"a", "b"}) {
    council.at(node).away("c");
    council.at(node).gone("c");
  }
  council.at("a").want(true, council.now);
  council.settle(60 * kSecond);
  EXPECT_EQ(council.members("a"), "a b");
  EXPECT_EQ(council.members("b"), "a b");
}

TEST(ViewChange, ABallotIsWrittenDownBeforeAnybodyHearsOfIt) {
  Council council(3);
  council.reports_at_once = false;
  council.at("a").want(true, council.now);
  ASSERT_THAT(council.sent<change::Prepare>("a", "b"), SizeIs(1));
  ASSERT_THAT(council.records("a"), SizeIs(1)) << "another life must not use it for another view";
  EXPECT_EQ(council.records("a")[0].promised, council.sent<change::Prepare>("a", "b")[0].ballot);
}

// A number above it would be 0: it would break the promise, and nobody would take it.
TEST(ViewChange, AfterTheLastBallotThereIsTheJobIsGivenUp) {
  for (const std::string policy : {"fail", "elastic"}) {
    constexpr uint64_t kLast = UINT64_MAX;
    Council council(3, policy);
    council.inject("c", "a", change::Prepare{kTrain, 1, {kLast, "c"}});
    council.inject("c", "b", change::Refuse{kTrain, 1, {kLast, "c"}});
    council.crash("c");  // it never goes on with it
    council.at("b").want(true, council.now);
    council.settle(60 * kSecond);
    for (const std::string node : {"a", "b"}) {
      const auto failure = council.gave_up(node);
      ASSERT_TRUE(failure) << policy << ": node " << node << " asks in vain for ever";
      EXPECT_EQ(failure->cause, Cause::kProtocol);
      EXPECT_EQ(failure->blame.node, "c");
      EXPECT_THAT(failure->blame.evidence, HasSubstr("so that nobody can ask after it"));
      for (const AcceptorRecord& record : council.records(node)) {
        EXPECT_TRUE(node == "b" || record.promised.round == kLast) << "took back its promise";
      }
    }
  }
}

}  // namespace
}  // namespace gradring::core
