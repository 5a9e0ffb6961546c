// Ranks that do not submit the same thing under one key: all are told, and the job goes on.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;

void expect_mismatch(const Ring& ring, const std::vector<Ticket>& tickets,
                     const std::vector<std::string>& words) {
  for (const Ticket ticket : tickets) {
    const Outcome outcome = ring.outcome(ticket);
    EXPECT_EQ(outcome.verdict, Verdict::kFailed) << "rank " << ticket.rank;
    EXPECT_EQ(outcome.failure.cause, Cause::kMismatch);
    const std::string text = describe(outcome.failure);
    for (const std::string& word : words) EXPECT_THAT(text, HasSubstr(word));
  }
}

void expect_job_goes_on(Ring* ring, OpKey next) {
  const std::vector<Ticket> tickets = ring->submit_all(next, sum_of(100));
  ring->run();
  EXPECT_TRUE(ring->all_ok(tickets));
  EXPECT_EQ(ring->failures(), 0u);
  for (uint32_t node = 0; node < ring->nodes(); ++node) {
    EXPECT_EQ(ring->engine(node).open_ops(), 0u) << "the failed op is forgotten everywhere";
  }
}

TEST(EngineMismatch, WithinANode) {
  Ring ring(2, 2);
  std::vector<Ticket> tickets;
  tickets.push_back(ring.submit(0, op(0), sum_of(100)));
  tickets.push_back(ring.submit(1, op(0), sum_of(99)));
  EXPECT_TRUE(ring.ended(tickets[0])) << "known at once, without the other node";
  EXPECT_TRUE(ring.ended(tickets[1]));
  ring.run();
  // The others are told as they submit, whatever they submit.
  tickets.push_back(ring.submit(2, op(0), sum_of(100)));
  EXPECT_TRUE(ring.ended(tickets[2]));
  tickets.push_back(ring.submit(3, op(0), sum_of(99)));
  ring.run();
  expect_mismatch(ring, tickets,
                  {"op 0", "rank 0 (node a, pid 1000) submitted allreduce sum of 100 float32",
                   "rank 1 (node a, pid 1001) submitted allreduce sum of 99 float32"});
  expect_job_goes_on(&ring, op(1));
}

TEST(EngineMismatch, NamesTheOpOnNodesThatHearOfItBeforeTheySubmitIt) {
  Ring ring(2, 2);
  const auto submit = [&ring](uint32_t rank, uint64_t count) {
    return ring.submit(rank, {7, 1}, sum_of(count), {}, Place::kApart, "layer1.weight");
  };
  std::vector<Ticket> tickets = {submit(0, 100), submit(1, 99)};
  ring.run();
  tickets.push_back(submit(2, 100));
  tickets.push_back(submit(3, 100));
  ring.run();
  expect_mismatch(ring, tickets, {": op 'layer1.weight' use 1: rank 0"});
}

TEST(EngineMismatch, NamesTheOpWhereANodeThatDoesNotKnowItsNameSaysWhyTheJobFails) {
  Ring ring(2);
  const auto submit = [&ring](uint64_t use) {
    return ring.submit(0, {7, use}, sum_of(100), {}, Place::kApart, "layer1.weight");
  };
  const Ticket guilty = submit(1);
  const Ticket other = submit(12);
  Failure failure = lost("b");
  failure.blame.evidence = "left without submitting " + describe(OpKey{7, 12}) + " (a sum)";
  ring.fail_everywhere(failure);
  EXPECT_EQ(ring.outcome(other).failure.blame.evidence,
            "left without submitting op 'layer1.weight' use 12 (a sum)");
  EXPECT_EQ(ring.outcome(guilty).failure, failure) << "it is not about this one";
}

TEST(EngineMismatch, NamesTheOpAlsoWhereItsNameWasToldWithAnEarlierUse) {
  Ring ring(2);
  const std::string name = "layer1.weight";
  for (const std::string& told : {name, std::string()}) {
    const uint64_t use = told.empty() ? 1 : 0;
    std::vector<Ticket> tickets;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      tickets.push_back(ring.submit(rank, {7, use}, sum_of(rank + 1), {}, Place::kApart, told));
    }
    ring.run();
    expect_mismatch(ring, tickets, {"op 'layer1.weight' use " + std::to_string(use)});
  }
  ring.submit(0, {7, 2}, sum_of(1));
  const std::vector<OpProgress> open = ring.engine(0).progress(1);
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].name, name);
}

TEST(EngineMismatch, BetweenNodes) {
  Ring ring(3, 2);
  std::vector<Ticket> tickets;
  for (uint32_t rank = 0; rank < 6; ++rank) {
    tickets.push_back(ring.submit(rank, op(0), rank < 4 ? sum_of(100) : average_of(100)));
  }
  ring.run();
  // Which two ranks a node names depends on what it heard first; one is always of c.
  expect_mismatch(ring, tickets,
                  {"rank 4 (node c, pid 1004) submitted allreduce average of 100 float32",
                   "submitted allreduce sum of 100 float32"});
  EXPECT_EQ(ring.under_way(FrameType::kSlice), 0u);
  for (uint32_t node = 0; node < 3; ++node) {
    EXPECT_EQ(ring.engine(node).counters().slices_sent, 0u) << "found before any data moved";
  }
  expect_job_goes_on(&ring, op(1));
}

TEST(EngineMismatch, BetweenNodesWhenTheNewsComesBeforeTheSubmission) {
  // a and b differ; c's ranks have not submitted, but c hears of it.
  Ring ring(3, 2);
  std::vector<Ticket> tickets;
  for (const uint32_t rank : {0u, 1u}) tickets.push_back(ring.submit(rank, op(0), sum_of(8)));
  for (const uint32_t rank : {2u, 3u}) tickets.push_back(ring.submit(rank, op(0), sum_of(9)));
  ring.run();
  expect_mismatch(ring, tickets, {"rank 0 (node a, pid 1000)", "rank 2 (node b, pid 1002)"});
  EXPECT_EQ(ring.engine(2).open_ops(), 0u) << "c only remembers it, to tell its own ranks";
  for (const uint32_t rank : {4u, 5u}) {
    const Ticket ticket = ring.submit(rank, op(0), sum_of(8));
    expect_mismatch(
        ring, {ticket},
        {"rank 0 (node a, pid 1000)", "rank 2 (node b, pid 1002)", "of 8 float32", "of 9 float32"});
  }
  expect_job_goes_on(&ring, op(1));
}

TEST(EngineMismatch, EveryDifferenceCounts) {
  const Signature base = sum_of(10);
  Signature dtype = base;
  dtype.dtype = Dtype::kInt32;
  for (const Signature& other :
       {dtype, average_of(10), sum_of(11), broadcast_of(10, 0), barrier()}) {
    Ring ring(2);
    const std::vector<Ticket> tickets = {ring.submit(0, op(0), base), ring.submit(1, op(0), other)};
    ring.run();
    expect_mismatch(ring, tickets, {describe(base), describe(other)});
  }
  Ring ring(2);
  const std::vector<Ticket> tickets = {ring.submit(0, op(0), broadcast_of(10, 0)),
                                       ring.submit(1, op(0), broadcast_of(10, 1))};
  ring.run();
  expect_mismatch(ring, tickets, {"from rank 0", "from rank 1"});
}

TEST(EngineMismatch, ThreeSignatures) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Ring ring(3);
    const std::vector<Ticket> tickets = {ring.submit(0, op(0), sum_of(1)),
                                         ring.submit(1, op(0), sum_of(2)),
                                         ring.submit(2, op(0), sum_of(3))};
    ring.run_shuffled(seed);
    // Each names two that differ; which two is a matter of arrival.
    expect_mismatch(ring, tickets, {"submitted allreduce sum of", ", but rank"});
    expect_job_goes_on(&ring, op(1));
  }
}

TEST(EngineMismatch, ThreeSignaturesOnOneNode) {
  Ring ring(2, 3);
  std::vector<Ticket> tickets;
  for (uint32_t rank = 0; rank < 6; ++rank) {
    tickets.push_back(ring.submit(rank, op(0), sum_of(1 + rank % 3)));
  }
  ring.run();
  expect_mismatch(ring, tickets, {"op 0", ", but rank"});
  expect_job_goes_on(&ring, op(1));
}

TEST(EngineMismatch, InAnyOrderOfArrivalsNextToGoodOps) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Ring ring(3, 2, small_slices(2));
    const std::vector<Ticket> good = ring.submit_all(op(0), sum_of(300));
    std::vector<Ticket> bad;
    for (uint32_t rank = 0; rank < 6; ++rank) {
      bad.push_back(ring.submit(rank, op(1), rank == seed % 6 ? sum_of(7) : sum_of(8)));
    }
    const std::vector<Ticket> also_good = ring.submit_all(op(2), broadcast_of(300, 3));
    ring.run_shuffled(seed);
    ASSERT_TRUE(ring.all_ok(good));
    ASSERT_TRUE(ring.all_ok(also_good));
    expect_mismatch(ring, bad,
                    {"of 7 float32", "of 8 float32", "pid " + std::to_string(1000 + seed % 6)});
    expect_job_goes_on(&ring, op(3));
  }
}

TEST(EngineMismatch, AFailedOpHasNoDeadline) {
  // Rank 3 never submits an op of which it would only hear that it failed. Nobody waits for that.
  for (const bool told_by_a_peer : {true, false}) {
    Ring ring(2, 2);
    ring.submit(told_by_a_peer ? 0 : 2, op(0), sum_of(1));
    if (told_by_a_peer) {
      ring.submit(1, op(0), sum_of(2));
      ring.run();
      ring.submit(2, op(0), sum_of(1));
    } else {
      Frame ready = ring.frame(FrameType::kReady, op(0));
      ready.ready.rank = 0;
      ready.ready.contributions = 1;
      ready.ready.signature = sum_of(2);
      ring.inject(0, 1, ready);
    }
    EXPECT_EQ(ring.engine(1).open_ops(), 0u);
    ring.engine(1).tick(ring.now + 100'000 * kSecond);
    EXPECT_EQ(ring.failures(), 0u);
  }
}

TEST(EngineMismatch, NamedOpsAreNamed) {
  Ring ring(2);
  const OpKey key{0x1234567890, 0};
  const std::vector<Ticket> tickets = {
      ring.submit(0, key, sum_of(1), {}, Place::kApart, "layer1.weight"),
      ring.submit(1, key, sum_of(2), {}, Place::kApart, "layer1.weight")};
  ring.run();
  expect_mismatch(ring, tickets, {"layer1.weight"});
}

// Nodes tell each other the digests of blocks alone, and these were made to agree. That is found as
// slices move: no rank is told a good end, and none writes where it should not.
TEST(EngineMismatch, OfBlocksWhoseDigestsAgreeEndsTheJob) {
  const Blocks ones = *Blocks::of_ranks({2047, 1903, 458, 1724, 89, 126, 363});
  const Blocks others = *Blocks::of_ranks({2047, 323, 1187, 964, 797, 314, 201});
  ASSERT_EQ(ones.digest(), others.digest());
  for (const Collective collective : {Collective::kAllgather, Collective::kGather,
                                      Collective::kScatter, Collective::kReduceScatter}) {
    for (uint32_t odd = 0; odd < 7; ++odd) {
      Ring ring(7, 1, small_slices(8));
      std::vector<Ticket> tickets;
      for (uint32_t rank = 0; rank < 7; ++rank) {
        Signature s{collective, Dtype::kFloat32, ReduceOp::kNone, 0, 2047, 7};
        if (reduces(collective)) s.op = ReduceOp::kSum;
        s.blocks = rank == odd ? others : ones;
        const uint64_t bytes = extent_of(s, rank, rank).input;
        tickets.push_back(ring.submit(rank, op(0), s, values_of(rank, bytes / sizeof(float))));
      }
      ring.run_shuffled(odd);
      EXPECT_GT(ring.failures(), 0u) << "each node looks at what comes by its own blocks";
      for (const Ticket ticket : tickets) EXPECT_FALSE(ring.ended(ticket));
    }
  }
}

// A trainer that has not heard of the loss submits to a daemon that has restarted, so the next view
// finds the op everywhere, and nothing lost.
TEST(EngineMismatch, OfRanksThatWereGoneAlreadyIsFoundAfterARestart) {
  const auto reduce_scatter = [](uint32_t ranks) {
    return Signature{Collective::kReduceScatter, Dtype::kFloat32, ReduceOp::kSum, 0, 10, ranks};
  };
  for (const uint32_t others : {2u, 3u}) {
    Ring ring(3, 1, small_slices(), "elastic");
    ring.crash(2);
    ring.change_view();
    for (const uint32_t node : {0u, 1u}) {
      if (node == 0 || others == 3) ring.restart(node);
    }
    const std::vector<Ticket> tickets{
        ring.submit(0, op(0), reduce_scatter(3), Values(30)),
        ring.submit(1, op(0), reduce_scatter(others), Values(10 * others))};
    ring.change_view();
    ring.run();
    expect_mismatch(ring, tickets, {"of 3 x 10 float32"});
    EXPECT_EQ(ring.failures(), 0u);
  }
}

}  // namespace
}  // namespace gradring::core
