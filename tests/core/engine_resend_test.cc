// Slices that come damaged: rule D9.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;

EngineOptions with_checksums() {
  EngineOptions options = small_slices();
  options.checksum = true;
  return options;
}

struct ResendStory : Ring {
  explicit ResendStory(const std::string& policy = "fail", uint32_t nodes = 3)
      : Ring(nodes, 2, with_checksums(), policy) {}
  void expect_nothing_in_use() {
    for (uint32_t node = 0; node < nodes(); ++node) {
      EXPECT_EQ(engine(node).slots_in_use(), 0u) << node;
    }
  }
  void leave_all() {
    for (uint32_t rank = 0; rank < ranks(); ++rank) leave(rank);
    run();
    for (uint32_t node = 0; node < nodes(); ++node) EXPECT_TRUE(engine(node).drained()) << node;
  }
};

TEST(EngineResend, WithoutDamageEveryBufferComesBack) {
  ResendStory ring;
  const auto tickets = ring.submit_all(op(0), sum_of(1000));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_EQ(ring.under_way(FrameType::kNack), 0u);
  ring.leave_all();
}

TEST(EngineResend, EverySliceMayComeDamagedTwice) {
  ResendStory ring;
  ring.damages = [](uint32_t, uint32_t, const SliceBody& slice) { return slice.attempt <= 2; };
  const auto tickets = ring.submit_all(op(0), sum_of(1000));
  ring.run();
  ASSERT_TRUE(ring.all_ok(tickets));
  const Values sum = ring_sum(ring.view(), 1000, 0, 64);
  for (const Ticket ticket : tickets) EXPECT_EQ(ring.result(ticket), sum);
  for (uint32_t node = 0; node < ring.nodes(); ++node) {
    const EngineCounters& counters = ring.engine(node).counters();
    EXPECT_EQ(counters.slices_resent, 2 * counters.slices_sent) << node;
    EXPECT_EQ(ring.engine((node + 1) % 3).counters().slices_damaged, counters.slices_resent);
    EXPECT_TRUE(ring.condemnations(node).empty());
  }
  ring.leave_all();
}

TEST(EngineResend, InAnyOrder) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(50); ++seed) {
    ResendStory ring("fail", 2 + seed % 3);
    Random dice(seed);
    ring.damages = [&dice](uint32_t, uint32_t, const SliceBody& slice) {
      return slice.attempt < kAttempts && dice.below(4) == 0;
    };
    std::vector<std::vector<Ticket>> tickets;
    for (uint64_t k = 0; k < 3; ++k) tickets.push_back(ring.submit_all(op(k), sum_of(300)));
    ring.run_shuffled(seed);
    for (const auto& of_op : tickets) {
      ASSERT_TRUE(ring.all_ok(of_op)) << seed;
      for (const Ticket ticket : of_op) ASSERT_EQ(ring.result(ticket), ring.result(of_op[0]));
    }
    ring.leave_all();
  }
}

// No member has completed the op: it fails, on all of them with the same words, and nothing else.
TEST(EngineResend, AfterTheThirdTimeTheNextViewFailsTheOpEverywhere) {
  ResendStory ring;
  ring.damages = [](uint32_t from, uint32_t, const SliceBody& slice) {
    return from == 1 && slice.slice == 1 && slice.phase == Phase::kPartial;
  };
  const auto tickets = ring.submit_all(op(0), sum_of(1000));
  ring.run();
  ASSERT_EQ(ring.condemnations(1).size(), 1u);
  EXPECT_TRUE(ring.condemnations(0).empty() && ring.condemnations(2).empty());
  for (const Ticket ticket : tickets) EXPECT_FALSE(ring.ended(ticket)) << "told before it is sure";
  EXPECT_EQ(ring.engine(2).counters().slices_damaged, kAttempts);
  const auto later = ring.submit_all(op(1), sum_of(100));

  ring.damages = nullptr;
  const Proposal proposal = ring.change_view();
  EXPECT_EQ(proposal.view.members.size(), 3u);
  EXPECT_FALSE(proposal.view.closed);
  EXPECT_THAT(proposal.view.explanation, HasSubstr("the same members; corrupted: node b"));
  for (const Ticket ticket : tickets) {
    const Outcome outcome = ring.outcome(ticket);
    EXPECT_EQ(outcome.verdict, Verdict::kFailed);
    EXPECT_EQ(outcome.failure, ring.condemnations(1)[0]);
  }
  EXPECT_EQ(describe(ring.condemnations(1)[0]),
            "corrupted: node b: slice 1 of op 0 came damaged 3 times on its way to node c, lane 1; "
            "check the network card, the cable and the memory of both nodes");
  ring.run();
  EXPECT_TRUE(ring.all_ok(later));
  EXPECT_THAT(ring.change_view().view.explanation, testing::Not(HasSubstr("corrupted")))
      << "said once";
  ring.run();
  ring.leave_all();
}

// It can get to all others.
TEST(EngineResend, WhatCameDamagedToANodeThatIsGoneDoesNotFail) {
  ResendStory ring("elastic min=1");
  ring.damages = [](uint32_t from, uint32_t, const SliceBody&) { return from == 1; };
  const auto tickets = ring.submit_all(op(0), sum_of(1000));
  ring.run();
  ASSERT_EQ(ring.condemnations(1).size(), 1u);
  ring.damages = nullptr;
  ring.crash(2);
  ring.change_view();
  ring.run();
  for (const Ticket ticket : tickets) {
    if (ring.view().host_of(ticket.rank) == 2) continue;
    EXPECT_EQ(ring.outcome(ticket).verdict, Verdict::kOkShrunk);
  }
}

// Somebody has been told OK, so nobody may be told FAILED: the two ends of the link part.
TEST(EngineResend, WhatAMemberHasCompletedDoesNotFail) {
  for (const bool elastic : {true, false}) {
    ResendStory ring(elastic ? "elastic min=1" : "fail");
    ring.damages = [](uint32_t from, uint32_t to, const SliceBody& slice) {
      return from == 0 && to == 1 && slice.phase == Phase::kFinal;
    };
    const auto tickets = ring.submit_all(op(0), sum_of(16));  // one slice; b is its last receiver
    ring.run();
    ASSERT_EQ(ring.condemnations(0).size(), 1u);
    ASSERT_TRUE(ring.ended(tickets[0]));
    const Proposal proposal = ring.change_view();
    ring.run();
    ASSERT_EQ(proposal.view.members.size(), 2u);
    EXPECT_FALSE(proposal.view.index_of("b")) << "of two, the higher name";
    EXPECT_EQ(proposal.view.closed.has_value(), !elastic);
    if (!elastic) {
      EXPECT_EQ(proposal.view.closed->cause, Cause::kCorrupted);
    }
    EXPECT_THAT(proposal.view.explanation, HasSubstr("came damaged 3 times on its way to node b"));
    for (const Ticket ticket : tickets) {
      const bool member = ring.view().host_of(ticket.rank) != 1;
      EXPECT_EQ(ring.outcome(ticket).verdict, member ? Verdict::kOk : Verdict::kFailed);
    }
  }
}

// It was told to nobody, so it is not remembered: the op is tried once more, and comes to the same
// end on all members.
TEST(EngineResend, ACondemnationThatDiedWithItsDaemonIsComeToAgainOrNotNeeded) {
  for (const bool healed : {true, false}) {
    ResendStory ring;
    ring.damages = [](uint32_t from, uint32_t, const SliceBody& slice) {
      return from == 1 && slice.slice == 1 && slice.phase == Phase::kPartial;
    };
    const auto tickets = ring.submit_all(op(0), sum_of(1000));
    ring.run();
    ASSERT_EQ(ring.condemnations(1).size(), 1u);
    ring.restart(1);
    if (healed) ring.damages = nullptr;
    EXPECT_EQ(ring.change_view().view.members.size(), 3u);
    ring.run();
    ASSERT_EQ(ring.condemnations(1).size(), healed ? 0u : 1u);
    if (!healed) {
      for (const Ticket ticket : tickets) EXPECT_FALSE(ring.ended(ticket));
      ring.change_view();
      for (const Ticket ticket : tickets) {
        EXPECT_EQ(ring.outcome(ticket).failure, ring.condemnations(1)[0]);
      }
    } else {
      EXPECT_TRUE(ring.all_ok(tickets));
      EXPECT_EQ(ring.result(tickets[0]), ring_sum(ring.view(), 1000, 0, 64));
    }
    ring.leave_all();
  }
}

TEST(EngineResend, WhatAMemberHasCompletedDoesNotFailAfterARestartEither) {
  ResendStory ring("elastic min=1");
  ring.damages = [](uint32_t from, uint32_t to, const SliceBody& slice) {
    return from == 0 && to == 1 && slice.phase == Phase::kFinal;
  };
  const auto tickets = ring.submit_all(op(0), sum_of(16));
  ring.run();
  ASSERT_TRUE(ring.ended(tickets[0]) && !ring.ended(tickets[2]));
  ring.restart(0);
  EXPECT_EQ(ring.change_view().view.members.size(), 3u) << "what it condemned is forgotten";
  ring.run();
  ASSERT_EQ(ring.condemnations(0).size(), 1u) << "it gives the slice out, over the same link";
  EXPECT_FALSE(ring.change_view().view.index_of("b"));
  for (const Ticket ticket : tickets) {
    EXPECT_EQ(ring.outcome(ticket).verdict == Verdict::kOk, ring.view().host_of(ticket.rank) != 1);
  }
}

// Slices, NACKs and confirmations of the last life arrive in the next one, or are lost.
TEST(EngineResend, ARestartAtAnyMomentNeitherHangsNorSumsTwice) {
  uint64_t stale = 0;
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(150); ++seed) {
    ResendStory ring("fail", 2 + seed % 3);
    Random dice(seed);
    ring.damages = [&dice](uint32_t, uint32_t, const SliceBody& slice) {
      return slice.attempt < kAttempts && dice.below(2) == 0;
    };
    std::vector<std::vector<Ticket>> tickets;
    for (uint64_t k = 0; k < 2; ++k) tickets.push_back(ring.submit_all(op(k), sum_of(300)));
    for (uint64_t steps = dice.below(300); steps > 0 && ring.step(&dice); --steps) {
    }
    const auto who = static_cast<uint32_t>(dice.below(ring.nodes()));
    ring.restart(who, dice.below(2) == 0 ? Wake::kLost : Wake::kArrives);
    for (uint64_t steps = dice.below(60); steps > 0 && ring.step(&dice); --steps) {
    }
    ring.change_view();
    ring.run_shuffled(seed);
    stale += ring.engine(who).counters().frames_stale;
    for (uint64_t k = 0; k < 2; ++k) {
      ASSERT_TRUE(ring.all_ok(tickets[k])) << seed;
      const uint32_t cut = slice_bytes_for(sum_of(300), ring.nodes(), with_checksums().plan);
      const Values sum = ring_sum(ring.view(), 300, k, cut / sizeof(float));
      for (const Ticket ticket : tickets[k]) ASSERT_EQ(ring.result(ticket), sum) << seed;
    }
    ring.expect_nothing_in_use();
    ring.leave_all();
  }
  EXPECT_GT(stale, 0u) << "nothing of the epoch before ever came";
}

TEST(EngineResend, WhatCannotBeIsAFaultOfTheProtocol) {
  for (const bool nack : {true, false}) {
    ResendStory ring;
    Frame frame = ring.frame(nack ? FrameType::kNack : FrameType::kCredit, {});
    frame.nack.serial = frame.nack.attempt = 1;
    frame.credit.confirmed_total = 1;
    ring.inject(nack ? 2 : 1, 0, frame);  // a's successor is b
    ASSERT_EQ(ring.failures(0).size(), 1u);
    EXPECT_EQ(ring.failures(0)[0].cause, Cause::kProtocol);
  }
}

// The epoch ends while one slice is awaited again and others are not confirmed.
TEST(EngineResend, TheNextEpochBeginsWithAllSlotsFree) {
  ResendStory ring;
  ring.damages = [](uint32_t, uint32_t, const SliceBody& slice) { return slice.attempt == 1; };
  const auto tickets = ring.submit_all(op(0), sum_of(1000), Place::kInPlace);
  Random random(5);
  for (int nacks = 0; nacks < 8;) {
    const size_t before = ring.under_way(FrameType::kNack);
    ASSERT_TRUE(ring.step(&random));
    nacks += ring.under_way(FrameType::kNack) > before ? 1 : 0;
  }
  ring.change_view();
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  ring.expect_nothing_in_use();
  ring.leave_all();
}

}  // namespace
}  // namespace gradring::core
