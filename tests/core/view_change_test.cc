// One Paxos instance for each epoch: rules V1 to V7, V9.

#include <gmock/gmock.h>

#include "daemon/core/random.h"
#include "tests/core/view_change_council.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr JobId kJob{7};

// ---- the good case ----

TEST(ViewChange, ThoseWhoAreLeftAgree) {
  Council council(3);
  council.crash_and_notice("c");
  council.run();
  for (const char* node : {"a", "b"}) {
    EXPECT_EQ(council.epoch(node), 2u);
    EXPECT_EQ(council.members(node), "a b");
    EXPECT_FALSE(council.at(node).frozen());
    EXPECT_FALSE(council.at(node).wanted());
  }
  EXPECT_THAT(council.sent<change::Prepare>("b", "a"), IsEmpty()) << "the lowest leads";
}

TEST(ViewChange, NothingIsPromisedBeforeTheReportIsThere) {
  Council council(3);
  council.reports_at_once = false;
  council.crash_and_notice("c");
  council.run();
  EXPECT_THAT(council.sent<change::Promise>("b", "a"), IsEmpty());
  EXPECT_TRUE(council.at("b").frozen());
  EXPECT_THAT(council.records("b"), IsEmpty());
  council.report("b");
  EXPECT_THAT(council.sent<change::Promise>("b", "a"), SizeIs(1));
  ASSERT_THAT(council.records("b"), SizeIs(1)) << "safe before it is said";
  EXPECT_EQ(council.records("b")[0].promised.node, "a");
  EXPECT_TRUE(council.records("b")[0].report.has_value());
  council.report("a");
  council.run();
  EXPECT_EQ(council.epoch("b"), 2u);
}

TEST(ViewChange, AWishWithoutALossKeepsTheMembers) {
  Council council(3, "fail");
  council.at("b").want(true, council.now);
  council.run();
  for (const char* node : {"a", "b", "c"}) {
    EXPECT_EQ(council.epoch(node), 2u);
    EXPECT_EQ(council.members(node), "a b c");
    EXPECT_EQ(council.at(node).view().closed, std::nullopt);
  }
}

TEST(ViewChange, AMemberThatIsSilentIsWaitedForButNotForEver) {
  Council council(3);
  council.crash("c");  // nobody has noticed
  council.at("a").want(true, council.now);
  council.settle(900 * kMillisecond);
  EXPECT_EQ(council.epoch("a"), 1u);
  EXPECT_THAT(council.at("a").doing(), HasSubstr("waits for the reports of c"));
  council.settle(200 * kMillisecond);
  EXPECT_EQ(council.members("a"), "a b");

  Council suspects(3);
  suspects.crash("c");
  for (const char* node : {"a", "b"}) suspects.at(node).suspect("c", true);
  suspects.at("a").want(true, suspects.now);
  suspects.settle(50 * kMillisecond);
  EXPECT_EQ(suspects.members("a"), "a b") << "a suspect is not";
}

// Its daemon restarts, for which it has a time of its own (restart-grace), whatever quorum-wait is.
TEST(ViewChange, WhoIsAwayIsWaitedForLongerThanAQuorumIs) {
  Council council(3);
  council.crash("c");
  for (const char* node : {"a", "b"}) council.at(node).away("c");
  council.at("a").want(true, council.now);
  council.settle(150 * kSecond);
  for (const char* node : {"a", "b"}) {
    EXPECT_EQ(council.epoch(node), 1u);
    EXPECT_EQ(council.gave_up(node), std::nullopt) << node;
    council.lose(node, "c");  // it has not come back
  }
  council.run();
  EXPECT_EQ(council.members("a"), "a b");
  EXPECT_EQ(council.members("b"), "a b");

  Council alone(3);  // with c away there are too few of them
  alone.crash_and_notice("b");
  alone.crash("c");
  alone.at("a").away("c");
  alone.at("a").want(true, alone.now);
  alone.settle(70 * kSecond);
  EXPECT_NE(alone.gave_up("a"), std::nullopt);
}

TEST(ViewChange, WhoHearsOfAnEpochByItsEndIsNotLeftOut) {
  // b has led to epoch 2. a enters it and wants the next at once, before c has b's news.
  Council council(3);
  council.at("b").want(true, council.now);
  for (int i = 0; i < 100 && council.epoch("b") == 1; ++i) {
    for (const char* node : {"a", "b", "c"}) council.report(node);
    council.deliver("b", "a") || council.deliver("b", "c") || council.deliver("a", "b") ||
        council.deliver("c", "b");
  }
  ASSERT_EQ(council.epoch("b"), 2u);
  council.hold("b", "c");
  council.run();
  ASSERT_EQ(council.epoch("a"), 2u);
  ASSERT_EQ(council.epoch("c"), 1u);
  council.at("a").want(true, council.now);
  council.run();  // no time passes
  EXPECT_EQ(council.epoch("a"), 3u);
  EXPECT_EQ(council.members("c"), "a b c");
}

// ---- quorums ----

TEST(ViewChange, TheLowestOfTwoDecidesAloneAndTheOtherCannot) {
  Council lower(2);
  lower.crash_and_notice("b");
  lower.run();
  EXPECT_EQ(lower.members("a"), "a");

  Council higher(2);
  higher.crash_and_notice("a");
  higher.settle(59 * kSecond);
  EXPECT_EQ(higher.epoch("b"), 1u);
  EXPECT_EQ(higher.gave_up("b"), std::nullopt) << "a may come back";
  EXPECT_THAT(higher.at("b").doing(), HasSubstr("too few members"));
  higher.settle(2 * kSecond);
  ASSERT_TRUE(higher.gave_up("b").has_value());
  EXPECT_EQ(higher.gave_up("b")->cause, Cause::kNoQuorum);
  EXPECT_THAT(higher.gave_up("b")->blame.evidence, HasSubstr("not reached: a"));
}

TEST(ViewChange, OfTwoHalvesTheOneWithTheLowestGoesOn) {
  Council council(4);
  for (const char* left : {"a", "b"}) {
    for (const char* right : {"c", "d"}) {
      council.hold(left, right);
      council.hold(right, left);
      council.lose(left, right);
      council.lose(right, left);
    }
  }
  council.settle(3 * kSecond);
  EXPECT_EQ(council.members("a"), "a b");
  EXPECT_EQ(council.members("b"), "a b");
  EXPECT_EQ(council.epoch("c"), 1u);
  // When they meet again, c and d are told what they have missed.
  for (const char* left : {"a", "b"}) {
    for (const char* right : {"c", "d"}) {
      council.release(left, right);
      council.release(right, left);
    }
  }
  council.settle(3 * kSecond);
  EXPECT_TRUE(council.excluded("c") && council.excluded("d"));
}

TEST(ViewChange, WhoCannotReachAQuorumLetsAnotherTry) {
  // Of seven only c can reach four: a, b, itself, and d, whom neither a nor b can.
  Council council(7);
  for (const char* node : {"e", "f", "g"}) council.crash_and_notice(node);
  for (const char* node : {"a", "b"}) {
    council.hold(node, "d");
    council.hold("d", node);
    council.lose(node, "d");
    council.lose("d", node);
  }
  council.settle(10 * kSecond);
  for (const char* node : {"a", "b", "c"}) EXPECT_EQ(council.members(node), "a b c") << node;
}

// ---- giving up ----

TEST(ViewChange, PolicyFailGivesUpAtOnceWhereNoQuorumIsLeft) {
  Council council(3, "fail");
  council.crash_and_notice("b");
  council.crash_and_notice("a");
  council.settle(40 * kMillisecond);
  ASSERT_TRUE(council.gave_up("c").has_value());
  EXPECT_EQ(council.gave_up("c")->cause, Cause::kPeerLost);
}

TEST(ViewChange, PolicyFailHasLittlePatienceWhereTheOthersDoNotAnswer) {
  Council council(3, "fail");
  council.crash_and_notice("c");
  council.crash("b");  // not noticed
  council.settle(480 * kMillisecond);
  EXPECT_EQ(council.gave_up("a"), std::nullopt);
  council.settle(40 * kMillisecond);
  ASSERT_TRUE(council.gave_up("a").has_value());
  EXPECT_EQ(council.gave_up("a")->blame.node, "c") << "that is what is known";
}

TEST(ViewChange, WhoGaveUpTakesNoPartAnyMore) {
  Council council(3, "fail");
  council.crash_and_notice("c");
  council.hold("a", "b");
  council.hold("b", "a");
  council.settle(600 * kMillisecond);
  ASSERT_TRUE(council.gave_up("b").has_value());
  const size_t promises = council.sent<change::Promise>("b", "a").size();
  council.release("a", "b");
  council.release("b", "a");
  council.settle(3 * kSecond);
  EXPECT_EQ(council.sent<change::Promise>("b", "a").size(), promises);
  EXPECT_THAT(council.sent<change::Accepted>("b", "a"), IsEmpty());
}

// ---- ballots ----

TEST(ViewChange, ALowerBallotIsRefusedAndTheReportStaysTheSame) {
  Council council(3);
  council.inject("c", "a", change::Prepare{kJob, 1, {5, "c"}});
  council.report("a");
  council.now += kSecond;
  council.inject("b", "a", change::Prepare{kJob, 1, {4, "b"}});
  council.inject("b", "a", change::Prepare{kJob, 1, {5, "b"}});
  ASSERT_THAT(council.sent<change::Refuse>("a", "b"), SizeIs(2));
  EXPECT_EQ(council.sent<change::Refuse>("a", "b")[0].promised, (Ballot{5, "c"}));
  EXPECT_THAT(council.sent<change::Promise>("a", "b"), IsEmpty());
  council.inject("b", "a", change::Accept{kJob, 1, {4, "b"}, {}});
  EXPECT_THAT(council.sent<change::Accepted>("a", "b"), IsEmpty());
  council.inject("b", "a", change::Prepare{kJob, 1, {6, "b"}});
  ASSERT_THAT(council.sent<change::Promise>("a", "b"), SizeIs(1));
  ASSERT_THAT(council.sent<change::Promise>("a", "c"), SizeIs(1));
  EXPECT_EQ(council.sent<change::Promise>("a", "b")[0].report,
            council.sent<change::Promise>("a", "c")[0].report)
      << "frozen is frozen";
}

TEST(ViewChange, WhoIsRefusedComesBackWithAHigherBallot) {
  Council council(3);
  council.inject("x", "b", change::Prepare{kJob, 1, {9, "b"}});  // b has heard of a high one
  council.drop("b", "x");
  council.at("a").want(true, council.now);
  council.settle(3 * kSecond);
  EXPECT_EQ(council.epoch("a"), 2u);
  EXPECT_GT(council.at("a").last_commit()->ballot.round, 9u);
}

// a's proposal is accepted by b alone, and a falls silent. Whatever c thinks, b's word counts.
TEST(ViewChange, AnAcceptedProposalIsTakenUpUnchanged) {
  Council council(4);
  for (const char* node : {"a", "b", "c"}) council.lose(node, "d");
  council.hold("a", "c");
  council.at("a").lost("c", {Cause::kPeerLost, {}}, false, council.now);
  council.hold("b", "a");
  // a has b's promise, b has a's proposal.
  for (int round = 0; round < 4; ++round) {
    council.report("a");
    council.report("b");
    council.deliver("a", "b");
    if (council.sent<change::Accepted>("b", "a").empty()) council.deliver("b", "a");
  }
  ASSERT_THAT(council.sent<change::Accepted>("b", "a"), SizeIs(1));
  council.crash("a");
  council.drop("a", "c");
  for (const char* node : {"b", "c"}) council.lose(node, "a");
  council.at("d").found("a", council.now);
  council.settle(5 * kSecond);
  // b, c, d agree on the view of a and b, and then b goes on in the next.
  EXPECT_TRUE(council.excluded("c") && council.excluded("d"));
  EXPECT_EQ(council.members("b"), "a b") << "b alone is no quorum of that";
}

TEST(ViewChange, OfTwoAcceptedProposalsTheOneOfTheHigherBallotCounts) {
  Council council(3);
  const auto proposal = [&](const std::string& words) {
    Proposal p;
    p.view = council.at("a").view();
    p.view.epoch = 2;
    p.view.explanation = words;
    return p;
  };
  const auto promise = [&](const std::string& from, const Ballot& ballot,
                           const std::string& words) {
    change::Promise message;
    message.incarnation = kJob;
    message.epoch = 1;
    message.ballot = {11, "a"};
    message.accepted.emplace();
    message.accepted->ballot = ballot;
    message.accepted->proposal = proposal(words);
    message.report.node = from;
    council.inject(from, "a", message);
  };
  council.inject("c", "a", change::Prepare{kJob, 1, {10, "c"}});
  council.report("a");
  council.at("a").want(true, council.now);
  council.tick(2 * kSecond);
  ASSERT_EQ(council.sent<change::Prepare>("a", "b").back().ballot, (Ballot{11, "a"}));
  promise("b", {3, "b"}, "older");
  promise("c", {4, "a"}, "newer");
  ASSERT_THAT(council.sent<change::Accept>("a", "b"), SizeIs(1));
  EXPECT_EQ(council.sent<change::Accept>("a", "b")[0].proposal.view.explanation, "newer");
}

// ---- learning ----

TEST(ViewChange, WhoSpeaksOfAnOldEpochIsToldOfTheNext) {
  Council council(3);
  council.hold("a", "c");
  council.hold("b", "c");
  council.lose("a", "c");
  council.lose("b", "c");
  council.run();
  ASSERT_EQ(council.members("a"), "a b");
  council.release("a", "c");
  council.release("b", "c");
  council.drop("a", "c");
  council.drop("b", "c");
  council.lose("c", "a");  // c knows nothing of it, and begins on its own
  council.settle(kSecond);
  EXPECT_TRUE(council.excluded("c"));
  EXPECT_EQ(council.epoch("a"), 2u) << "nobody is disturbed by that";
}

TEST(ViewChange, AnExcludedNodeTellsTheOthers) {
  // a commits {a, b} to c only, and dies; b asks c.
  Council council(3);
  council.lose("a", "c");
  council.lose("b", "c");
  council.hold("c", "b");
  while (council.epoch("a") == 1) {
    council.report("a");
    council.report("b");
    for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "a"), std::pair("c", "a")}) {
      if (council.epoch("a") == 1) council.deliver(from, to);
    }
  }
  council.drop("a", "b");
  while (council.deliver("a", "c") || council.report("c")) {
  }
  ASSERT_TRUE(council.excluded("c"));
  council.crash("a");
  council.release("c", "b");
  council.lose("b", "a");
  council.at("b").found("c", council.now);
  council.settle(3 * kSecond);
  EXPECT_EQ(council.members("b"), "a b") << "it knows what a had decided";
}

TEST(ViewChange, WhoHearsOfALaterEpochAsksForIt) {
  Council council(3);
  council.hold("a", "b");
  council.at("a").want(true, council.now);
  council.run();
  council.inject("c", "b", change::Prepare{kJob, 2, {1, "c"}});
  ASSERT_THAT(council.sent<change::Ask>("b", "c"), SizeIs(1));
  EXPECT_FALSE(council.at("b").frozen());
}

// ---- the leader dies ----

// In every phase: after each number of deliveries the leader dies, with or without its last words.
TEST(ViewChange, TheLeaderMayDieAtAnyMoment) {
  for (const uint32_t nodes : {3u, 4u}) {
    for (uint64_t seed = 1; seed <= fewer_if_sanitized(8); ++seed) {
      for (uint64_t moment = 0; moment < 40; ++moment) {
        SCOPED_TRACE(testing::Message() << nodes << " nodes, seed " << seed << ", " << moment);
        Random random(seed);
        Council council(nodes);
        council.at("a").want(true, council.now);
        const std::vector<std::string> names = council.nodes();
        for (uint64_t step = 0; step < moment; ++step) {
          council.report(names[random.below(nodes)]);
          council.deliver(names[random.below(nodes)], names[random.below(nodes)]);
        }
        if (random.below(2) == 0) {
          for (const std::string& to : names) council.drop("a", to);
        }
        council.crash_and_notice("a");
        council.settle(5 * kSecond);
        for (const std::string& node : names) {
          if (node == "a") continue;
          EXPECT_FALSE(council.excluded(node) || council.gave_up(node)) << node;
          EXPECT_EQ(council.members(node), nodes == 3 ? "b c" : "b c d");
          EXPECT_FALSE(council.at(node).frozen()) << node;
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace gradring::core
