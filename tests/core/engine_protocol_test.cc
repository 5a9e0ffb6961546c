// A peer that breaks the rules fails the job, once, and is named; nothing else happens.

#include "tests/core/engine_waiting.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;

TEST(EngineProtocol, ASliceOfANodeThatIsNotThePredecessor) {
  Waiting story(3);
  story.expect_fault(2, story.slice, "not the predecessor");
}

TEST(EngineProtocol, ASliceOfAnotherLength) {
  for (const uint32_t length : {0u, 60u, 1u << 30}) {
    Waiting story;
    Frame slice = story.slice;
    slice.slice.length = length;
    const std::string words = std::to_string(length) + " bytes instead of";
    EXPECT_FALSE(story.ring.engine(1).on_slice(0, slice).has_value());
    slice.slice.length = 60;  // what the harness can carry
    if (length == 60) story.expect_fault(0, slice, words);
    ASSERT_EQ(story.ring.failures(1).size(), 1u);
    EXPECT_THAT(story.ring.failures(1)[0].blame.evidence, HasSubstr(words));
  }
}

TEST(EngineProtocol, ASliceOutsideTheOp) {
  Waiting story;
  Frame slice = story.slice;
  slice.slice.slice = 1000;
  story.expect_fault(0, slice, "outside the op's");
}

TEST(EngineProtocol, ASliceOutOfTurn) {
  // The final value comes before the partial one; a hop is left out; a slice that starts here comes
  // before it has left.
  Waiting final_first;
  Frame slice = final_first.slice;
  slice.slice.phase = Phase::kFinal;
  final_first.expect_fault(0, slice, "out of turn");

  Waiting hop_left_out(3);
  slice = hop_left_out.slice;
  slice.slice.hop = 2;
  hop_left_out.expect_fault(0, slice, "out of turn");

  Waiting not_yet_started(3);
  not_yet_started.ring.hold(2, 1);
  const std::vector<Ticket> next = not_yet_started.ring.submit_all(op(1), sum_of(500));
  slice = not_yet_started.slice;
  slice.key = op(1);
  slice.slice.slice = 1;  // b starts it
  slice.slice.phase = Phase::kFinal;
  not_yet_started.expect_fault(0, slice, "out of turn");
  for (const Ticket ticket : next) EXPECT_TRUE(not_yet_started.ring.ended(ticket));
}

TEST(EngineProtocol, ASliceWithoutAFreeSlot) {
  // Three slots at b, all taken by slices 0, 2, 4 that nobody has worked on.
  Waiting story;
  Frame slice = story.slice;
  for (const uint32_t s : {0u, 2u, 4u}) {
    slice.slice.slice = s;
    EXPECT_TRUE(story.ring.engine(1).on_slice(0, slice).has_value());
  }
  slice.slice.slice = 6;
  EXPECT_FALSE(story.ring.engine(1).on_slice(0, slice).has_value());
  ASSERT_EQ(story.ring.failures(1).size(), 1u);
  EXPECT_EQ(story.ring.failures(1)[0].cause, Cause::kProtocol);
  EXPECT_THAT(story.ring.failures(1)[0].blame.evidence, HasSubstr("without a free slot"));
}

TEST(EngineProtocol, ASliceOfAnOpThatThisNodeHasNotSubmitted) {
  Waiting story;
  Frame slice = story.slice;
  slice.key = op(9);
  story.expect_fault(0, slice, "before this node was ready");
}

// No view of an honest member lets an op go on that a rank has not submitted.
TEST(EngineProtocol, ASliceOfAnOpThatSomeOfItsRanksHaveNotSubmitted) {
  Ring ring(2, 2);
  for (const uint32_t rank : {0u, 1u, 2u}) ring.submit(rank, op(0), sum_of(64));
  ring.run();
  for (const uint32_t node : {0u, 1u}) ring.freeze(node);
  Proposal proposal = ring.decide();
  std::vector<OpFate> fates = proposal.ops.all();
  ASSERT_EQ(fates.size(), 1u);
  fates[0].kind = OpFate::Kind::kRecover;
  fates[0].slice_bytes = 256;
  fates[0].slices = {{1, Route::kCompute, 0, {}}};
  proposal.ops = std::move(fates);
  ring.adopt(1, proposal);
  Frame slice = ring.frame(FrameType::kSlice, op(0));
  slice.epoch = proposal.view.epoch;
  slice.slice.hop = 1;
  slice.slice.ranks = 2;
  slice.slice.length = 256;
  ring.inject(0, 1, slice);
  ASSERT_EQ(ring.failures(1).size(), 1u) << "its sum would lack rank 3";
  EXPECT_THAT(ring.failures(1)[0].blame.evidence, HasSubstr("before this node was ready"));
}

TEST(EngineProtocol, ASliceThatClaimsTheWrongNumberOfContributions) {
  for (const uint32_t ranks : {0u, 2u, 99u}) {  // a alone has one rank
    Waiting story;
    Frame slice = story.slice;
    slice.slice.ranks = ranks;
    story.expect_fault(0, slice, "contributions");
  }
}

TEST(EngineProtocol, AReadyInTheNameOfAForeignRank) {
  for (const uint32_t rank : {1u, 2u, 77u}) {
    Waiting story(3);
    Frame ready = story.ring.frame(FrameType::kReady, op(1));
    ready.ready.rank = rank;
    ready.ready.contributions = 1;
    ready.ready.signature = sum_of(1);
    story.expect_fault(0, ready, "READY in the name of rank " + std::to_string(rank));
    EXPECT_EQ(story.ring.engine(1).open_ops(), 0u);
  }
}

// Added up with those of two others it would be 1, by which an average would be divided.
TEST(EngineProtocol, AReadyOfMoreRanksThanAnyJobHas) {
  Waiting story(3);
  Frame ready = story.ring.frame(FrameType::kReady, op(1));
  ready.ready.rank = 0;
  ready.ready.contributions = UINT32_MAX;
  ready.ready.signature = average_of(1);
  story.expect_fault(0, ready, "READY of more ranks than any job has");
  EXPECT_EQ(story.ring.engine(1).open_ops(), 0u);
}

TEST(EngineProtocol, AReadyForABroadcastFromNowhere) {
  Waiting story;
  Frame ready = story.ring.frame(FrameType::kReady, op(1));
  ready.ready.rank = 0;
  ready.ready.contributions = 1;
  ready.ready.signature = broadcast_of(10, 2);
  story.expect_fault(0, ready, "from a rank outside the job");
}

TEST(EngineProtocol, ACreditThatCannotBe) {
  Waiting too_many;
  Frame credit = too_many.ring.frame(FrameType::kCredit, {});
  credit.credit.freed_total = 1'000'000;
  too_many.expect_fault(0, credit, "CREDIT for more slots");

  Waiting wrong_node(3);
  credit.credit.freed_total = 0;
  wrong_node.expect_fault(0, credit, "not the successor");
}

// b itself has submitted the op and has nothing against it: whoever says so is to blame.
TEST(EngineProtocol, AMismatchThatCannotBe) {
  for (const uint32_t rank : {1u, 2u}) {  // b's own, and one that is not in the view
    Waiting story;
    ASSERT_TRUE(story.ring.deliver_first(0, 1, FrameType::kSlice));
    Frame mismatch = story.ring.frame(FrameType::kMismatch, op(0));
    mismatch.mismatch = {0, rank, sum_of(1), sum_of(2)};
    story.expect_fault(0, mismatch, "of which slices have moved");
  }
}

// Slices move only when all nodes have said READY with one signature: then nobody can have seen
// another one.
TEST(EngineProtocol, AMismatchAboutAnOpThatIsMoving) {
  Waiting moving;
  ASSERT_TRUE(moving.ring.deliver_first(0, 1, FrameType::kSlice));  // lies in its slot
  Frame mismatch = moving.ring.frame(FrameType::kMismatch, op(0));
  mismatch.mismatch = {0, 1, sum_of(500), sum_of(499)};
  moving.ring.inject(0, 1, mismatch);
  moving.ring.pump(1);
  ASSERT_EQ(moving.ring.failures(1).size(), 1u);
  EXPECT_EQ(moving.ring.failures(1)[0].cause, Cause::kProtocol);
  for (const Ticket ticket : moving.tickets) EXPECT_FALSE(moving.ring.ended(ticket));
}

TEST(EngineProtocol, AMismatchAboutAnOpWhoseSlicesCameBeforeTheLastReady) {
  // b has a slice of op 0 in its slot, c's READY is still on its way to b.
  Ring ring(3);
  ring.hold(2, 1);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(500));
  ring.deliver_first(0, 1, FrameType::kReady);
  ring.deliver_first(1, 0, FrameType::kReady);
  ring.deliver_first(2, 0, FrameType::kReady);
  ring.pump(0);
  ASSERT_TRUE(ring.deliver_first(0, 1, FrameType::kSlice));
  Frame mismatch = ring.frame(FrameType::kMismatch, op(0));
  mismatch.mismatch = {0, 1, sum_of(500), sum_of(499)};
  ring.inject(0, 1, mismatch);
  ring.pump(1);
  ASSERT_EQ(ring.failures(1).size(), 1u);
  EXPECT_EQ(ring.failures(1)[0].cause, Cause::kProtocol);
  EXPECT_FALSE(ring.ended(tickets[1]));
}

}  // namespace
}  // namespace gradring::core
