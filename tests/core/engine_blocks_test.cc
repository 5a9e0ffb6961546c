// Ops that need all of their ranks: gathered, scattered, exchanged, or summed up for one of them.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Collective kAll[] = {Collective::kAllgather, Collective::kReduceScatter,
                               Collective::kReduce,    Collective::kGather,
                               Collective::kScatter,   Collective::kAlltoall};

Signature signature_of(Collective collective, uint64_t count, uint32_t ranks, uint32_t root = 0) {
  Signature s{collective, Dtype::kFloat32, ReduceOp::kNone, 0, count, ranks};
  if (reduces(collective)) s.op = ReduceOp::kSum;
  if (has_root(collective)) s.root = root;
  return s;
}

// Block `at` of what a rank gives. Whole numbers, so that sums are exact in any order.
Values block(uint32_t rank, uint32_t at, uint64_t count) {
  Values values;
  for (uint64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(1000 * rank + 100 * at + i % 100));
  }
  return values;
}

// Of each block another number of elements, of some none.
Signature unevenly(Signature s) {
  if (!in_blocks(s.collective)) return s;
  const bool pairs = s.collective == Collective::kAlltoall;
  std::vector<uint64_t> counts(blocks_of(s));
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = (i * 17 + 13) % 29 * s.count / 30;
  counts.back() = s.count;
  s.blocks = *(pairs ? Blocks::of_pairs(counts, s.ranks) : Blocks::of_ranks(counts));
  return s;
}

// Of the block that one rank gives and another takes.
uint64_t length_of(const Signature& s, uint32_t giver, uint32_t taker) {
  if (!s.blocks.uneven()) return s.count;
  if (s.blocks.pairs()) return s.blocks.count(giver, taker);
  const bool of_giver =
      s.collective == Collective::kAllgather || s.collective == Collective::kGather;
  return s.blocks.count(of_giver ? giver : taker);
}

Values input_of(const Signature& s, uint32_t rank) {
  const bool one = s.collective == Collective::kAllgather || s.collective == Collective::kGather ||
                   s.collective == Collective::kReduce;
  if (one) return block(rank, 0, length_of(s, rank, rank));
  if (s.collective == Collective::kScatter && s.root != rank) return {};
  Values input;
  for (uint32_t at = 0; at < s.ranks; ++at) {
    const Values more = block(rank, at, length_of(s, rank, at));
    input.insert(input.end(), more.begin(), more.end());
  }
  return input;
}

Values sum_of_block(const Signature& s, uint32_t at) {
  Values sum(length_of(s, 0, at), 0.0f);
  for (uint32_t rank = 0; rank < s.ranks; ++rank) {
    const Values more = block(rank, at, sum.size());
    for (uint64_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  return sum;
}

Values expected_at(const Signature& s, uint32_t rank) {
  switch (s.collective) {
    case Collective::kReduceScatter:
      return sum_of_block(s, rank);
    case Collective::kReduce:
      return rank == s.root ? sum_of_block(s, 0) : Values();
    case Collective::kScatter:
      return block(s.root, rank, length_of(s, s.root, rank));
    default:
      break;
  }
  Values all;
  if (s.collective == Collective::kGather && s.root != rank) return all;
  for (uint32_t from = 0; from < s.ranks; ++from) {
    const bool pairs = s.collective == Collective::kAlltoall;
    const Values more = block(from, pairs ? rank : 0, length_of(s, from, rank));
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::vector<Ticket> submit_all(Ring* ring, OpKey key, const Signature& s) {
  std::vector<Ticket> tickets;
  for (uint32_t rank = 0; rank < s.ranks; ++rank) {
    tickets.push_back(ring->submit(rank, key, s, input_of(s, rank)));
  }
  return tickets;
}

void expect_results(const Ring& ring, const Signature& s, const std::vector<Ticket>& tickets) {
  ASSERT_TRUE(ring.all_ok(tickets)) << describe(s);
  for (const Ticket ticket : tickets) {
    EXPECT_EQ(ring.result(ticket), expected_at(s, ticket.rank))
        << describe(s) << " at rank " << ticket.rank;
    EXPECT_EQ(ring.outcome(ticket).ranks_min, s.ranks);
    EXPECT_EQ(ring.outcome(ticket).ranks_max, s.ranks);
  }
}

TEST(EngineBlocks, EveryRankGetsWhatTheCollectivePromises) {
  for (const Collective collective : kAll) {
    for (const uint32_t nodes : {1u, 2u, 3u, 4u}) {
      for (const uint32_t each : {1u, 2u}) {
        for (const uint64_t count : {0u, 1u, 37u}) {
          Ring ring(nodes, each);
          uint64_t next = 0;
          const Signature s = signature_of(collective, count, nodes * each, nodes * each - 1);
          if (count == 0) {
            EXPECT_TRUE((ring.submit_all(op(0), s), ring.run(), true));
            continue;
          }
          for (const Signature& one : {s, unevenly(s)}) {
            const std::vector<Ticket> tickets = submit_all(&ring, op(next++), one);
            ring.run();
            expect_results(ring, one, tickets);
            EXPECT_EQ(ring.engine(0).kept_ops(), 0u);
          }
        }
      }
    }
  }
}

TEST(EngineBlocks, ManyAtOnceInAnyOrderOfArrivals) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(20); ++seed) {
    Ring ring(3, 2, small_slices(3));
    std::vector<Signature> signatures;
    std::vector<std::vector<Ticket>> tickets;
    for (uint64_t i = 0; i < 12; ++i) {
      signatures.push_back(signature_of(kAll[i % 6], 20 + 7 * i, 6, i % 6));
      if (i >= 6) signatures.back() = unevenly(signatures.back());
      tickets.push_back(submit_all(&ring, op(i), signatures.back()));
    }
    ring.run_shuffled(seed);
    for (size_t i = 0; i < signatures.size(); ++i) expect_results(ring, signatures[i], tickets[i]);
  }
}

// Only then may a trainer overwrite what others' results are made of.
TEST(EngineBlocks, NobodyIsToldBeforeEveryResultIsWhereItBelongs) {
  for (const Collective collective : {Collective::kReduceScatter, Collective::kGather}) {
    Ring ring(3);
    ring.hold(1, 2);
    const Signature s = signature_of(collective, 30, 3, 2);
    const std::vector<Ticket> tickets = submit_all(&ring, op(0), s);
    ring.run();
    for (const Ticket ticket : tickets) EXPECT_FALSE(ring.ended(ticket)) << describe(s);
    ring.release(1, 2);
    ring.run();
    expect_results(ring, s, tickets);
  }
}

TEST(EngineBlocks, OtherBlocksThanSomebodyElsesAreAMismatch) {
  Ring ring(3);
  Signature s = signature_of(Collective::kAllgather, 30, 3);
  std::vector<Ticket> tickets;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    s.blocks = *Blocks::of_ranks({30, rank == 1 ? 8u : 7u, 0});
    tickets.push_back(ring.submit(rank, op(0), s, input_of(s, rank)));
  }
  ring.run();
  for (const Ticket ticket : tickets) {
    ASSERT_TRUE(ring.ended(ticket));
    EXPECT_EQ(ring.outcome(ticket).failure.cause, Cause::kMismatch);
    EXPECT_THAT(ring.outcome(ticket).failure.blame.evidence,
                HasSubstr("up to 30 float32, in blocks"));
  }
}

TEST(EngineBlocks, AnotherNumberOfRanksThanThereAreFailsForAll) {
  Ring ring(2, 2);
  std::vector<Ticket> tickets;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const uint32_t ranks = rank == 3 ? 4 : 5;  // three of them are behind
    const Signature s = signature_of(Collective::kAllgather, 10, ranks);
    tickets.push_back(ring.submit(rank, op(0), s, input_of(s, rank)));
  }
  ring.run();
  for (const Ticket ticket : tickets) {
    ASSERT_TRUE(ring.ended(ticket));
    EXPECT_EQ(ring.outcome(ticket).failure.cause, Cause::kMismatch);
  }
  EXPECT_THAT(ring.outcome(tickets[0]).failure.blame.evidence,
              HasSubstr("the job has 4 ranks, but rank 0 (node a, pid 1000) submitted allgather of "
                        "5 x 10 float32"));
  EXPECT_EQ(ring.failures(), 0u) << "the job goes on";
}

TEST(EngineBlocks, WhoCountsARankThatWasLostIsToldWhichAndHow) {
  Ring ring(2, 2, small_slices(), "elastic");
  ring.lose_rank(3);
  ring.change_view();
  const Signature s = signature_of(Collective::kAllgather, 10, 4);
  for (const uint32_t rank : {0u, 1u, 2u}) {
    const Ticket ticket = ring.submit(rank, op(0), s, input_of(s, rank));
    ring.run();
    EXPECT_EQ(ring.outcome(ticket).failure.cause, Cause::kMismatch);
    EXPECT_THAT(ring.outcome(ticket).failure.blame.evidence,
                AllOf(HasSubstr("the job has 3 ranks (epoch 2: trainer died: rank 3; 3 ranks of 4"),
                      HasSubstr("), but rank")));
  }
}

TEST(EngineBlocks, APlaceThatIsNotTheRanksOwnIsRefused) {
  Ring ring(2);
  Submission submission{1, 7, op(0), "", signature_of(Collective::kAllgather, 4, 2), {}, {}, 0};
  const Status status = ring.engine_of_rank(1).submit(submission, ring.now);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 is not the one at position 0"));
}

TEST(EngineBlocks, ARootThatIsNotThereIsRefused) {
  Ring ring(2);
  EXPECT_THAT(ring.refused(0, op(0), signature_of(Collective::kGather, 4, 2, 5)).message(),
              HasSubstr("gather of 2 x 4 float32 to rank 5, which is not among the job's 2 ranks"));
}

TEST(EngineBlocks, AnOpBeyondAllMeasureIsRefused) {
  Ring ring(2);
  EXPECT_THAT(ring.refused(0, op(0), signature_of(Collective::kAlltoall, 1 << 30, 2)).message(),
              HasSubstr("is too much for one op"));
}

// ---- views ----

TEST(EngineBlocks, OneWhoseRankIsLostFailsAloneAndTheJobGoesOn) {
  for (const Collective collective : kAll) {
    Ring ring(3, 1, small_slices(), "elastic");
    const Signature s = signature_of(collective, 100, 3, 1);
    const std::vector<Ticket> tickets = submit_all(&ring, op(0), s);
    const std::vector<Ticket> sums = ring.submit_all(op(1), sum_of(100));
    ring.crash(2);
    ring.change_view();
    ring.run();
    for (const uint32_t rank : {0u, 1u}) {
      ASSERT_TRUE(ring.ended(tickets[rank])) << describe(s);
      EXPECT_EQ(ring.outcome(tickets[rank]).failure.cause, Cause::kRootLost);
      EXPECT_EQ(ring.outcome(tickets[rank]).failure.blame.rank, 2u);
      EXPECT_EQ(ring.outcome(sums[rank]).verdict, Verdict::kOkShrunk);
    }
    EXPECT_EQ(ring.failures(), 0u);
  }
}

TEST(EngineBlocks, AMemberThatIsLostAtAnyMomentLeavesNoContradiction) {
  for (const Collective collective : kAll) {
    for (uint64_t moment = 1; moment < 120; ++moment) {
      Ring ring(3, 1, small_slices(), "elastic");
      const Signature s = signature_of(collective, 60, 3, 1);
      const std::vector<Ticket> tickets = submit_all(&ring, op(0), s);
      Random random(moment);
      for (uint64_t i = 0; i < moment && ring.step(&random); ++i) {
      }
      ring.crash(2);
      ring.change_view();
      ring.run();
      ASSERT_EQ(ring.failures(), 0u) << describe(s) << " at moment " << moment;
      ASSERT_TRUE(ring.ended(tickets[0]) && ring.ended(tickets[1]));
      const Verdict verdict = ring.outcome(tickets[0]).verdict;
      ASSERT_EQ(ring.outcome(tickets[1]).verdict, verdict) << describe(s);
      for (const uint32_t rank : {0u, 1u}) {
        if (verdict == Verdict::kFailed) continue;
        ASSERT_EQ(ring.result(tickets[rank]), expected_at(s, rank)) << describe(s);
      }
    }
  }
}

TEST(EngineBlocks, OneSubmittedDuringTheChangeForRanksThatAreLostFails) {
  Ring ring(3, 1, small_slices(), "elastic");
  ring.crash(2);
  for (const uint32_t node : {0u, 1u}) ring.freeze(node);
  const Signature s = signature_of(Collective::kReduceScatter, 10, 3);
  const std::vector<Ticket> during = {ring.submit(0, op(0), s, input_of(s, 0)),
                                      ring.submit(1, op(0), s, input_of(s, 1))};
  const Proposal proposal = ring.decide();
  for (const uint32_t node : {0u, 1u}) ring.adopt(node, proposal);
  ring.run();
  for (const Ticket ticket : during) {
    ASSERT_TRUE(ring.ended(ticket));
    EXPECT_EQ(ring.outcome(ticket).failure.cause, Cause::kMismatch);
  }
  EXPECT_EQ(ring.failures(), 0u);
}

TEST(EngineBlocks, WhatARankSubmittedBeforeItDiedStillCounts) {
  for (const Collective collective : kAll) {
    for (const char* policy : {"elastic", "fail"}) {
      Ring ring(2, 2, small_slices(), policy);
      const Signature s = signature_of(collective, 50, 4, 1);
      const std::vector<Ticket> tickets = submit_all(&ring, op(0), s);
      ring.lose_rank(3);
      ring.change_view();
      ring.run();
      expect_results(ring, s, tickets);
    }
  }
}

TEST(EngineBlocks, ALostConnectionIsMadeGoodFromInputsThatNobodyTouched) {
  for (const Collective collective : kAll) {
    for (uint64_t moment = 1; moment < 60; moment += 3) {
      Ring ring(3, 2);
      const Signature s = signature_of(collective, 60, 6, 4);
      const std::vector<Ticket> tickets = submit_all(&ring, op(0), s);
      Random random(moment);
      for (uint64_t i = 0; i < moment && ring.step(&random); ++i) {
      }
      ring.change_view();  // with the same members
      ring.run();
      expect_results(ring, s, tickets);
    }
  }
}

// The root has everything and has said so, but nobody hears it: the next view does.
TEST(EngineBlocks, OneThatIsCompleteWhereItIsWantedIsCompleteForAll) {
  Ring ring(2);
  const Signature s = signature_of(Collective::kGather, 5, 2, 1);
  const std::vector<Ticket> tickets = submit_all(&ring, op(0), s);
  while (!ring.ended(tickets[1])) {
    ring.pump(0);
    ring.pump(1);
    if (!ring.deliver(0, 1)) ring.deliver_first(1, 0, FrameType::kReady);
  }
  EXPECT_FALSE(ring.ended(tickets[0])) << "its STABLE is under way";
  ring.change_view();
  ring.run();
  expect_results(ring, s, tickets);
}

TEST(EngineBlocks, WithStableCompletionNobodyIsToldBeforeAllKnow) {
  EngineOptions options = small_slices();
  options.stable_completion = true;
  Ring ring(3, 1, options);
  const Signature s = signature_of(Collective::kScatter, 5, 3, 0);
  const std::vector<Ticket> tickets = submit_all(&ring, op(0), s);
  ring.hold(1, 2);
  ring.run();
  for (const Ticket ticket : tickets) EXPECT_FALSE(ring.ended(ticket));
  ring.release(1, 2);
  ring.run();
  expect_results(ring, s, tickets);
}

TEST(EngineBlocks, AMissingRankIsNamed) {
  Ring ring(2, 2);
  const Signature s = signature_of(Collective::kAlltoall, 3, 4);
  for (const uint32_t rank : {0u, 1u, 2u}) ring.submit(rank, op(0), s, input_of(s, rank));
  ring.run();
  const auto waiting = ring.engine(1).progress(10);
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting[0].missing_ranks, std::vector<uint32_t>{3});
}

void restart_at_any_moment(const Signature& s) {
  for (uint64_t moment = 1; moment < 60; ++moment) {
    for (const bool stable : {false, true}) {
      EngineOptions options = small_slices();
      options.stable_completion = stable;
      Ring ring(3, 1, options);
      const std::vector<Ticket> tickets = submit_all(&ring, op(0), s);
      Random random(moment);
      for (uint64_t i = 0; i < moment && ring.step(&random); ++i) {
      }
      ring.restart(1);
      ring.change_view();
      ring.run();
      expect_results(ring, s, tickets);
    }
  }
}

TEST(EngineBlocks, ADaemonThatRestartsGoesOnWhereItWas) {
  for (const Collective collective : kAll) {
    restart_at_any_moment(signature_of(collective, 60, 3, 2));
    restart_at_any_moment(unevenly(signature_of(collective, 60, 3, 2)));
  }
}

}  // namespace
}  // namespace gradring::core
