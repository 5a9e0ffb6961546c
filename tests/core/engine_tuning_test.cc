// Engines whose view has a table: all of them plan alike, and a new table finds what is under way.

#include "tests/core/engine_ring.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

// Slices of 64 bytes at least, of 256 at most, and small sums directly.
EngineOptions options() {
  EngineOptions options = small_slices();
  options.plan.slice_bytes_max = 256;
  options.plan.direct_members_max = 8;
  options.plan.direct_whole_max = 64;
  options.plan.direct_part_max = 256;
  return options;
}

Tuning all_sizes(const Choice& settled, std::optional<Choice> tried = {}) {
  Tuning tuning;
  for (uint32_t c = 0; c < kSizeClasses; ++c) tuning.set({c, settled, tried});
  return tuning;
}

// The same nodes, with another table: as a view change decides it.
void retune(Ring* ring, const Tuning& tuning) {
  for (uint32_t node = 0; node < ring->nodes(); ++node) ring->freeze(node);
  Proposal proposal = ring->decide();
  proposal.view.tuning = tuning;
  for (uint32_t node = 0; node < ring->nodes(); ++node) ring->adopt(node, proposal);
}

constexpr Choice kRingOf64{Choice::Way::kRing, 64};
constexpr Choice kRingOf128{Choice::Way::kRing, 128};

TEST(EngineTuning, SlicesAreAsTheTableSays) {
  Ring ring(3, 1, options());
  for (const Choice choice : {kRingOf64, kRingOf128, Choice{Choice::Way::kRing, 0}}) {
    retune(&ring, all_sizes(choice));
    const uint64_t number = ring.engine(0).view().epoch;
    const auto tickets = ring.submit_all(op(number), sum_of(500));
    for (uint32_t node = 0; node < 3; ++node) {
      const Op* planned = ring.engine(node).find(op(number));
      ASSERT_NE(planned, nullptr);
      if (choice.slice_bytes != 0) {
        EXPECT_EQ(planned->plan.slice_bytes, choice.slice_bytes);
      }
      EXPECT_EQ(planned->plan.direct, Direct::kNo);
    }
    const uint32_t slice_bytes = ring.engine(0).find(op(number))->plan.slice_bytes;
    ring.run();
    ASSERT_TRUE(ring.all_ok(tickets));
    const Values expected = ring_sum(ring.view(), 500, number, slice_bytes / sizeof(float));
    for (const Ticket ticket : tickets) EXPECT_EQ(ring.result(ticket), expected);
  }
}

TEST(EngineTuning, TheWayIsAsTheTableSays) {
  Ring ring(3, 2, options());
  for (const Choice::Way way : {Choice::Way::kWhole, Choice::Way::kParts, Choice::Way::kRing}) {
    retune(&ring, all_sizes({way, 0}));
    const uint64_t number = 10 * ring.engine(0).view().epoch;
    ring.submit_all(op(number), barrier());
    ring.run();
    const uint64_t before = ring.engine(0).counters().slices_sent;
    const auto tickets = ring.submit_all(op(number + 1), sum_of(48));
    const Direct direct = ring.engine(0).find(op(number + 1))->plan.direct;
    const uint32_t slice_bytes = ring.engine(0).find(op(number + 1))->plan.slice_bytes;
    ring.run();
    ASSERT_TRUE(ring.all_ok(tickets));
    const bool whole = way == Choice::Way::kWhole;
    EXPECT_EQ(direct, whole                        ? Direct::kWhole
                      : way == Choice::Way::kParts ? Direct::kParts
                                                   : Direct::kNo);
    // Then its data went with READY.
    EXPECT_EQ(ring.engine(0).counters().slices_sent == before, whole);
    const Values expected = ring_sum(ring.view(), 48, number + 1, slice_bytes / sizeof(float));
    for (const Ticket ticket : tickets) EXPECT_EQ(ring.result(ticket), expected);
  }
}

TEST(EngineTuning, BothOfWhatIsComparedGoSideBySide) {
  Ring ring(4, 1, options());
  retune(&ring, all_sizes(kRingOf128, Choice{Choice::Way::kParts, 0}));
  ring.submit_all(op(1000), barrier());
  ring.run();
  std::vector<std::vector<Ticket>> all;
  for (uint64_t i = 0; i < 20; ++i) all.push_back(ring.submit_all(op(i), sum_of(200)));
  std::map<Direct, int> ways;
  for (uint64_t i = 0; i < 20; ++i) {
    const Direct direct = ring.engine(0).find(op(i))->plan.direct;
    ++ways[direct];
    for (uint32_t node = 1; node < 4; ++node) {
      EXPECT_EQ(ring.engine(node).find(op(i))->plan.direct, direct) << "op " << i;
    }
  }
  EXPECT_GT(ways[Direct::kNo], 3);
  EXPECT_GT(ways[Direct::kParts], 3);
  ring.run_shuffled(7);
  for (const auto& tickets : all) EXPECT_TRUE(ring.all_ok(tickets));
}

// Wherever the new table comes: slices that somebody holds stay cut as they are, all else is cut
// anew, and every sum is right.
TEST(EngineTuning, ANewTableInTheMidstLosesNothing) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(60); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Ring ring(3, 1, options());
    Random random(seed);
    std::vector<Ticket> tickets;
    for (uint64_t i = 0; i < 6; ++i) {
      for (const Ticket ticket : ring.submit_all(op(i), sum_of(16 + 80 * i))) {
        tickets.push_back(ticket);
      }
    }
    static constexpr Choice kTables[] = {kRingOf64, {}, {Choice::Way::kWhole, 0}, kRingOf128};
    for (const Choice& choice : kTables) {
      const uint64_t steps = random.below(120);
      for (uint64_t i = 0; i < steps && ring.step(&random); ++i) continue;
      retune(&ring, all_sizes(choice));
    }
    ring.run();
    ASSERT_TRUE(ring.all_ok(tickets));
    for (size_t i = 0; i < tickets.size(); ++i) {
      const Ticket first = tickets[i / 3 * 3];
      EXPECT_EQ(ring.result(tickets[i]), ring.result(first)) << "the same bits on all ranks";
    }
  }
}

}  // namespace
}  // namespace gradring::core
