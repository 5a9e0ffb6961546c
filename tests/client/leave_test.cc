// gradring_leave: out of the job while requests are open and other threads wait for them.
#include <gmock/gmock.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::HasSubstr;

class LeavingEarly : public ::testing::Test {
 protected:
  LeavingEarly() {
    daemon_.set([](Script& script) { script.complete = false; });
  }
  gradring_request receive_from(uint32_t peer) {
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = GRADRING_RECV;
    op.dtype = GRADRING_FLOAT32;
    op.count = 8;
    op.root = peer;
    op.output = alloc(comm_, op.count);
    return submit(comm_, op);
  }
  void expect_that_it_ends(gradring_request request) {
    gradring_result result = empty_result();
    EXPECT_EQ(gradring_wait(comm_.get(), request, 10'000, &result), GRADRING_ERR_FAILED);
    EXPECT_EQ(result.cause, static_cast<uint32_t>(GRADRING_CAUSE_TRAINER_LEFT));
    EXPECT_EQ(result.blamed_rank, 1);
    EXPECT_EQ(result.blamed_pid, ::getpid());
    EXPECT_THAT(std::string(result.message), HasSubstr("this rank has left job job"));
  }

  FakeDaemon daemon_;
  Comm comm_ = open(daemon_, 1, 8);
};

TEST_F(LeavingEarly, EndsWhatIsUnderWayAndTheWaitsOfOtherThreads) {
  const gradring_request awaited = submit(comm_, barrier_op());
  const gradring_request open = submit(comm_, barrier_op());
  std::thread waiting([&] { expect_that_it_ends(awaited); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto start = Clock::now();
  EXPECT_EQ(gradring_leave(comm_.get()), GRADRING_OK);
  waiting.join();
  EXPECT_LT(ms_since(start), kSoonMs);
  expect_that_it_ends(open);
  daemon_.wait_for_messages(wire::ClientMessage::kLeave, 1);
}

TEST_F(LeavingEarly, IsSaidOnce) {
  EXPECT_EQ(gradring_leave(comm_.get()), GRADRING_OK);
  EXPECT_EQ(gradring_leave(comm_.get()), GRADRING_OK);
  comm_.reset();
  const Comm other = open(daemon_, 1, 8);
  gradring_leave(other.get());
  EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kLeave, 2).size(), 2u);
}

TEST_F(LeavingEarly, MayBeForAReasonThatTheOthersAreTold) {
  const gradring_request open = submit(comm_, barrier_op());
  EXPECT_EQ(gradring_abort(comm_.get(), "ended by ValueError: no such batch"), GRADRING_OK);
  gradring_result result = empty_result();
  EXPECT_EQ(gradring_wait(comm_.get(), open, 10'000, &result), GRADRING_ERR_FAILED);
  EXPECT_EQ(result.blamed_rank, 1);
  EXPECT_THAT(std::string(result.message),
              HasSubstr("this rank has aborted job job: ended by ValueError: no such batch"));
  const auto said = daemon_.wait_for_messages(wire::ClientMessage::kLeave, 1);
  EXPECT_EQ(said.at(0).leave().failed(), "ended by ValueError: no such batch");
}

TEST_F(LeavingEarly, GivesAReasonOfItsOwnForNoneAndPartOfALongOne) {
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "\u00fc";
  const std::string half = umlauts.substr(0, 254);  // 255 would be half a character
  for (const char* const why : {"", "\xff", static_cast<const char*>(nullptr), umlauts.c_str()}) {
    const Comm other = open(daemon_, 1, 8);
    EXPECT_EQ(gradring_abort(other.get(), why), GRADRING_OK);
  }
  const auto said = daemon_.wait_for_messages(wire::ClientMessage::kLeave, 4);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(said.at(i).leave().failed(), "aborted the job");
  EXPECT_EQ(said.at(3).leave().failed(), half);
}

TEST_F(LeavingEarly, RefusesWhatComesAndLeavesMemoryAsItIs) {
  float* const memory = alloc(comm_, 8);
  memory[7] = 7;
  EXPECT_EQ(gradring_leave(comm_.get()), GRADRING_OK);
  const gradring_op op = barrier_op();
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(comm_.get(), &op, &request), GRADRING_ERR_FAILED);
  EXPECT_THAT(gradring_last_error(), HasSubstr("this rank has left job job"));
  EXPECT_EQ(memory[7], 7);
  // Which groups may need.
  alloc(comm_, 1 << 20)[0] = 1;
  EXPECT_EQ(gradring_free(comm_.get(), memory), GRADRING_OK);
}

TEST_F(LeavingEarly, EndsWhatIsToComeFromOneRank) {
  const gradring_request early = receive_from(5);
  daemon_.wait_for_operations(1);
  daemon_.set([](Script& script) { script.answer_join = false; });
  const gradring_request awaited = receive_from(6);
  std::thread waiting([&] {
    gradring_result result = empty_result();
    EXPECT_EQ(gradring_wait(comm_.get(), awaited, 10'000, &result), GRADRING_ERR_FAILED);
    EXPECT_EQ(result.blamed_rank, 1);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto start = Clock::now();
  EXPECT_EQ(gradring_leave(comm_.get()), GRADRING_OK);
  waiting.join();
  EXPECT_LT(ms_since(start), kSoonMs);
  gradring_result result = empty_result();
  EXPECT_EQ(gradring_wait(comm_.get(), early, 0, &result), GRADRING_ERR_FAILED);
  EXPECT_EQ(result.cause, static_cast<uint32_t>(GRADRING_CAUSE_TRAINER_LEFT));
  EXPECT_EQ(result.blamed_rank, 1);
  EXPECT_THAT(std::string(result.message), HasSubstr("receive from rank 5: this rank has left"));
}

TEST_F(LeavingEarly, TakesTwoSecondsWhereTheDaemonIsSilent) {
  daemon_.set([](Script& script) { script.answer_leave = false; });
  const gradring_request request = submit(comm_, barrier_op());
  const auto start = Clock::now();
  EXPECT_EQ(gradring_leave(comm_.get()), GRADRING_ERR_DEADLINE);
  EXPECT_LT(ms_since(start), 2000 + kSoonMs);
  expect_that_it_ends(request);
  comm_.reset();  // it has it in its queue
  EXPECT_LT(ms_since(start), 2000 + 2 * kSoonMs);
}

TEST_F(LeavingEarly, TakesSixSecondsOfAJobAndItsGroupsTogether) {
  std::vector<Comm> groups;
  for (const uint32_t other : {0, 2, 3, 4, 5}) {
    const uint32_t ranks[] = {1, other};
    gradring_comm* made = nullptr;
    ASSERT_EQ(gradring_group(comm_.get(), ranks, 2, &made), GRADRING_OK) << gradring_last_error();
    groups.emplace_back(made);
  }
  daemon_.set([](Script& script) { script.answer_leave = false; });
  const auto start = Clock::now();
  for (const Comm& group : groups) {
    EXPECT_EQ(gradring_leave(group.get()), GRADRING_ERR_DEADLINE);
  }
  EXPECT_EQ(gradring_leave(comm_.get()), GRADRING_ERR_DEADLINE);
  groups.clear();
  comm_.reset();
  EXPECT_LT(ms_since(start), 6000 + kSoonMs);
  daemon_.wait_for_messages(wire::ClientMessage::kLeave, 6);  // they are sent nevertheless
}

}  // namespace
}  // namespace gradring::test
