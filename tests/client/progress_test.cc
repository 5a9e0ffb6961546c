#include <gmock/gmock.h>

#include <string>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::HasSubstr;

class ProgressOfAnOp : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_.set([](Script& script) { script.complete = false; });
    request_ = submit(comm_, barrier_op());
  }
  // Of `report_`.
  gradring_progress ask() {
    daemon_.set([this](Script& script) { script.job_report = report_; });
    gradring_progress progress{};
    progress.struct_size = sizeof(progress);
    EXPECT_EQ(gradring_get_progress(comm_.get(), request_, &progress), GRADRING_OK)
        << gradring_last_error();
    return progress;
  }
  wire::OpReport& op(uint64_t sequence = 0) {
    wire::OpReport& op = *report_.add_ops();
    op.mutable_key()->set_sequence(sequence);
    op.set_node("fake");
    return op;
  }
  wire::RankReport& rank(uint32_t number, const std::string& node, int64_t pid) {
    wire::RankReport& rank = *report_.add_ranks();
    rank.set_rank(number);
    rank.set_node(node);
    rank.set_pid(pid);
    return rank;
  }

  FakeDaemon daemon_;
  Comm comm_ = open(daemon_, 2, 6);
  gradring_request request_ = 0;
  wire::JobReport report_;
};

TEST_F(ProgressOfAnOp, NamesTheRanksOfThisNodeThatHaveNotSubmittedIt) {
  rank(3, "fake", 4711).set_process_state("T");
  rank(0, "fake", 0);
  op().add_waiting_for(3);
  report_.mutable_ops(0)->add_waiting_for(0);
  const gradring_progress progress = ask();
  EXPECT_STREQ(progress.message,
               "barrier (op 0) waits for rank 0 (node fake) and rank 3 (node fake, pid 4711, "
               "stopped)");
  EXPECT_EQ(progress.first, 1) << "the lowest that is there";
  const auto asked = daemon_.wait_for_messages(wire::ClientMessage::kQuery, 1);
  EXPECT_TRUE(asked.at(0).query().own_part()) << "thousands may ask at the same time";
}

TEST_F(ProgressOfAnOp, NamesTheOneRankOfANodeThatIsNotReadyAndOfOthersTheNode) {
  rank(1, "b", 71);
  for (const uint32_t other : {3u, 4u, 5u}) rank(other, "c", 80 + other);
  op().add_waiting_nodes("b");
  report_.mutable_ops(0)->add_waiting_nodes("c");
  const gradring_progress progress = ask();
  EXPECT_STREQ(progress.message,
               "barrier (op 0) waits for rank 1 (node b, pid 71) and a rank of node c (ranks 3 to "
               "5)");
  EXPECT_EQ(progress.first, 0);
}

TEST_F(ProgressOfAnOp, ListsTheRanksOfANodeThatHasNotAllBetween) {
  for (const uint32_t other : {5u, 1u, 3u}) rank(other, "c", 80 + other);
  op().add_waiting_nodes("c");
  EXPECT_STREQ(ask().message, "barrier (op 0) waits for a rank of node c (ranks 1, 3 and 5)");
}

TEST_F(ProgressOfAnOp, OfALargeJobBlamesNoNodeThatSpeaksForOthers) {
  rank(1, "b", 71);
  op().add_waiting_nodes("b");
  report_.mutable_ops(0)->set_waiting_subtrees(true);
  EXPECT_THAT(ask().message,
              HasSubstr("waits for a rank of node b (rank 1) or of one that it speaks for"));
}

TEST_F(ProgressOfAnOp, TellsWhatIsOnTheWayAndWhatElseIsAwaited) {
  op().set_slices(8);
  report_.mutable_ops(0)->set_slices_final(3);
  EXPECT_STREQ(ask().message,
               "barrier (op 0) has been submitted by all, and its data is under way: 3 of 8 "
               "slices");
  report_.clear_ops();
  op(7).add_waiting_for(1);
  report_.mutable_ops(0)->set_name("layer1");
  EXPECT_STREQ(
      ask().message,
      "barrier (op 0) is still under way, and so is 'layer1', which waits for rank 1 (node "
      "fake)");
}

TEST_F(ProgressOfAnOp, HasRoomForWhomItWaitsBesideTheLongestNames) {
  const std::string name(512, 'n');
  gradring_op op_named = barrier_op();
  op_named.name = name.c_str();
  request_ = submit(comm_, op_named);
  wire::OpReport& older = op(7);
  older.set_name(std::string(512, 'o'));
  rank(1, "fake", 4711);
  older.add_waiting_for(1);
  const std::string message = ask().message;
  EXPECT_THAT(message, ::testing::StartsWith("barrier ('nnnn"));
  EXPECT_THAT(message, HasSubstr("nnn...', use 0) is still under way, and so is 'ooo"));
  EXPECT_THAT(message,
              ::testing::EndsWith("ooo...', which waits for rank 1 (node fake, pid 4711)"));
}

TEST_F(ProgressOfAnOp, TellsWhoHasNotJoinedAndListsNoMoreThanOneReads) {
  for (uint32_t number = 100; number < 120; ++number) rank(number, "", 0).set_state("not joined");
  EXPECT_STREQ(ask().message,
               "barrier (op 0) waits for rank 100, rank 101, rank 102, rank 103, rank 104, rank "
               "105, rank 106, rank 107 and 12 more to join");
}

TEST_F(ProgressOfAnOp, IsUnderWayWhereNothingElseIsKnownAndEndsWithTheOp) {
  EXPECT_STREQ(ask().message, "barrier (op 0) is still under way");
  daemon_.complete(daemon_.wait_for_operations(1).at(0));
  const auto start = Clock::now();
  while (std::string(ask().message) != "barrier (op 0) has ended" && ms_since(start) < 5000) {
  }
  EXPECT_STREQ(ask().message, "barrier (op 0) has ended");
  EXPECT_EQ(gradring_wait(comm_.get(), request_, 5000, nullptr), GRADRING_OK);
}

TEST_F(ProgressOfAnOp, IsNotWaitedForLongAndBadCallsAreRefused) {
  gradring_progress progress{};
  EXPECT_EQ(gradring_get_progress(comm_.get(), request_, &progress), GRADRING_ERR_INVALID);
  EXPECT_EQ(gradring_get_progress(comm_.get(), request_, nullptr), GRADRING_ERR_INVALID);
  progress.struct_size = sizeof(progress);
  EXPECT_EQ(gradring_get_progress(comm_.get(), 4711, &progress), GRADRING_ERR_NOT_FOUND);
  const auto start = Clock::now();
  EXPECT_EQ(gradring_get_progress(comm_.get(), request_, &progress), GRADRING_ERR_DEADLINE);
  EXPECT_LT(ms_since(start), 1000 + kSoonMs);
  EXPECT_THAT(gradring_last_error(), HasSubstr("node fake did not answer in time"));
}

}  // namespace
}  // namespace gradring::test
