// READY along a tree, in large jobs.

#include <gmock/gmock.h>

#include "tests/core/engine_crowd.h"
#include "tests/core/engine_ring.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr OpKey kJoins{OpKey::kNoMoreSpace, 0};

Signature of(Collective collective) {
  Signature signature;
  signature.collective = collective;
  if (collective == Collective::kJoin) {
    signature = {collective, Dtype::kFloat32, ReduceOp::kSum, 0, 1};
  }
  return signature;
}

uint32_t said(const Crowd::Node& node) {
  return node.sent(FrameType::kReady) + node.sent(FrameType::kAllReady);
}

class EngineTree : public testing::TestWithParam<uint32_t> {};

TEST_P(EngineTree, ReadyCostsEachNodeNoMoreThanItsNeighbours) {
  Crowd crowd(GetParam());
  for (const Signature& signature : {sum_of(1), barrier(), sum_of(300)}) {
    const uint32_t before = crowd.sent(FrameType::kReady) + crowd.sent(FrameType::kAllReady);
    crowd.submit_all_but({}, op(before), signature);
    crowd.run();
    const uint32_t after = crowd.sent(FrameType::kReady) + crowd.sent(FrameType::kAllReady);
    EXPECT_EQ(after - before, 2 * (crowd.size() - 1));
  }
  EXPECT_EQ(crowd.nodes_done(3), crowd.size());
  for (uint32_t node = 0; node < crowd.size(); ++node) {
    const ReadyTree tree(crowd.size(), node);
    ASSERT_EQ(said(crowd.at(node)), 3 * (tree.children() + (node == 0 ? 0 : 1))) << node;
    ASSERT_LE(said(crowd.at(node)), 3 * 9u);
    EXPECT_EQ(crowd.at(node).outcomes.back().ranks_min, crowd.size());
  }
  EXPECT_EQ(said(crowd.at(crowd.size() - 1)), 3u) << "who has nobody below speaks once for each op";
  EXPECT_EQ(crowd.sent(FrameType::kWanted), 0u);
  EXPECT_EQ(crowd.failures(), 0u);
}

// Without a word from each to all, too.
TEST_P(EngineTree, AllLearnByHowMuchTheyAndTheLatestCameBehindTheFirst) {
  const uint32_t early = 5;
  for (const uint32_t slow : {0u, 1u, GetParam() - 1}) {
    Crowd crowd(GetParam());
    crowd.submit(early, op(0), sum_of(300));
    crowd.run();
    crowd.now += 10 * kMillisecond;
    crowd.submit_all_but({early, slow}, op(0), sum_of(300));
    crowd.run();
    crowd.now += 30 * kMillisecond;
    crowd.submit(slow, op(0), sum_of(300));
    crowd.run();
    for (uint32_t node = 0; node < crowd.size(); ++node) {
      ASSERT_EQ(crowd.at(node).arrivals.size(), 1u);
      const Arrivals& arrivals = crowd.at(node).arrivals[0];
      const Time behind = node == early ? 0 : (node == slow ? 40 : 10) * kMillisecond;
      ASSERT_EQ(arrivals.locals.at(0) - arrivals.first.value(), behind) << node;
      ASSERT_EQ(arrivals.latest_us, 40'000u) << node;
    }
  }
}

TEST_P(EngineTree, NothingDependsOnTheOrderOfFrames) {
  for (uint64_t seed = 0; seed < (GetParam() > 100 ? 1u : 10u); ++seed) {
    Crowd crowd(GetParam());
    Random random(seed);
    for (uint64_t k = 0; k < 3; ++k) {
      crowd.submit_all_but({}, op(k), k == 1 ? barrier() : sum_of(5));
    }
    crowd.run(&random);
    ASSERT_EQ(crowd.nodes_done(3), crowd.size());
    ASSERT_EQ(crowd.failures(), 0u);
  }
}

TEST_P(EngineTree, ADifferentSignatureFailsTheOpForAllByName) {
  for (const uint32_t odd : {0u, 2u, GetParam() - 1}) {
    Crowd crowd(GetParam());
    crowd.submit_all_but({odd}, op(0), sum_of(10));
    crowd.submit(odd, op(0), sum_of(11));
    crowd.run();
    for (uint32_t node = 0; node < crowd.size(); ++node) {
      ASSERT_EQ(crowd.at(node).outcomes.size(), 1u);
      const Failure& failure = crowd.at(node).outcomes[0].failure;
      ASSERT_EQ(failure.cause, Cause::kMismatch);
      ASSERT_THAT(failure.blame.evidence, HasSubstr("rank " + std::to_string(odd) + " (node n"));
      ASSERT_THAT(failure.blame.evidence, HasSubstr("allreduce sum of 10 float32"));
      ASSERT_THAT(failure.blame.evidence, HasSubstr("allreduce sum of 11 float32"));
      ASSERT_LE(crowd.at(node).sent(FrameType::kMismatch), 9u) << "told along the tree";
    }
    crowd.submit_all_but({}, op(1), sum_of(10));
    crowd.run();
    EXPECT_EQ(crowd.at(0).outcomes.back().verdict, Verdict::kOk) << "the next is as good as ever";
  }
}

// Two that differ are found although somebody between them says nothing.
TEST_P(EngineTree, ADifferentSignatureIsFoundWhileOthersAreMissing) {
  Crowd crowd(GetParam());
  const uint32_t last = GetParam() - 1;
  crowd.submit_all_but({0, 1, 2, last}, op(0), sum_of(10));
  crowd.submit(last, op(0), sum_of(11));
  crowd.run();
  crowd.tick(1 * kSecond);
  crowd.tick(1 * kSecond);
  EXPECT_EQ(crowd.at(last).outcomes.size(), 1u);
  EXPECT_EQ(crowd.at(3).outcomes.size(), 1u);
  crowd.submit(0, op(0), sum_of(10));
  EXPECT_EQ(crowd.at(0).outcomes[0].failure.cause, Cause::kMismatch) << "whoever comes late";
}

TEST_P(EngineTree, ARankThatHasLeftIsMissedByItsOwnNode) {
  Crowd crowd(GetParam());
  const uint32_t gone = GetParam() - 1;
  crowd.engine(gone).leave(gone, {Cause::kTrainerLeft, {}});
  crowd.submit_all_but({gone}, op(0), sum_of(10));
  crowd.run();
  EXPECT_THAT(crowd.at(gone).absences, IsEmpty()) << "nobody has told it yet";
  crowd.tick(1 * kSecond);
  ASSERT_EQ(crowd.at(gone).absences.size(), 1u);
  EXPECT_EQ(crowd.at(gone).absences[0].rank, gone);
  EXPECT_THAT(crowd.at(gone).absences[0].failure.blame.evidence,
              HasSubstr("left the job without submitting"));
  for (uint32_t node = 0; node < crowd.size(); ++node) {
    EXPECT_LE(crowd.at(node).sent(FrameType::kWanted), 9u);
  }
  crowd.tick(10 * kSecond);
  EXPECT_LE(crowd.sent(FrameType::kWanted), 2 * (crowd.size() - 1)) << "once for each op";
}

TEST_P(EngineTree, AMemberThatIsNotThereAnyMoreIsMissedByAll) {
  Crowd crowd(GetParam());
  crowd.at(1).mute = true;
  crowd.engine(0).member_gone(1, {Cause::kPeerLost, {}});
  crowd.engine(9).member_gone(1, {Cause::kPeerLost, {}});
  crowd.submit_all_but({}, op(0), sum_of(10));
  crowd.run();
  for (const uint32_t node : {0u, 9u}) {
    ASSERT_EQ(crowd.at(node).absences.size(), 1u);
    EXPECT_EQ(crowd.at(node).absences[0].node, "n1");
  }
}

TEST_P(EngineTree, WhoHasJoinedHearsOfOpsAtOnce) {
  Crowd crowd(GetParam());
  const uint32_t joined = GetParam() - 1;
  crowd.submit_all_but({joined}, op(0), sum_of(10));
  crowd.run();
  crowd.submit(joined, kJoins, of(Collective::kJoin));
  crowd.run();
  EXPECT_THAT(crowd.at(joined).asked, ElementsAre(op(0))) << "what was open is asked for as well";
  crowd.submit(joined, op(0), sum_of(10));
  for (uint64_t k = 1; k < 4; ++k) {
    crowd.submit_all_but({joined}, op(k), sum_of(10));
    crowd.run();
    EXPECT_THAT(crowd.at(joined).asked, Contains(op(k)));
    crowd.submit(joined, op(k), sum_of(10));
    crowd.run();
    EXPECT_EQ(crowd.nodes_done(k + 1), crowd.size());
  }
  crowd.submit_all_but({joined}, kJoins, of(Collective::kJoin));
  crowd.run();
  EXPECT_EQ(crowd.nodes_done(5), crowd.size());
  const uint32_t wanted = crowd.sent(FrameType::kWanted);
  crowd.submit_all_but({}, op(4), sum_of(10));
  crowd.run();
  EXPECT_EQ(crowd.nodes_done(6), crowd.size());
  EXPECT_EQ(crowd.sent(FrameType::kWanted), wanted) << "nobody is asked any more";
}

TEST_P(EngineTree, AtTheDeadlineTheRankIsNamed) {
  EngineOptions options;
  options.op_deadline = 10 * kSecond;
  Crowd crowd(GetParam(), options);
  const uint32_t missing = GetParam() - 2;
  crowd.submit_all_but({missing}, op(0), sum_of(10));
  crowd.run();
  for (int second = 0; second < 12 && crowd.failures() == 0; ++second) crowd.tick(1 * kSecond);
  EXPECT_EQ(crowd.failures(), 1u);
  ASSERT_EQ(crowd.at(missing).failures.size(), 1u) << "before anybody who knows less";
  EXPECT_EQ(crowd.at(missing).failures[0].blame.rank, missing);
  EXPECT_THAT(crowd.at(missing).failures[0].blame.evidence,
              HasSubstr("this rank never submitted it"));
}

// Who hears of it by WANTED alone has not seen it begin.
TEST_P(EngineTree, TheDeadlineCountsFromTheFirstSubmissionAnywhere) {
  EngineOptions options;
  options.op_deadline = 10 * kSecond;
  Crowd crowd(GetParam(), options);
  const uint32_t missing = GetParam() - 1;
  crowd.submit_all_but({missing}, op(0), sum_of(10));
  crowd.run();
  for (int second = 0; second < 9; ++second) crowd.tick(1 * kSecond);
  EXPECT_EQ(crowd.failures(), 0u);
  crowd.tick(1 * kSecond);
  EXPECT_EQ(crowd.at(missing).failures.size(), 1u);
}

TEST_P(EngineTree, AtTheDeadlineAMuteNodeIsNamedByWhoeverIsNextToIt) {
  EngineOptions options;
  options.op_deadline = 10 * kSecond;
  for (const uint32_t mute : {0u, 1u, GetParam() - 1}) {
    Crowd crowd(GetParam(), options);
    crowd.at(mute).mute = true;
    crowd.submit_all_but({}, op(0), sum_of(10));
    crowd.run();
    for (int second = 0; second < 30 && crowd.failures() == 0; ++second) crowd.tick(1 * kSecond);
    ASSERT_GT(crowd.failures(), 0u);
    for (uint32_t node = 0; node < crowd.size(); ++node) {
      for (const Failure& failure : crowd.at(node).failures) {
        ASSERT_EQ(failure.blame.node, "n" + std::to_string(mute)) << "told by n" << node;
      }
    }
  }
}

TEST_P(EngineTree, ProgressNamesThoseWhoAreNotReadyAmongTheNeighbours) {
  Crowd crowd(GetParam());
  crowd.submit_all_but({1}, op(0), sum_of(10));
  crowd.run();
  EXPECT_THAT(crowd.engine(0).progress(1).at(0).missing_nodes, ElementsAre("n1"));
  EXPECT_THAT(crowd.engine(9).progress(1).at(0).missing_nodes, ElementsAre("n1"))
      << "it waits for the word from above";
  EXPECT_THAT(crowd.engine(2).progress(1).at(0).missing_nodes, ElementsAre("n0"));
  EXPECT_THAT(crowd.engine(1).progress(1).at(0).missing_ranks, ElementsAre(1u));
}

// A view change in the midst of it: a node dies that had said READY for eight others.
TEST_P(EngineTree, BeginsAnewInTheNextView) {
  Crowd crowd(GetParam());
  const uint32_t late = GetParam() - 1;
  crowd.submit_all_but({late}, op(0), sum_of(10));
  crowd.submit_all_but({late}, op(1), barrier());
  crowd.run();
  crowd.change_view({1}, {op(0), op(1)});
  crowd.run();
  EXPECT_EQ(crowd.nodes_done(2), 0u);
  crowd.submit(late, op(0), sum_of(10));
  crowd.submit(late, op(1), barrier());
  crowd.run();
  EXPECT_EQ(crowd.nodes_done(2), crowd.size() - 1);
  EXPECT_EQ(crowd.at(0).outcomes[0].verdict, Verdict::kOkShrunk);
  EXPECT_EQ(crowd.at(0).outcomes[0].ranks_min, crowd.size() - 1);
  EXPECT_EQ(crowd.failures(), 0u);
}

TEST_P(EngineTree, AJoinPointKnowsThatSomebodyWantsIn) {
  Crowd crowd(GetParam());
  crowd.engine(GetParam() - 1).set_grows(true);
  crowd.submit_all_but({}, op(0), of(Collective::kJoinPoint));
  crowd.run();
  for (uint32_t node = 0; node < crowd.size(); ++node) {
    ASSERT_EQ(crowd.at(node).join_points, 1u);
    ASSERT_THAT(crowd.at(node).outcomes, IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, EngineTree, testing::Values(17, 100, kSanitized ? 300 : 1024));

TEST(EngineTreeFrames, AreTakenFromNeighboursOnly) {
  const auto fault = [](uint32_t from, Frame frame) {
    Crowd crowd(20);
    frame.job = crowd.engine(0).view().incarnation;
    frame.epoch = 1;
    frame.key = op(0);
    frame.ready.rank = frame.wanted.rank = from;
    frame.ready.contributions = frame.all_ready.contributions = 1;
    crowd.engine(1).on_frame(from, frame, crowd.now);
    const std::vector<Failure>& failures = crowd.at(1).failures;
    return failures.empty() ? "" : failures[0].blame.evidence;
  };
  Frame frame;
  frame.type = FrameType::kReady;
  EXPECT_THAT(fault(2, frame), HasSubstr("READY in a way that large jobs do not have"));
  EXPECT_THAT(fault(0, frame), HasSubstr("READY in a way")) << "it comes from below";
  EXPECT_EQ(fault(9, frame), "");
  frame.ready.eager = true;
  frame.ready.serial = 1;
  EXPECT_THAT(fault(9, frame), HasSubstr("READY with its data"));
  frame.type = FrameType::kWanted;
  EXPECT_THAT(fault(2, frame), HasSubstr("WANTED from a node"));
  EXPECT_EQ(fault(0, frame), "");
  frame.type = FrameType::kAllReady;
  EXPECT_THAT(fault(9, frame), HasSubstr("from a node that has no word in that"));
  EXPECT_THAT(fault(0, frame), HasSubstr("although this node is not"));
}

TEST(EngineTreeFrames, AreNotThereInSmallJobs) {
  for (const FrameType type : {FrameType::kAllReady, FrameType::kWanted}) {
    Crowd crowd(16);
    Frame frame;
    frame.type = type;
    frame.job = crowd.engine(0).view().incarnation;
    frame.epoch = 1;
    crowd.engine(1).on_frame(0, frame, crowd.now);
    EXPECT_EQ(crowd.failures(), 1u);
  }
  Crowd crowd(16);
  crowd.submit_all_but({}, op(0), sum_of(10));
  crowd.run();
  EXPECT_EQ(crowd.nodes_done(1), 16u);
  EXPECT_EQ(crowd.sent(FrameType::kReady), 16u * 15u) << "each tells all";
}

}  // namespace
}  // namespace gradring::core
