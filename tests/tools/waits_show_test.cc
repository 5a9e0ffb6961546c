// What gradringctl job says of ops that wait, where nodes know different things about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/expect_sound.h"
#include "tools/ctl/command.h"
#include "tools/ctl/waits.h"

namespace gradring::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// One rank on each of the nodes a, b and c.
class ShowWaits : public ::testing::Test {
 protected:
  ShowWaits() {
    report_.mutable_summary()->set_name("train");
    report_.mutable_summary()->set_state("running");
    report_.mutable_summary()->set_size(3);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      auto* one = report_.add_ranks();
      one->set_rank(rank);
      one->set_node(std::string(1, static_cast<char>('a' + rank)));
      one->set_pid(4700 + rank);
      one->set_state("waiting");
      one->set_process_state("S");
    }
  }
  // What the node of a rank tells of a named op: one that has not submitted it knows no name.
  void tell(uint32_t rank, const std::string& name, bool submitted, uint64_t age_ms) {
    auto* op = report_.add_ops();
    op->mutable_key()->set_space(std::hash<std::string>()(name) | 1);
    op->set_signature("allreduce sum of 5 float32");
    op->set_node(report_.ranks(static_cast<int>(rank)).node());
    op->set_slices(1);
    if (!submitted) return op->add_waiting_for(rank);
    op->set_name(name);
    op->set_age_ms(age_ms);
  }

  wire::JobReport report_;
};

TEST_F(ShowWaits, AnOpHasItsNameWhoeverIsAskedFirst) {
  tell(2, "late", false, 0);
  tell(0, "late", true, 30'000);
  tell(1, "late", true, 30'000);
  const auto answer = show(report_, Style{});
  expect_sound(answer, "job");
  EXPECT_THAT(answer.problems,
              ElementsAre("allreduce sum of 5 float32 (\"late\", use 0): waiting "
                          "30.0 s for rank 2 (node c, pid 4702, state S sleeping)"));
  EXPECT_EQ(answer.json["ops"][0]["name"], "late");
}

TEST_F(ShowWaits, RanksThatWaitForOneAnotherAreBothNamed) {
  for (const uint32_t rank : {0, 1, 2}) tell(rank, "one", rank != 1, 30'000);
  for (const uint32_t rank : {0, 1, 2}) tell(rank, "other", rank != 0, 20'000);
  const auto answer = show(report_, Style{});
  expect_sound(answer, "job");
  ASSERT_THAT(answer.problems, SizeIs(2));
  EXPECT_THAT(answer.problems[0], HasSubstr("(\"one\", use 0): waiting 30.0 s for rank 1 "));
  EXPECT_EQ(answer.problems[1],
            "but rank 1 waits for rank 0 (node a, pid 4700, state S sleeping) in its turn, in "
            "allreduce sum of 5 float32 (\"other\", use 0): do all ranks submit the same ops, by "
            "the same names and in the same order?");
}

TEST_F(ShowWaits, WhoIsBehindInSeveralOpsWaitsForNobody) {
  for (const uint32_t rank : {0, 1, 2}) tell(rank, "one", rank != 1, 30'000);
  for (const uint32_t rank : {0, 1, 2}) tell(rank, "other", rank == 2, 20'000);
  EXPECT_THAT(show(report_, Style{}).problems, ElementsAre(EndsWith(", and 1 more op late")));
}

TEST_F(ShowWaits, OfANodeThatToldNothingItIsNotSaidThatItSubmitted) {
  for (const uint32_t rank : {0, 1, 2}) tell(rank, "one", rank != 1, 30'000);
  for (const uint32_t rank : {0, 2}) tell(rank, "other", rank != 0, 20'000);
  EXPECT_THAT(show(report_, Style{}).problems, ElementsAre(EndsWith(", and 1 more op late")));
}

TEST_F(ShowWaits, AShortWaitInTurnIsHealthy) {
  for (const uint32_t rank : {0, 1, 2}) tell(rank, "one", rank != 1, 30'000);
  for (const uint32_t rank : {0, 1, 2}) tell(rank, "other", rank != 0, 900);
  EXPECT_THAT(show(report_, Style{}).problems, SizeIs(1));
}

}  // namespace
}  // namespace gradring::tools
