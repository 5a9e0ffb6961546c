// Inputs that come while their op is under way.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;

constexpr uint64_t kFloats = 1000;  // slices are of 64 at most
constexpr uint64_t kBytes = kFloats * sizeof(float);

// One ring of two nodes; of each op rank 1's input comes, and all others' are there.
class EngineInputs : public testing::Test {
 protected:
  Ring& ring(uint32_t ranks_per_node = 1, const std::string& policy = "fail",
             const EngineOptions& options = small_slices()) {
    ring_.emplace(2, ranks_per_node, options, policy);
    return *ring_;
  }
  std::vector<Ticket> submit(OpKey key, uint64_t here = 0, uint64_t floats = kFloats) {
    std::vector<Ticket> tickets;
    for (uint32_t rank = 0; rank < ring_->ranks(); ++rank) {
      ring_->input_here = rank == 1 ? here : Submission::kAllHere;
      tickets.push_back(ring_->submit(rank, key, sum_of(floats), values_of(rank, floats)));
    }
    ring_->input_here = Submission::kAllHere;
    return tickets;
  }
  void come(uint64_t bytes, OpKey key = op(0)) {
    ring_->engine_of_rank(1).input_came(1, key, bytes);
  }
  uint32_t final_slices(uint32_t node) { return ring_->engine(node).find(op(0))->slices_held; }
  Values sum() const {
    const uint32_t floats =
        slice_bytes_for(sum_of(kFloats), 2, small_slices().plan) / sizeof(float);
    return ring_sum(ring_->view(), kFloats, 0, floats);
  }

  std::optional<Ring> ring_;
};

TEST_F(EngineInputs, SlicesGoRoundAsTheyAreThere) {
  Ring& ring = this->ring();
  const std::vector<Ticket> tickets = submit(op(0));
  ring.run();
  EXPECT_EQ(ring.engine(0).find(op(0))->state, OpState::kMoving) << "it counts as submitted";
  EXPECT_EQ(final_slices(0) + final_slices(1), 0u);

  come(kBytes / 2);
  ring.run();
  const uint32_t slices = ring.engine(0).find(op(0))->plan.slices;
  for (const uint32_t node : {0u, 1u}) {
    EXPECT_GE(final_slices(node), slices / 2 - 1);
    EXPECT_LE(final_slices(node), slices / 2);
  }

  come(kBytes - 1);
  ring.run();
  EXPECT_EQ(final_slices(1), slices - 1) << "the last one takes all";
  come(kBytes);
  ring.run();
  ASSERT_TRUE(ring.all_ok(tickets));
  for (const Ticket ticket : tickets) EXPECT_EQ(ring.result(ticket), sum());
}

TEST_F(EngineInputs, InAnyOrderOfArrivals) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Ring& ring = this->ring(1 + seed % 3, "fail", small_slices(2 + seed % 2));
    Random random(seed);
    const std::vector<Ticket> tickets = submit(op(0), random.below(kBytes));
    for (uint64_t here = 0; here < kBytes; here += 1 + random.below(kBytes / 4)) {
      for (uint64_t step = random.below(30); step > 0 && ring.step(&random); --step) continue;
      come(here);
    }
    come(kBytes);
    ring.run_shuffled(seed);
    ASSERT_TRUE(ring.all_ok(tickets));
    ASSERT_EQ(ring.result(tickets[0]), sum());
  }
}

TEST_F(EngineInputs, AreNotSentBeforeTheyAreThere) {
  EngineOptions options = small_slices();
  options.plan.direct_members_max = 8;
  options.plan.direct_whole_max = options.plan.direct_part_max = 256;
  Ring& ring = this->ring(1, "fail", options);
  const std::vector<Ticket> tickets = submit(op(0), 0, 16);
  ring.run();
  EXPECT_FALSE(ring.ended(tickets[0]));
  come(16 * sizeof(float));
  ring.run();
  ASSERT_TRUE(ring.all_ok(tickets));
  EXPECT_EQ(ring.result(tickets[0])[3], values_of(0, 16)[3] + values_of(1, 16)[3]);
}

TEST_F(EngineInputs, OfARankThatLeavesNeverCome) {
  Ring& ring = this->ring();
  const std::vector<Ticket> tickets = submit(op(0), kBytes / 2);
  ring.run();
  ring.leave(1);
  ASSERT_EQ(ring.absences(1).size(), 1u);
  const Absence& absence = ring.absences(1)[0];
  EXPECT_TRUE(absence.unfinished);
  EXPECT_EQ(absence.rank, std::optional<uint32_t>(1));
  EXPECT_THAT(absence.failure.blame.evidence,
              HasSubstr("left the job before the whole input of op 0"));
  ring.lose_rank(1);
  ring.change_view();
  ring.run();
  EXPECT_EQ(ring.outcome(tickets[0]).verdict, Verdict::kFailed);
}

TEST_F(EngineInputs, OfARankThatLeftAndWereThereCount) {
  Ring& ring = this->ring();
  const std::vector<Ticket> tickets = submit(op(0), kBytes / 2);
  come(kBytes);
  ring.leave(1);
  ring.run();
  EXPECT_EQ(ring.absences(), 0u);
  EXPECT_TRUE(ring.all_ok(tickets));
}

// As where they lie on a GPU that is lost: whatever was there, nothing more is made of it.
TEST_F(EngineInputs, ThatAreLostAreWaitedForUntilTheNextEpochAndCountNoMore) {
  Ring& ring = this->ring(2, "elastic");
  const std::vector<Ticket> tickets = submit(op(0), kBytes);
  ring.engine_of_rank(1).input_lost(1, op(0));
  ring.engine_of_rank(1).input_lost(1, op(7));  // is none
  ring.run();
  EXPECT_EQ(final_slices(0) + final_slices(1), 0u);
  ring.lose_rank(1);
  ASSERT_EQ(ring.absences(0).size(), 1u);
  EXPECT_TRUE(ring.absences(0)[0].unfinished);
  ring.change_view();
  ring.run();
  for (const uint32_t rank : {0u, 2u, 3u}) {
    const Outcome outcome = ring.outcome(tickets[rank]);
    EXPECT_EQ(outcome.verdict, Verdict::kOkShrunk);
    EXPECT_EQ(outcome.ranks_max, 3u);
    EXPECT_EQ(ring.result(tickets[rank]), ring.result(tickets[0]));
  }
  EXPECT_EQ(ring.engine(0).open_ops(), 0u);
}

// Its node goes on with its other rank, and what is not final yet is summed without the dead one.
TEST_F(EngineInputs, OfADeadRankCountWhereTheyAreFinal) {
  for (const bool any_final : {false, true}) {
    Ring& ring = this->ring(2, "elastic");
    const std::vector<Ticket> tickets = submit(op(0), any_final ? kBytes / 2 : 0);
    ring.run();
    ring.lose_rank(1);
    ASSERT_EQ(ring.absences(0).size(), 1u);
    ring.change_view();
    ring.run();
    EXPECT_TRUE(ring.ended(tickets[1]));
    for (const uint32_t rank : {0u, 2u, 3u}) {
      const Outcome outcome = ring.outcome(tickets[rank]);
      EXPECT_EQ(outcome.verdict, Verdict::kOkShrunk);
      EXPECT_EQ(outcome.ranks_min, 3u);
      EXPECT_EQ(outcome.ranks_max, any_final ? 4u : 3u);
      EXPECT_EQ(ring.result(tickets[rank]), ring.result(tickets[0]));
    }
    EXPECT_EQ(ring.engine(0).open_ops(), 0u);
  }
}

TEST_F(EngineInputs, ThatDoNotComeAreWhatADeadlineNames) {
  Ring& ring = this->ring();
  submit(op(0), kBytes / 2);
  ring.run();
  ring.now += 1800 * kSecond;
  for (const uint32_t node : {0u, 1u}) ring.engine(node).tick(ring.now);
  EXPECT_EQ(ring.failures(0).size(), 0u) << "the other node knows better";
  ASSERT_EQ(ring.failures(1).size(), 1u);
  EXPECT_EQ(ring.failures(1)[0].blame.rank, 1u);
  EXPECT_THAT(ring.failures(1)[0].blame.evidence,
              HasSubstr("of its input only 2000 of 4000 bytes have come"));
}

// As where inputs of several ranks came as their sum, and that is made anew without one of them.
TEST_F(EngineInputs, MayHaveToComeAgainInTheNextEpoch) {
  Ring& ring = this->ring(2, "elastic");
  const std::vector<Ticket> tickets = submit(op(0), kBytes / 2);
  ring.run();
  const uint32_t before = final_slices(0);
  ring.lose_rank(1);
  for (const uint32_t node : {0u, 1u}) ring.freeze(node);
  ring.engine(0).inputs_come_again(op(0));
  const Proposal proposal = ring.decide();
  for (const uint32_t node : {0u, 1u}) ring.adopt(node, proposal);
  ring.run();
  EXPECT_EQ(final_slices(0), before) << "rank 0's input has not come again";
  ring.engine(0).input_came(0, op(0), Submission::kAllHere);
  ring.run();
  for (const uint32_t rank : {0u, 2u, 3u}) {
    EXPECT_EQ(ring.outcome(tickets[rank]).verdict, Verdict::kOkShrunk);
    EXPECT_EQ(ring.result(tickets[rank]), ring.result(tickets[0]));
  }
  ring.engine(0).freeze();
  ring.engine(0).inputs_come_again(op(7));  // of which nothing is known
}

// What a dead rank had brought whole counts, and goes on to count while it comes again, whatever
// view follows; but not where its GPU is lost, from which nothing comes.
TEST_F(EngineInputs, OfADeadRankThatComeAgainCountInEachViewThatFollows) {
  for (const bool readable : {true, false}) {
    SCOPED_TRACE(readable);
    Ring& ring = this->ring(2, "elastic");
    std::vector<Ticket> tickets;
    for (const uint32_t rank : {0u, 1u, 2u}) {
      tickets.push_back(ring.submit(rank, op(0), sum_of(kFloats), values_of(rank, kFloats)));
    }
    ring.run();
    ring.lose_rank(1, readable ? "" : "GPU-1234");
    for (const uint32_t node : {0u, 1u}) ring.freeze(node);
    ring.engine(0).inputs_come_again(op(0));
    const Proposal proposal = ring.decide();
    for (const uint32_t node : {0u, 1u}) ring.adopt(node, proposal);
    ring.change_view();
    tickets.push_back(ring.submit(3, op(0), sum_of(kFloats), values_of(3, kFloats)));
    ring.run();
    EXPECT_FALSE(ring.ended(tickets[3]));
    ring.engine(0).input_came(0, op(0), Submission::kAllHere);
    if (readable) ring.engine(0).input_came(1, op(0), Submission::kAllHere);
    ring.run();
    for (const uint32_t rank : {0u, 2u, 3u}) {
      const Outcome outcome = ring.outcome(tickets[rank]);
      EXPECT_EQ(outcome.ranks_min, readable ? 4u : 3u);
      const float its = readable ? values_of(1, 4)[3] : 0;
      EXPECT_NEAR(ring.result(tickets[rank])[3],
                  values_of(0, 4)[3] + its + values_of(2, 4)[3] + values_of(3, 4)[3], 1e-3);
    }
  }
}

TEST_F(EngineInputs, ThatWereToComeAgainAndAreLostAreWaitedForNoMore) {
  Ring& ring = this->ring(2, "elastic");
  std::vector<Ticket> tickets;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    tickets.push_back(ring.submit(rank, op(0), sum_of(kFloats), values_of(rank, kFloats)));
  }
  ring.run();
  for (const uint32_t node : {0u, 1u}) ring.freeze(node);
  ring.engine(0).inputs_come_again(op(0));
  const Proposal proposal = ring.decide();
  for (const uint32_t node : {0u, 1u}) ring.adopt(node, proposal);
  ring.engine(0).input_lost(1, op(0));
  ring.lose_rank(1);
  ASSERT_EQ(ring.absences(0).size(), 1u);
  EXPECT_TRUE(ring.absences(0)[0].unfinished);
  ring.change_view();
  ring.engine(0).input_came(0, op(0), Submission::kAllHere);
  tickets.push_back(ring.submit(3, op(0), sum_of(kFloats), values_of(3, kFloats)));
  ring.run();
  for (const uint32_t rank : {0u, 2u, 3u}) EXPECT_EQ(ring.outcome(tickets[rank]).ranks_max, 3u);
}

}  // namespace
}  // namespace gradring::core
