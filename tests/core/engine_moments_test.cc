// A node dies at every possible moment of a lively job. Whatever the moment, all who are left end
// every op with one verdict and the same bits, nothing is summed twice, what is missing is said,
// and in the end nothing is kept.

#include <algorithm>

#include "tests/core/engine_ring.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

constexpr uint64_t kOps = 6;
constexpr uint64_t kLate = 4;   // submitted by some before the fault and by others after it
constexpr uint64_t kAfter = 5;  // submitted by all after it

struct MomentsStory {
  uint32_t nodes = 3;
  uint32_t ranks_per_node = 1;
  std::string policy = "elastic";
  uint64_t seed = 1;
  uint64_t moment = 0;  // steps before the fault
  uint32_t faults = 1;
  bool deadly = true;  // else nobody dies: the view changes because a link was slow
};

class Moment {
 public:
  explicit Moment(const MomentsStory& story)
      : story_(story),
        random_(story.seed),
        ring_(story.nodes, story.ranks_per_node, small_slices(2 + story.seed % 3), story.policy),
        tickets_(kOps, std::vector<std::optional<Ticket>>(ring_.ranks())) {
    if (story.seed % 4 == 0) ring_.room = 4;
    ops_ = {sum_of(150), broadcast_of(90, static_cast<uint32_t>(story.seed % ring_.ranks())),
            barrier(),   average_of(70),
            sum_of(60),  sum_of(40)};
    views_.push_back(ring_.view());
  }

  // False: everything was over before the fault came.
  bool run() {
    for (uint32_t rank = 0; rank < ring_.ranks(); ++rank) {
      for (uint64_t k = 0; k < kLate; ++k) submit(rank, k);
      if (random_.below(2) == 0) submit(rank, kLate);
    }
    for (uint64_t i = 0; i < story_.moment; ++i) {
      if (!ring_.step(&random_)) return false;
    }
    for (uint32_t fault = 0; fault < story_.faults; ++fault) {
      if (fault > 0) some_steps(60);
      if (story_.deadly) kill_one();
      change_view();
    }
    for (uint32_t rank = 0; rank < ring_.ranks(); ++rank) {
      if (lives(rank)) submit(rank, kLate);
      if (lives(rank)) submit(rank, kAfter);
    }
    ring_.run_shuffled(random_.next());
    return true;
  }

  void check() {
    for (uint64_t k = 0; k < kOps; ++k) {
      SCOPED_TRACE(testing::Message() << "op " << k);
      check_op(k);
    }
    EXPECT_EQ(ring_.failures(), 0u);
    for (uint32_t rank = 0; rank < ring_.ranks(); ++rank) {
      if (lives(rank)) ring_.leave(rank);
    }
    for (uint32_t node = 0; node < ring_.nodes(); ++node) {
      if (!ring_.alive(node)) continue;
      EXPECT_EQ(ring_.engine(node).open_ops(), 0u) << node;
      EXPECT_EQ(ring_.engine(node).kept_ops(), 0u) << node;
      EXPECT_EQ(ring_.copies(node), 0u) << node;
      EXPECT_EQ(ring_.engine(node).slots_in_use(), 0u) << node;
      EXPECT_TRUE(ring_.engine(node).drained()) << node;
    }
  }

 private:
  bool lives(uint32_t rank) const { return ring_.alive(views_.front().host_of(rank)); }

  void submit(uint32_t rank, uint64_t k) {
    if (tickets_[k][rank]) return;
    const Signature& signature = ops_[k];
    const bool in_place = (story_.seed + rank + k) % 2 == 0;
    tickets_[k][rank] = ring_.submit(rank, op(k), signature, values_of(rank, signature.count, k),
                                     in_place ? Place::kInPlace : Place::kApart);
  }

  void some_steps(uint64_t most) {
    for (uint64_t i = random_.below(most + 1); i > 0; --i) ring_.step(&random_);
  }

  void kill_one() {
    std::vector<uint32_t> living;
    for (uint32_t node = 0; node < ring_.nodes(); ++node) {
      if (ring_.alive(node)) living.push_back(node);
    }
    const Wake wakes[] = {Wake::kArrives, Wake::kLost, Wake::kTorn};
    ring_.crash(living[random_.below(living.size())], wakes[random_.below(3)]);
  }

  // Each node stops and begins anew at a moment of its own, and the others go on meanwhile.
  void change_view() {
    std::vector<uint32_t> living;
    for (uint32_t node = 0; node < ring_.nodes(); ++node) {
      if (ring_.alive(node)) living.push_back(node);
    }
    const auto each_in_some_order = [&](const auto& act) {
      for (size_t i = living.size(); i > 1; --i) {
        std::swap(living[i - 1], living[random_.below(i)]);
      }
      for (const uint32_t node : living) {
        some_steps(6);
        act(node);
        for (uint32_t rank = 0; rank < ring_.ranks(); ++rank) {
          if (lives(rank) && random_.below(8) == 0) submit(rank, kLate);
        }
      }
    };
    each_in_some_order([this](uint32_t node) { ring_.freeze(node); });
    const Proposal proposal = ring_.decide();
    each_in_some_order([&](uint32_t node) { ring_.adopt(node, proposal); });
    views_.push_back(proposal.view);
  }

  void check_op(uint64_t k) {
    std::optional<Ticket> first;
    for (uint32_t rank = 0; rank < ring_.ranks(); ++rank) {
      if (!lives(rank)) continue;
      const Ticket ticket = *tickets_[k][rank];
      ASSERT_TRUE(ring_.ended(ticket)) << "rank " << rank << " waits for ever";
      if (!first) first = ticket;
      const Outcome one = ring_.outcome(*first);
      const Outcome other = ring_.outcome(ticket);
      ASSERT_EQ(one.verdict, other.verdict) << "rank " << rank;
      if (one.verdict == Verdict::kFailed) {
        EXPECT_EQ(one.failure, other.failure);
        continue;
      }
      EXPECT_EQ(one.ranks_min, other.ranks_min);
      EXPECT_EQ(one.ranks_max, other.ranks_max);
      if (ops_[k].count > 0) {
        ASSERT_EQ(ring_.result(*first), ring_.result(ticket)) << rank;
      }
    }
    check_verdict(k, *first);
  }

  void check_verdict(uint64_t k, Ticket ticket) {
    const Outcome outcome = ring_.outcome(ticket);
    const bool elastic = story_.policy != "fail";
    if (outcome.verdict == Verdict::kFailed) {
      const bool root_died = ops_[k].collective == Collective::kBroadcast && !lives(ops_[k].root);
      EXPECT_TRUE(!elastic || root_died) << describe(outcome.failure);
      EXPECT_EQ(outcome.failure.cause, elastic ? Cause::kRootLost : Cause::kPeerLost);
      EXPECT_TRUE(story_.deadly);
      return;
    }
    if (!elastic) {
      EXPECT_EQ(outcome.verdict, Verdict::kOk);
    }
    if (ops_[k].collective == Collective::kBroadcast) {
      EXPECT_EQ(outcome.verdict, Verdict::kOk);
      EXPECT_EQ(ring_.result(ticket), values_of(ops_[k].root, ops_[k].count, k));
      return;
    }
    // Who is missing in an op is missing since the view in which somebody first submitted it.
    const bool shrunk = outcome.verdict == Verdict::kOkShrunk;
    if (k != kAfter && k != kLate) {
      EXPECT_EQ(shrunk, outcome.ranks_min < ring_.ranks());
    }
    if (k == kAfter) {
      EXPECT_EQ(outcome.verdict, Verdict::kOk);
    }
    if (!story_.deadly) {
      EXPECT_EQ(outcome.ranks_min, ring_.ranks());
    }
    EXPECT_LE(outcome.ranks_max, ring_.ranks());
    if (ops_[k].count > 0) check_sum(k, ring_.result(ticket), outcome);
  }

  // Slice by slice it must be the sum of all members of one of the views.
  void check_sum(uint64_t k, const Values& result, const Outcome& outcome) const {
    bool matches = false;
    for (const View& cut_for : views_) {
      const auto n = static_cast<uint32_t>(cut_for.members.size());
      const uint32_t floats = slice_bytes_for(ops_[k], n, small_slices().plan) / sizeof(float);
      matches = matches || matches_cut(k, result, outcome, floats);
    }
    EXPECT_TRUE(matches) << "is not a sum of the members' contributions";
  }

  bool matches_cut(uint64_t k, const Values& result, const Outcome& outcome,
                   uint32_t floats) const {
    std::vector<Values> sums;
    for (const View& view : views_) {
      sums.push_back(ring_sum(view, result.size(), k, floats));
      if (ops_[k].op != ReduceOp::kAverage) continue;
      for (float& value : sums.back()) value /= static_cast<float>(view.size);
    }
    uint32_t least = kNoRank;
    for (size_t begin = 0; begin < result.size(); begin += floats) {
      const size_t end = std::min<size_t>(begin + floats, result.size());
      const auto at = [](const Values& values, size_t i) {
        return values.begin() + static_cast<std::ptrdiff_t>(i);
      };
      const auto found = std::find_if(sums.begin(), sums.end(), [&](const Values& sum) {
        return std::equal(at(sum, begin), at(sum, end), at(result, begin));
      });
      if (found == sums.end()) return false;
      least = std::min(least, views_[static_cast<size_t>(found - sums.begin())].size);
    }
    return least == outcome.ranks_min;
  }

  const MomentsStory story_;
  Random random_;
  Ring ring_;
  std::vector<Signature> ops_;
  std::vector<std::vector<std::optional<Ticket>>> tickets_;  // by op, by rank
  std::vector<View> views_;
};

// Tells the story for every moment until the job is over before the fault comes.
void tell_every_moment(MomentsStory story, uint64_t stride = 1) {
  for (story.moment = 0;; story.moment += stride) {
    SCOPED_TRACE(testing::Message() << story.nodes << " nodes, policy " << story.policy << ", seed "
                                    << story.seed << ", moment " << story.moment);
    Moment moment(story);
    if (!moment.run()) break;
    moment.check();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(story.moment, 50u) << "too short to be of interest";
}

void tell_for_seeds(MomentsStory story, uint64_t seeds, uint64_t stride = 1) {
  seeds = fewer_if_sanitized(seeds);
  if (kSanitized) stride *= 2;
  for (story.seed = 1; story.seed <= seeds; ++story.seed) {
    tell_every_moment(story, stride);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(EngineMoments, ANodeOfThreeDies) { tell_for_seeds({3, 1, "elastic"}, 16); }

TEST(EngineMoments, ANodeOfThreeDiesAndTheJobFails) { tell_for_seeds({3, 1, "fail"}, 12); }

TEST(EngineMoments, ANodeOfTwoDies) { tell_for_seeds({2, 2, "elastic"}, 12); }

TEST(EngineMoments, ANodeOfFourWithTwoRanksEachDies) { tell_for_seeds({4, 2, "elastic"}, 12, 3); }

TEST(EngineMoments, TwoOfFourDieOneAfterTheOther) {
  MomentsStory story{4, 1, "elastic"};
  story.faults = 2;
  tell_for_seeds(story, 12, 3);
  story.policy = "fail";
  tell_for_seeds(story, 12, 3);
}

TEST(EngineMoments, ThreeOfFourDieOneAfterTheOther) {
  MomentsStory story{4, 1, "elastic"};
  story.faults = 3;
  tell_for_seeds(story, 24, 5);
}

TEST(EngineMoments, ASlowLinkCostsNothing) {
  for (const char* policy : {"fail", "elastic"}) {
    MomentsStory story{3, 2, policy};
    story.deadly = false;
    story.faults = 2;
    tell_for_seeds(story, 12, 2);
  }
}

}  // namespace
}  // namespace gradring::core
