// Who is in the next view, and what becomes of each op: decided by the reports alone.

#include "daemon/core/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradring::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr OpKey kOp{0, 7};
constexpr ValueId kValue{1, 3};
constexpr SliceState kU = SliceState::kUntouched;
constexpr SliceState kH = SliceState::kHeld;
constexpr SliceState kD = SliceState::kDropped;

std::string name(uint32_t node) { return std::string(1, static_cast<char>('a' + node)); }

Failure lost(const std::string& node) {
  Failure failure{Cause::kPeerLost, {}};
  failure.blame.node = node;
  return failure;
}

// Nodes a, b, c, ... with one rank each, in epoch 1; all but the lost ones have reported that they
// know of nothing.
struct Reporters {
  explicit Reporters(uint32_t nodes, const std::string& policy = "elastic") {
    view.job = "train";
    view.epoch = 1;
    view.size = nodes;
    view.policy = policy;
    for (uint32_t i = 0; i < nodes; ++i) {
      view.members.push_back({name(i), {{i, 0, 1000 + int64_t{i}, i}}});
      Report& report = reports[name(i)];
      report.node = name(i);
      report.ranks = view.members[i].ranks;
      for (uint32_t other = 0; other < nodes; ++other) {
        if (other != i) report.reachable.push_back(name(other));
      }
    }
  }
  void lose(const std::string& node) {
    reports.erase(node);
    gone[node] = lost(node);
  }
  // The node has the op, its slices in these states.
  OpReport& has(const std::string& node, const std::vector<SliceState>& slices) {
    OpReport op;
    op.key = kOp;
    op.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 16 * slices.size()};
    op.contributions = 1;
    op.expected = view.size;
    op.slice_bytes = 64;
    for (const SliceState state : slices) {
      op.slices.push_back({1, state, state == kU ? ValueId{} : kValue});
    }
    reports.at(node).ops.push_back(op);
    return reports.at(node).ops.back();
  }
  OpReport& has_broadcast(const std::string& node, uint32_t root,
                          const std::vector<SliceState>& s) {
    OpReport& op = has(node, s);
    op.signature->collective = Collective::kBroadcast;
    op.signature->root = root;
    op.root_here = view.members[view.host_of(root)].node == node;
    return op;
  }
  Proposal decided() const {
    const auto proposal = decide(view, reports, gone, joiners);
    EXPECT_TRUE(proposal.has_value()) << proposal.error();
    return proposal.value_or(Proposal{});
  }
  OpFate fate() const {
    const Proposal proposal = decided();
    EXPECT_EQ(proposal.ops.all().size(), 1u);
    return proposal.ops.all().empty() ? OpFate{} : proposal.ops.all()[0];
  }
  std::string contradiction() const {
    const auto proposal = decide(view, reports, gone, joiners);
    return proposal ? "none" : proposal.error();
  }

  View view;
  std::map<std::string, Report> reports;
  std::map<std::string, Failure> gone;
  std::vector<Member> joiners;
};

// "compute 2, hand(1) 1, none 1"
std::string text(const std::vector<SliceFate>& fates) {
  std::string all;
  for (const SliceFate& fate : fates) {
    if (!all.empty()) all += ", ";
    if (fate.route == Route::kCompute) all += "compute ";
    if (fate.route == Route::kHand) all += "hand(" + std::to_string(fate.holder) + ") ";
    if (fate.route == Route::kNone) all += "none ";
    all += std::to_string(fate.count);
  }
  return all;
}

// ---- slices ----

TEST(Recovery, SliceBySlice) {
  Reporters all(4);
  all.lose("d");
  all.has("a", {kU, kU, kU, kH, kD, kH});
  all.has("b", {kU, kU, kH, kH, kH, kU});
  all.has("c", {kU, kU, kH, kU, kH, kH});
  const OpFate fate = all.fate();
  EXPECT_EQ(fate.kind, OpFate::Kind::kRecover);
  EXPECT_EQ(text(fate.slices), "compute 2, hand(1) 1, hand(0) 1, none 1, hand(0) 1");
  EXPECT_EQ(fate.slices[1].value, kValue);
  EXPECT_EQ(fate.slice_bytes, 64u) << "it stays cut as it is";
  EXPECT_EQ(fate.expected, 4u) << "d's contribution will be missing in two slices";
}

TEST(Recovery, WhatIsUntouchedEverywhereBeginsAnew) {
  Reporters all(3);
  all.lose("c");
  all.has("a", {kU, kU});
  const OpFate fate = all.fate();
  EXPECT_EQ(fate.kind, OpFate::Kind::kFresh);
  EXPECT_THAT(fate.slices, IsEmpty());
  EXPECT_EQ(fate.expected, 3u);
}

TEST(Recovery, WhoHasForgottenAnOpHasDroppedIt) {
  Reporters all(3);
  all.has("a", {kH, kH});
  all.reports["b"].ended.insert(kOp);
  all.has("c", {kD, kH}).completed = true;
  EXPECT_EQ(text(all.fate().slices), "none 2");
}

TEST(Recovery, ACutThatMeansNothingAnyMoreIsNoContradiction) {
  // b has planned the op for another number of members, and no slice was final there.
  Reporters all(2);
  all.has("a", {kH, kU});
  all.has("b", {kU, kU, kU});
  EXPECT_EQ(text(all.fate().slices), "hand(0) 1, compute 1");
}

// ---- ops without slices ----

TEST(Recovery, ABarrierThatSomeMemberHasDecidedIsComplete) {
  Reporters all(3);
  all.lose("c");
  OpReport& at_a = all.has("a", {});
  at_a.slice_bytes = 0;
  at_a.completed = true;
  at_a.outcome = kValue;
  all.has("b", {}).slice_bytes = 0;
  EXPECT_EQ(all.fate().kind, OpFate::Kind::kComplete);
  EXPECT_EQ(all.fate().outcome, kValue);
  at_a.completed = false;  // with completion=stable it is told later
  EXPECT_EQ(all.fate().kind, OpFate::Kind::kComplete);
  EXPECT_EQ(all.fate().outcome, kValue);
  at_a.outcome = {};
  EXPECT_EQ(all.fate().kind, OpFate::Kind::kFresh);
}

// ---- FAILED ----

TEST(Recovery, WhatOneReporterWasToldFailedHasFailed) {
  Reporters all(3);
  Failure mismatch{Cause::kMismatch, {}};
  mismatch.blame.rank = 1;
  all.has("a", {kU});
  all.reports["b"].failed[kOp] = mismatch;
  all.reports["b"].ended.insert(kOp);
  EXPECT_EQ(all.fate().kind, OpFate::Kind::kFail);
  EXPECT_EQ(all.fate().failure, mismatch);
}

TEST(Recovery, PolicyFailClosesAndFailsWhatWouldHaveToBeComputed) {
  Reporters all(3, "fail");
  all.lose("c");
  all.has("a", {kH, kU});
  all.has("b", {kU, kU});
  const Proposal proposal = all.decided();
  EXPECT_EQ(proposal.view.closed, lost("c"));
  EXPECT_THAT(proposal.view.explanation, HasSubstr("policy fail"));
  EXPECT_EQ(proposal.ops.all()[0].kind, OpFate::Kind::kFail);
  EXPECT_EQ(proposal.ops.all()[0].failure, lost("c"));
}

TEST(Recovery, PolicyFailSparesWhatNeedsNothingThatIsLost) {
  // Every slice is final somewhere.
  Reporters held(3, "fail");
  held.lose("c");
  held.has("a", {kH, kU});
  held.has("b", {kU, kH});
  EXPECT_EQ(text(held.fate().slices), "hand(0) 1, hand(1) 1");
  EXPECT_TRUE(held.fate().spared);

  // A trainer died, but all nodes are there and everybody had submitted.
  Reporters submitted(2, "fail");
  submitted.reports["b"].lost.push_back({1, {Cause::kTrainerDied, {}}});
  submitted.reports["b"].ranks.clear();
  submitted.has("a", {kH, kU});
  submitted.has("b", {kU, kU});
  EXPECT_EQ(submitted.decided().view.closed->cause, Cause::kTrainerDied);
  EXPECT_EQ(text(submitted.fate().slices), "hand(0) 1, compute 1");
  EXPECT_TRUE(submitted.fate().spared);
  submitted.reports["b"].ops[0].contributions = 0;
  EXPECT_EQ(submitted.fate().kind, OpFate::Kind::kFail) << "it died before it had submitted";
}

TEST(Recovery, WhoWasAskedToEndIsBlamedLast) {
  Reporters job(4, "fail");
  const auto dies = [&](uint32_t rank, const std::string& evidence) {
    Report& report = job.reports.at(name(rank));
    report.lost.push_back({rank, {Cause::kTrainerDied, {rank, report.node, 7, "", evidence}}});
    report.ranks.clear();
  };
  dies(0, kEndedOnRequest);
  dies(1, "killed by signal 9 (SIGKILL)");
  job.lose("d");
  EXPECT_EQ(job.decided().view.closed->blame.rank, 1u);
  job.reports.at("b").lost.clear();
  EXPECT_EQ(job.decided().view.closed->cause, Cause::kPeerLost) << "the node before who was asked";
}

TEST(Recovery, NothingLostClosesNothing) {
  Reporters all(3, "fail");
  all.has("a", {kU});
  EXPECT_EQ(all.decided().view.closed, std::nullopt);
  EXPECT_EQ(all.decided().view.members, all.view.members);
  EXPECT_EQ(all.fate().kind, OpFate::Kind::kFresh);
  EXPECT_THAT(all.decided().view.explanation, HasSubstr("the same members"));
}

TEST(Recovery, AnElasticJobClosesBelowItsMinimum) {
  for (const uint32_t min : {2u, 3u}) {
    Reporters all(3, "elastic min=" + std::to_string(min));
    all.lose("c");
    const View next = all.decided().view;
    EXPECT_EQ(next.closed.has_value(), min == 3);
    EXPECT_EQ(next.size, 2u);
    EXPECT_EQ(next.epoch, 2u);
    EXPECT_THAT(next.explanation, HasSubstr(min == 3 ? "fewer than min=3" : "2 ranks of 3"));
    const std::string why = next.closed ? describe(*next.closed) : "";  // what its ops tell
    EXPECT_THAT(why, HasSubstr(min == 3 ? "fewer than min=3" : ""));
  }
}

TEST(Recovery, ABroadcastWithoutItsRootFails) {
  Reporters all(3);
  all.lose("c");
  all.has_broadcast("a", 2, {kH, kU});
  all.has_broadcast("b", 2, {kU, kU});
  EXPECT_EQ(all.fate().kind, OpFate::Kind::kFail);
  EXPECT_EQ(all.fate().failure.cause, Cause::kRootLost);
  EXPECT_EQ(all.fate().failure.blame.rank, 2u);
  EXPECT_EQ(all.fate().failure.blame.node, "c");
  all.reports["b"].ops[0].slices[1].state = kH;
  all.reports["b"].ops[0].slices[1].value = kValue;
  EXPECT_EQ(text(all.fate().slices), "hand(0) 1, hand(1) 1") << "all of it is still there";
}

TEST(Recovery, ABroadcastWhoseRootDiedGoesOnFromItsNode) {
  Reporters all(2);
  all.view.members[1].ranks.push_back({2, 1, 1002, 2});
  all.view.size = 3;
  all.reports["b"].lost.push_back({2, {Cause::kTrainerDied, {}}});
  all.has_broadcast("a", 2, {kU});
  all.has_broadcast("b", 2, {kU});
  EXPECT_EQ(all.fate().kind, OpFate::Kind::kFresh);
  EXPECT_EQ(all.fate().root_node, "b");
}

// ---- contradictions ----

TEST(Recovery, ReportsThatContradictOneAnotherDecideNothing) {
  Reporters dropped(2);
  dropped.has("a", {kD});
  dropped.has("b", {kU});
  EXPECT_THAT(dropped.contradiction(), HasSubstr("dropped although a member lacks it"));

  Reporters forgotten(2);
  forgotten.has("a", {kU});
  forgotten.reports["b"].ended.insert(kOp);
  EXPECT_THAT(forgotten.contradiction(), HasSubstr("forgotten by one node and open on another"));

  Reporters two_values(2);
  two_values.has("a", {kH});
  two_values.has("b", {kH}).slices[0].value = {1, 2};
  EXPECT_THAT(two_values.contradiction(), HasSubstr("two final values"));

  Reporters two_cuts(2);
  two_cuts.has("a", {kH, kU});
  two_cuts.has("b", {kH});
  EXPECT_THAT(two_cuts.contradiction(), HasSubstr("is cut into"));
}

// ---- members ----

TEST(Recovery, OfTwoThatCannotReachEachOtherTheOneStays) {
  Reporters all(4);
  const auto cut = [&](const std::string& from, const std::string& to) {
    std::erase(all.reports[from].reachable, to);
  };
  cut("b", "d");  // one direction is enough
  EXPECT_THAT(choose_members(all.view, all.reports), ElementsAre("a", "b", "c"));
  EXPECT_THAT(all.decided().view.explanation, HasSubstr("link between it and node b is broken"));
  cut("b", "c");  // now b is missed by two
  EXPECT_THAT(choose_members(all.view, all.reports), ElementsAre("a", "c", "d"));
}

TEST(Recovery, WhoWantsOutOrHasNoRankLeavesAnElasticJobAndStaysInAnother) {
  for (const bool elastic : {true, false}) {
    Reporters all(4, elastic ? "elastic" : "fail");
    all.reports["b"].wants_out = true;
    all.reports["c"].ranks.clear();
    const auto members = choose_members(all.view, all.reports);
    if (elastic) {
      EXPECT_THAT(members, ElementsAre("a", "d"));
    } else {
      EXPECT_THAT(members, ElementsAre("a", "b", "c", "d"));
    }
  }
}

TEST(Recovery, WhoDidNotAnswerIsNamedThoughNobodyHasLostIt) {
  Reporters all(3, "fail");
  all.reports.erase("b");
  EXPECT_EQ(all.decided().view.closed->cause, Cause::kPeerSilent);
  EXPECT_EQ(all.decided().view.closed->blame.node, "b");
}

// ---- growing ----

TEST(Recovery, NewRanksComeInWhereAllStandAtAJoinPoint) {
  Reporters all(2);
  all.joiners = {{"c", {{2, 0, 1002, 2}}}};
  all.has("a", {}).signature->collective = Collective::kJoinPoint;
  EXPECT_EQ(all.decided().view.size, 2u) << "b is not there yet";
  all.has("b", {}).signature->collective = Collective::kJoinPoint;
  const View grown = all.decided().view;
  EXPECT_EQ(grown.size, 3u);
  EXPECT_EQ(grown.grown, 2u);
  EXPECT_EQ(grown.members[2].ranks[0].since, 2u);
  EXPECT_EQ(grown.oldest_rank(), 0u);
  EXPECT_THAT(grown.explanation, HasSubstr("grown to 3 ranks on 3 nodes"));
  OpReport& other = all.has("b", {kU});
  other.key = {0, 8};
  EXPECT_EQ(all.decided().view.size, 2u) << "something else is open";
}

// With completion=stable it may be told on the strength of all having decided it, c or no c.
TEST(Recovery, WhereAJoinPointIsDecidedNobodyComesInAnyMore) {
  Reporters all(2);
  all.joiners = {{"c", {{2, 0, 1002, 2}}}};
  for (const char* node : {"a", "b"}) {
    OpReport& op = all.has(node, {});
    op.signature->collective = Collective::kJoinPoint;
    op.slice_bytes = 0;
    if (*node == 'a') op.outcome = {1, 2};
  }
  EXPECT_EQ(all.decided().view.size, 2u) << "it ends as it was decided";
  EXPECT_EQ(all.fate().kind, OpFate::Kind::kComplete);
}

TEST(Recovery, NobodyIsTakenIntoAJobThatEnds) {
  for (const uint32_t min : {3u, 4u}) {
    Reporters all(3, "elastic min=" + std::to_string(min));
    all.lose("c");
    all.joiners = {{"d", {{3, 0, 1003, 3}}}};
    for (const char* node : {"a", "b"}) {
      all.has(node, {}).signature->collective = Collective::kJoinPoint;
    }
    const View next = all.decided().view;
    EXPECT_EQ(next.closed.has_value(), min == 4);
    EXPECT_EQ(next.size, min == 4 ? 2u : 3u) << "d waits for the next life of the job";
    EXPECT_EQ(next.index_of("d").has_value(), min == 3);
  }
}

TEST(Recovery, ANewRankOnANodeThatDidNotReportDoesNotBringTheNodeAlong) {
  // c has gone on behind the join point with a rank of its own, and has to learn that it is out.
  Reporters all(3);
  all.lose("c");
  all.joiners = {{"c", {{3, 0, 1003, 3}}}};
  for (const char* node : {"a", "b"}) {
    all.has(node, {}).signature->collective = Collective::kJoinPoint;
  }
  const View next = all.decided().view;
  EXPECT_EQ(next.size, 2u);
  EXPECT_FALSE(next.index_of("c"));
  EXPECT_NE(next.grown, next.epoch);
}

}  // namespace
}  // namespace gradring::core
