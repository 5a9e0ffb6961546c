// A job grows where all of its trainers stand at a join point.

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

TEST(EngineGrow, AJoinPointIsABarrierWhereNobodyWantsToComeIn) {
  Ring ring(3, 2, small_slices(), "elastic");
  const std::vector<Ticket> tickets = ring.submit_all(op(0), join_point());
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  for (uint32_t node = 0; node < 3; ++node) {
    EXPECT_EQ(ring.join_points(node), 0u);
    EXPECT_EQ(ring.engine(node).kept_ops(), 0u);
  }
}

TEST(EngineGrow, ItIsNotAnnouncedWhileAnythingElseIsOpen) {
  Ring ring(2, 1, small_slices(), "elastic");
  const Ticket open = ring.submit(0, op(0), sum_of(10), values_of(0, 10));
  const Ticket at_a = ring.submit(0, op(1), join_point());
  ring.run();
  EXPECT_EQ(ring.engine(1).open_ops(), 1u) << "b has heard of op 0 alone";
  const Ticket last = ring.submit(1, op(0), sum_of(10), values_of(1, 10));
  const Ticket at_b = ring.submit(1, op(1), join_point());
  ring.run();
  EXPECT_TRUE(ring.all_ok({open, last, at_a, at_b}));
}

TEST(EngineGrow, ItStandsStillWhereSomebodyWantsToComeIn) {
  Ring ring(2, 1, small_slices(), "elastic");
  ring.engine(0).set_grows(true);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), join_point());
  ring.run();
  EXPECT_EQ(ring.join_points(0), 1u);
  EXPECT_EQ(ring.join_points(1), 1u) << "told in a's READY";
  EXPECT_FALSE(ring.ended(tickets[0]) || ring.ended(tickets[1]));
  ring.change_view();  // and then nobody did
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

// The keys begin anew where a job grows. A trainer that submits in the middle of that must not be
// able to bring the daemon down.
TEST(EngineGrow, WhoStandsAtAJoinPointSubmitsNothingElse) {
  Ring ring(2, 1, small_slices(), "elastic");
  ring.engine(0).set_grows(true);
  const std::vector<Ticket> tickets = ring.submit_all(op(0), join_point());
  ring.run();
  for (const uint32_t node : {0u, 1u}) ring.freeze(node);
  EXPECT_EQ(ring.refused(1, op(0), sum_of(10)).code(), Code::kInvalidArgument);
  Proposal proposal = ring.decide();
  proposal.view.grown = proposal.view.epoch;
  for (const uint32_t node : {0u, 1u}) ring.adopt(node, proposal);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  const std::vector<Ticket> next = ring.submit_all(op(0), sum_of(10));
  ring.run();
  EXPECT_TRUE(ring.all_ok(next)) << "the first op of all who are there now";
}

// c has submitted what nobody else knows of, and dies just when others are taken in.
TEST(EngineGrow, WhatIsOnlyHeardOfIsForgotten) {
  Ring ring(3, 1, small_slices(), "elastic");
  ring.engine(0).set_grows(true);
  const std::vector<Ticket> tickets = {ring.submit(0, op(0), join_point()),
                                       ring.submit(1, op(0), join_point())};
  ring.submit(2, op(5), sum_of(10));
  ring.run();
  ring.crash(2);
  for (const uint32_t node : {0u, 1u}) ring.freeze(node);
  Proposal proposal = ring.decide();
  proposal.view.grown = proposal.view.epoch;
  for (const uint32_t node : {0u, 1u}) ring.adopt(node, proposal);
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_EQ(ring.engine(0).open_ops(), 0u);
}

}  // namespace
}  // namespace gradring::core
