// What a trainer may ask for, and what it is told when it may not.

#include <gmock/gmock.h>

#include "tests/core/engine_ring.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;

TEST(EngineSubmit, TwiceIsRefusedWhileTheOpIsOpen) {
  Ring ring(2);
  const Ticket first = ring.submit(0, op(0), sum_of(10), values_of(0, 10));
  const Status status = ring.refused(0, op(0), sum_of(10));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "rank 0 submitted op 0 twice");
  EXPECT_FALSE(ring.ended(first)) << "the first submission is untouched";
  const Ticket other = ring.submit(1, op(0), sum_of(10), values_of(1, 10));
  ring.run();
  EXPECT_TRUE(ring.all_ok({first, other}));
  EXPECT_EQ(ring.engine(0).submitted(0), 1u);
}

TEST(EngineSubmit, TwiceIsRefusedAfterTheOpHasEnded) {
  Ring ring(2);
  ring.submit_all(op(0), sum_of(10));
  ring.run();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(ring.refused(rank, op(0), sum_of(10)).message(), HasSubstr("op 0 twice"));
  }
  EXPECT_EQ(ring.engine(0).open_ops(), 0u);
}

TEST(EngineSubmit, TwiceIsRefusedForAnOpThatFailed) {
  Ring ring(2, 2);
  ring.submit(0, op(0), sum_of(1));
  ring.submit(1, op(0), sum_of(2));  // all of a are told, b is not here yet
  ring.run();
  EXPECT_THAT(ring.refused(0, op(0), sum_of(1)).message(), HasSubstr("twice"));
  ring.submit(2, op(0), sum_of(1));
  EXPECT_THAT(ring.refused(2, op(0), sum_of(1)).message(), HasSubstr("twice"))
      << "rank 3 has not been told, so the op is remembered with its submissions";
  ring.submit(3, op(0), sum_of(1));
  EXPECT_THAT(ring.refused(3, op(0), sum_of(1)).message(), HasSubstr("twice"));
}

TEST(EngineSubmit, NamedOpsAreMatchedByNameInAnyOrder) {
  Ring ring(2);
  const OpKey weight{11, 0}, bias{22, 0}, weight_again{11, 1};
  std::vector<Ticket> tickets;
  for (const OpKey key : {weight, bias, op(0), weight_again}) {
    tickets.push_back(ring.submit(0, key, sum_of(50), values_of(0, 50)));
  }
  for (const OpKey key : {op(0), weight_again, bias, weight}) {
    tickets.push_back(ring.submit(1, key, sum_of(50), values_of(1, 50)));
  }
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
  EXPECT_THAT(ring.refused(0, weight, sum_of(50)).message(), HasSubstr("twice"));
}

TEST(EngineSubmit, TooManyOpenOpsAreRefusedInWords) {
  EngineOptions options = small_slices();
  options.open_ops_per_rank_max = 3;
  Ring ring(2, 1, options);
  for (uint64_t k = 0; k < 3; ++k) ring.submit(0, op(k), sum_of(10));
  const Status status = ring.refused(0, op(3), sum_of(10));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 has 3 ops open"));
  EXPECT_EQ(ring.engine(0).open_ops(), 3u) << "nothing is kept of it";

  // The bound is the rank's own: b is free to submit, and when one op ends a may submit again.
  const Ticket other = ring.submit(1, op(0), sum_of(10));
  ring.run();
  EXPECT_TRUE(ring.all_ok({other}));
  const Ticket now_it_fits = ring.submit(0, op(3), sum_of(10));
  ring.submit(1, op(3), sum_of(10));
  ring.run();
  EXPECT_TRUE(ring.all_ok({now_it_fits}));
}

TEST(EngineSubmit, OpsWithPlacesForManyRanksAreFewer) {
  EngineOptions options = small_slices();
  options.open_ops_per_rank_max = 4;
  Ring ring(1, 32, options);
  ring.submit(0, op(0), sum_of(10));
  ring.submit(1, op(1), sum_of(10));
  const Status status = ring.refused(2, op(2), sum_of(10));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("has 2 ops open on this node"));
  std::vector<Ticket> tickets;
  for (uint32_t rank = 1; rank < 32; ++rank)
    tickets.push_back(ring.submit(rank, op(0), sum_of(10)));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets)) << "what is open already has room for all";
  ring.submit(2, op(2), sum_of(10));
}

TEST(EngineSubmit, FailedOpsDoNotCountAsOpen) {
  EngineOptions options = small_slices();
  options.open_ops_per_rank_max = 1;
  Ring ring(2, 2, options);
  ring.submit(0, op(0), sum_of(1));
  ring.submit(1, op(0), sum_of(2));  // mismatch: both are told
  ring.run();
  for (uint64_t k = 1; k < 4; ++k) {
    const std::vector<Ticket> tickets = ring.submit_all(op(k), sum_of(10));
    ring.run();
    EXPECT_TRUE(ring.all_ok(tickets));
  }
  ring.submit(2, op(0), sum_of(1));  // told at once
  const std::vector<Ticket> tickets = ring.submit_all(op(4), sum_of(10));
  ring.run();
  EXPECT_TRUE(ring.all_ok(tickets));
}

TEST(EngineSubmit, TooManyNamesAreRefusedInWords) {
  EngineOptions options = small_slices();
  options.names_max = 3;
  Ring ring(2, 1, options);
  for (const uint64_t space : {1, 2, 3, 5, 6, 7, 0}) {  // what has no name goes on
    const std::vector<Ticket> tickets = ring.submit_all({space, 0}, sum_of(10));
    ring.run();
    EXPECT_TRUE(ring.all_ok(tickets)) << space;
  }
  const Status status = ring.refused(0, {4, 0}, sum_of(10));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("more than 3 op names"));
  EXPECT_EQ(ring.engine(0).open_ops(), 0u);
  const std::vector<Ticket> known = ring.submit_all({3, 1}, sum_of(10));
  ring.run();
  EXPECT_TRUE(ring.all_ok(known)) << "names in use go on";
}

TEST(EngineSubmit, NamesInUseAreNotGaps) {
  EngineOptions options = small_slices();
  options.open_ops_per_rank_max = 3;
  Ring ring(2, 1, options);
  for (uint64_t use = 0; use < 3; ++use) {
    for (uint64_t name = 0; name < 10; ++name) {
      const std::vector<Ticket> tickets = ring.submit_all({name, use}, sum_of(10));
      ring.run();
      ASSERT_TRUE(ring.all_ok(tickets)) << "name " << name << " use " << use;
    }
  }
}

TEST(EngineSubmit, KeysThatArePassedOverAreBounded) {
  // A trainer that counts by twos would have us remember a gap for each op.
  EngineOptions options = small_slices();
  options.open_ops_per_rank_max = 5;
  Ring ring(1, 1, options);
  uint64_t k = 0;
  for (; k <= 5; ++k) {
    ring.submit(0, op(2 * k), sum_of(10));
    ring.run();
  }
  const Status status = ring.refused(0, op(2 * k), sum_of(10));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("count up by one"));
}

TEST(EngineSubmit, ABroadcastFromARankOutsideTheJobIsRefused) {
  Ring ring(2);
  const Status status = ring.refused(0, op(0), broadcast_of(10, 2));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("rank 2"));
  EXPECT_EQ(ring.engine(0).open_ops(), 0u);
}

TEST(EngineSubmitDeathTest, ARankOfAnotherNodeIsABugOfOurs) {
  Ring ring(2);
  EXPECT_DEATH((void)ring.engine(0).submit({1, 1, op(0), "", sum_of(1), {}, {}}, 1),
               "rank of another node");
}

}  // namespace
}  // namespace gradring::core
