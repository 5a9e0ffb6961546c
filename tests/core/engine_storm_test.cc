// Whole programs of trainers, each rank at its own pace, in orders drawn from a seed: every op ends
// with one verdict on all ranks, with the same bits where it ended well, and in the end all memory
// is home.

#include <algorithm>

#include "tests/core/engine_ring.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

class Program {
 public:
  explicit Program(uint64_t seed)
      : random_(seed),
        ring_(static_cast<uint32_t>(1 + random_.below(5)),
              static_cast<uint32_t>(1 + random_.below(3)),
              small_slices(static_cast<uint32_t>(2 + random_.below(3)))),
        next_(ring_.ranks(), 0) {
    for (uint64_t k = 0; k < 12; ++k) {
      ops_.push_back(any_signature());
      tickets_.emplace_back(ring_.ranks());
      // One op in six is submitted differently by one rank.
      odd_.push_back(random_.below(6) == 0 ? static_cast<uint32_t>(random_.below(ring_.ranks()))
                                           : kNoRank);
    }
  }

  void run() {
    while (true) {
      const auto busy = static_cast<size_t>(
          std::count_if(next_.begin(), next_.end(), [this](size_t n) { return n < ops_.size(); }));
      if (busy == 0) break;
      const auto rank = static_cast<uint32_t>(random_.below(ring_.ranks()));
      if (next_[rank] < ops_.size()) submit(rank);
      const auto from = static_cast<uint32_t>(random_.below(ring_.nodes()));
      const auto to = static_cast<uint32_t>(random_.below(ring_.nodes()));
      if (from != to) ring_.deliver(from, to);
      ring_.pump(to, 1);
    }
    ring_.run_shuffled(random_.next());
  }

  void check() {
    for (size_t k = 0; k < ops_.size(); ++k) {
      const bool alone = ring_.ranks() == 1;  // one rank cannot differ from itself
      const bool good = odd_[k] == kNoRank || alone;
      for (const Ticket ticket : tickets_[k]) {
        const Outcome outcome = ring_.outcome(ticket);
        ASSERT_EQ(outcome.verdict, good ? Verdict::kOk : Verdict::kFailed) << "op " << k;
        if (good && ops_[k].collective != Collective::kBarrier) {
          ASSERT_EQ(ring_.result(ticket), ring_.result(tickets_[k][0])) << "op " << k;
        }
        if (!good) {
          ASSERT_EQ(outcome.failure.cause, Cause::kMismatch);
        }
      }
    }
    EXPECT_EQ(ring_.failures(), 0u);
    for (uint32_t rank = 0; rank < ring_.ranks(); ++rank) ring_.leave(rank);
    for (uint32_t node = 0; node < ring_.nodes(); ++node) {
      EXPECT_EQ(ring_.engine(node).open_ops(), 0u);
      EXPECT_EQ(ring_.engine(node).slots_in_use(), 0u);
      EXPECT_TRUE(ring_.engine(node).drained());
    }
  }

 private:
  Signature any_signature() {
    const uint64_t count = random_.below(200);
    switch (random_.below(4)) {
      case 0:
        return broadcast_of(count, static_cast<uint32_t>(random_.below(ring_.ranks())));
      case 1:
        return barrier();
      case 2:
        return average_of(count);
      default:
        return sum_of(count);
    }
  }

  void submit(uint32_t rank) {
    const size_t k = next_[rank]++;
    Signature signature = ops_[k];
    if (odd_[k] == rank && ring_.ranks() > 1) {
      signature = signature == sum_of(3) ? sum_of(4) : sum_of(3);
    }
    // Half of the ops are named, and the names are used again.
    const OpKey key = k % 2 == 0 ? op(k / 2) : OpKey{1 + k % 3, k / 6};
    tickets_[k][rank] = ring_.submit(rank, key, signature, values_of(rank, signature.count, k),
                                     random_.below(2) == 0 ? Place::kApart : Place::kInPlace);
  }

  Random random_;
  Ring ring_;
  std::vector<size_t> next_;  // by rank: the op it submits next
  std::vector<Signature> ops_;
  std::vector<uint32_t> odd_;
  std::vector<std::vector<Ticket>> tickets_;  // by op, by rank
};

TEST(EngineStorm, EveryOpEndsWithOneVerdictAndTheSameBits) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(200); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Program program(seed);
    program.run();
    program.check();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace gradring::core
