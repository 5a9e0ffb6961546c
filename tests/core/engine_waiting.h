#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/core/engine_ring.h"

namespace gradring::core {

// b is ready for op 0 and has got nothing yet; slices from a are on the way and held there.
struct Waiting {
  explicit Waiting(uint32_t nodes = 2) : ring(nodes, 1, small_slices(3)) {
    ring.hold(0, 1);
    tickets = ring.submit_all(op(0), sum_of(500));
    ring.run();
    ring.deliver_first(0, 1, FrameType::kReady);
    slice = ring.peek(0, 1, FrameType::kSlice);
  }

  // `frame` comes to b from `from`: b asks once to fail the job, and nothing else happens.
  void expect_fault(uint32_t from, const Frame& frame, const std::string& words) {
    const EngineCounters before = ring.engine(1).counters();
    const uint32_t used = ring.engine(1).slots_in_use();
    for (int times = 0; times < 2; ++times) ring.inject(from, 1, frame);
    ASSERT_EQ(ring.failures(1).size(), 1u) << "asked for once";
    const Failure& failure = ring.failures(1)[0];
    EXPECT_EQ(failure.cause, Cause::kProtocol);
    EXPECT_EQ(failure.blame.node, ring.view().members[from].node);
    EXPECT_THAT(failure.blame.evidence, testing::HasSubstr(words));
    EXPECT_EQ(ring.engine(1).slots_in_use(), used);
    EXPECT_EQ(ring.engine(1).counters().slices_received, before.slices_received);
    for (const Ticket ticket : tickets) EXPECT_FALSE(ring.ended(ticket));
    // The job is not failed by the engine alone; when all agree, everything ends with one cause.
    ring.fail_everywhere(failure);
    for (const Ticket ticket : tickets) {
      EXPECT_EQ(ring.outcome(ticket).failure.cause, Cause::kProtocol);
    }
  }

  Ring ring;
  std::vector<Ticket> tickets;
  Frame slice;
};

}  // namespace gradring::core
