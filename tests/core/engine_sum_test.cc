// What the trainers get: values, bits, and where they lie.

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

TEST(EngineSum, SameBitsOnEveryRankInTheDocumentedOrder) {
  for (const uint32_t nodes : {1u, 2u, 3u, 5u}) {
    for (const uint32_t ranks : {1u, 3u}) {
      for (const uint64_t count : {1u, 17u, 200u}) {
        SCOPED_TRACE(testing::Message() << nodes << " x " << ranks << ", " << count << " floats");
        Ring ring(nodes, ranks);
        const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(count));
        ring.run();
        ASSERT_TRUE(ring.all_ok(tickets));
        const uint32_t slice_bytes = slice_bytes_for(sum_of(count), nodes, small_slices().plan);
        const Values expected = ring_sum(ring.view(), count, 0, slice_bytes / sizeof(float));
        for (const Ticket ticket : tickets) {
          ASSERT_EQ(ring.result(ticket), expected) << "rank " << ticket.rank;
        }
      }
    }
  }
}

TEST(EngineSum, SameBitsInAnyOrderOfArrivals) {
  Values first;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Ring ring(4, 2, small_slices(3));
    const std::vector<Ticket> tickets = ring.submit_all(op(0), sum_of(300));
    ring.run_shuffled(seed);
    ASSERT_TRUE(ring.all_ok(tickets));
    if (first.empty()) first = ring.result(tickets[0]);
    for (const Ticket ticket : tickets) ASSERT_EQ(ring.result(ticket), first);
  }
}

TEST(EngineSum, InPlaceAndApartGiveTheSame) {
  Ring ring(3, 2);
  const std::vector<Ticket> apart = ring.submit_all(op(0), sum_of(333));
  std::vector<Ticket> in_place;
  for (uint32_t rank = 0; rank < ring.ranks(); ++rank) {
    in_place.push_back(
        ring.submit(rank, op(1), sum_of(333), values_of(rank, 333, 0), Place::kInPlace));
  }
  ring.run();
  ASSERT_TRUE(ring.all_ok(apart));
  ASSERT_TRUE(ring.all_ok(in_place));
  for (const Ticket ticket : in_place) EXPECT_EQ(ring.result(ticket), ring.result(apart[0]));
}

TEST(EngineSum, SomeRanksInPlaceSomeApart) {
  Ring ring(2, 2);
  std::vector<Ticket> tickets;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    tickets.push_back(ring.submit(rank, op(0), sum_of(100), values_of(rank, 100),
                                  rank % 2 == 0 ? Place::kInPlace : Place::kApart));
  }
  ring.run();
  ASSERT_TRUE(ring.all_ok(tickets));
  for (const Ticket ticket : tickets) EXPECT_EQ(ring.result(ticket), ring.result(tickets[0]));
}

TEST(EngineSum, AnAverageIsDividedOnceAtTheEndByTheNumberOfRanks) {
  for (const uint32_t nodes : {1u, 2u, 3u}) {
    Ring ring(nodes, 3);
    std::vector<Ticket> sum, average;
    // Whole numbers: the sum is exact, so the quotient shows whether it was divided once, at the
    // end.
    for (uint32_t rank = 0; rank < ring.ranks(); ++rank) {
      const Values input(100, static_cast<float>(rank + 1));
      sum.push_back(ring.submit(rank, op(0), sum_of(100), input));
      average.push_back(ring.submit(rank, op(1), average_of(100), input));
    }
    ring.run();
    ASSERT_TRUE(ring.all_ok(sum));
    ASSERT_TRUE(ring.all_ok(average));
    const auto n = static_cast<float>(ring.ranks());
    const float total = n * (n + 1) / 2;
    for (const Ticket ticket : sum) EXPECT_EQ(ring.result(ticket), Values(100, total));
    for (const Ticket ticket : average) EXPECT_EQ(ring.result(ticket), Values(100, total / n));
    EXPECT_EQ(ring.outcome(average[0]).ranks_min, ring.ranks());
    EXPECT_EQ(ring.outcome(average[0]).ranks_max, ring.ranks());
    EXPECT_EQ(ring.outcome(average[0]).epoch, 1u);
  }
}

TEST(EngineSum, ABroadcastReachesEveryRankFromEveryRoot) {
  for (const Place place : {Place::kApart, Place::kInPlace}) {
    for (uint32_t root = 0; root < 6; ++root) {
      Ring ring(3, 2);
      const Values values = values_of(root, 150, 9);
      std::vector<Ticket> tickets;
      for (uint32_t rank = 0; rank < 6; ++rank) {
        tickets.push_back(ring.submit(rank, op(0), broadcast_of(150, root),
                                      rank == root ? values : Values(150, 5.0f), place));
      }
      ring.run();
      ASSERT_TRUE(ring.all_ok(tickets));
      // The root too: its output may be another buffer than its input.
      for (const Ticket ticket : tickets) EXPECT_EQ(ring.result(ticket), values);
      EXPECT_EQ(ring.outcome(tickets[0]).ranks_max, 1u);
    }
  }
}

TEST(EngineSum, ManyOpsAtOnceKeepTheirValuesApart) {
  Ring ring(3, 2, small_slices(3));
  std::vector<std::vector<Ticket>> ops;
  for (uint64_t k = 0; k < 12; ++k) ops.push_back(ring.submit_all(op(k), sum_of(40 + 10 * k)));
  ring.run_shuffled(5);
  for (uint64_t k = 0; k < ops.size(); ++k) {
    ASSERT_TRUE(ring.all_ok(ops[k]));
    const uint64_t count = 40 + 10 * k;
    const uint32_t slice_bytes = slice_bytes_for(sum_of(count), 3, small_slices().plan);
    const Values expected = ring_sum(ring.view(), count, k, slice_bytes / sizeof(float));
    for (const Ticket ticket : ops[k]) EXPECT_EQ(ring.result(ticket), expected);
  }
}

}  // namespace
}  // namespace gradring::core
