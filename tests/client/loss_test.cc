#include <gmock/gmock.h>

#include <atomic>
#include <vector>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What becomes of a trainer whose daemon dies, ends its job, or talks nonsense.
class Loss : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_.set([](Script& script) { script.complete = false; });
  }
  gradring_request submit_barrier() {
    const gradring_request request = submit(comm_, barrier_op());
    ++submitted_;
    // So that the daemon has it before what the test does next.
    EXPECT_EQ(daemon_.wait_for_operations(submitted_).size(), submitted_);
    return request;
  }
  void close_job(const std::string& message) {
    wire::DaemonMessage closed;
    closed.mutable_closed()->set_job(77);
    to_wire(Failure{Cause::kTrainerDied, Blame{1, "node-b", 99, "", ""}},
            closed.mutable_closed()->mutable_failure());
    closed.mutable_closed()->set_message(message);
    daemon_.send(closed);
  }
  // Waits for a request that must end badly, and soon.
  gradring_result wait_failed(gradring_request request, int64_t within_ms = kSoonMs) {
    gradring_result result = empty_result();
    const auto start = Clock::now();
    EXPECT_EQ(gradring_wait(comm_.get(), request, -1, &result), GRADRING_ERR_FAILED);
    EXPECT_LT(ms_since(start), within_ms);
    EXPECT_EQ(result.verdict, 3u);
    EXPECT_STREQ(result.message, gradring_last_error());
    return result;
  }
  gradring_code submit_code() {
    const gradring_op op = barrier_op();
    gradring_request request = 0;
    return gradring_submit(comm_.get(), &op, &request);
  }

  FakeDaemon daemon_;
  Comm comm_ = open(daemon_);
  size_t submitted_ = 0;
};

TEST_F(Loss, OfTheJobIsToldAlsoWithoutAnOp) {
  gradring_result result = empty_result();
  EXPECT_EQ(gradring_failure(comm_.get(), &result), GRADRING_OK);
  close_job("rank 1 died");
  while (submit_code() == GRADRING_OK) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_STREQ(gradring_last_error(), "rank 1 died")
      << "which says nobody that a program could read";
  EXPECT_EQ(gradring_failure(comm_.get(), &result), GRADRING_ERR_FAILED);
  EXPECT_STREQ(result.message, "rank 1 died");
  EXPECT_EQ(result.cause, static_cast<uint32_t>(GRADRING_CAUSE_TRAINER_DIED));
  EXPECT_EQ(result.blamed_rank, 1);
  EXPECT_EQ(result.blamed_pid, 99);
  EXPECT_EQ(gradring_failure(comm_.get(), nullptr), GRADRING_ERR_FAILED);
}

TEST_F(Loss, OfTheJobIsToldWhoeverAsksForNothingElse) {
  close_job("rank 1 died");
  const auto start = Clock::now();
  gradring_code code = GRADRING_OK;
  while (code == GRADRING_OK && ms_since(start) < kSoonMs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    code = gradring_failure(comm_.get(), nullptr);
  }
  EXPECT_EQ(code, GRADRING_ERR_FAILED);
}

TEST_F(Loss, OfTheDaemonForGoodIsAFailure) {
  daemon_.die();
  while (submit_code() == GRADRING_OK) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  gradring_result result = empty_result();
  EXPECT_EQ(gradring_failure(comm_.get(), &result), GRADRING_ERR_FAILED);
  EXPECT_EQ(result.cause, static_cast<uint32_t>(GRADRING_CAUSE_PEER_LOST));
}

TEST_F(Loss, OfTheDaemonEndsAWaitAtOnce) {
  const gradring_request request = submit_barrier();
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    daemon_.die();
  });
  const gradring_result result = wait_failed(request);
  killer.join();
  EXPECT_EQ(result.cause, static_cast<uint32_t>(Cause::kPeerLost));
  EXPECT_STREQ(result.blamed_node, "fake");
  EXPECT_THAT(result.message,
              AllOf(HasSubstr("the daemon on node fake went away"),
                    HasSubstr("`gradringd --runtime-dir " + daemon_.runtime_dir() + "`")));
}

TEST_F(Loss, OfTheDaemonEndsAllWaitsOfAllThreads) {
  std::vector<gradring_request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(submit_barrier());
  std::vector<std::thread> threads;
  for (const gradring_request request : requests) {
    threads.emplace_back([this, request] { wait_failed(request); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto start = Clock::now();
  daemon_.die();
  for (auto& thread : threads) thread.join();
  EXPECT_LT(ms_since(start), kSoonMs);
}

TEST_F(Loss, OfTheDaemonIsToldByEveryCall) {
  float* memory = alloc(comm_, 16);
  std::vector<float> own(16);
  daemon_.die();
  EXPECT_EQ(submit_code(), GRADRING_ERR_UNAVAILABLE);
  EXPECT_THAT(gradring_last_error(), HasSubstr("went away"));
  void* more = nullptr;
  EXPECT_EQ(gradring_alloc(comm_.get(), 4096, &more), GRADRING_ERR_UNAVAILABLE);
  EXPECT_THAT(gradring_last_error(), HasSubstr("went away"));
  EXPECT_EQ(gradring_register(comm_.get(), own.data(), 16), GRADRING_ERR_UNAVAILABLE);
  memory[3] = 1;  // The memory is still ours.
  EXPECT_EQ(gradring_free(comm_.get(), memory), GRADRING_OK);
  EXPECT_EQ(gradring_rank(comm_.get()), 0);
}

TEST_F(Loss, OfTheDaemonIsSeenByTestAsWell) {
  const gradring_request request = submit_barrier();
  daemon_.die();
  int done = 0;
  gradring_code code = GRADRING_OK;
  const auto start = Clock::now();
  while (done == 0 && ms_since(start) < 2000) {
    code = gradring_test(comm_.get(), request, &done, nullptr);
  }
  EXPECT_EQ(done, 1);
  EXPECT_EQ(code, GRADRING_ERR_FAILED);
}

TEST_F(Loss, OfTheDaemonDoesNotTakeBackAResult) {
  const gradring_request good = submit_barrier();
  const gradring_request open_still = submit_barrier();
  daemon_.complete(daemon_.wait_for_operations(2).at(0));
  EXPECT_EQ(gradring_wait(comm_.get(), open_still, 50, nullptr), GRADRING_ERR_DEADLINE);
  daemon_.die();
  wait_failed(open_still);
  EXPECT_EQ(gradring_wait(comm_.get(), good, -1, nullptr), GRADRING_OK);
}

TEST_F(Loss, OfTheDaemonLetsCloseReturnAtOnce) {
  submit_barrier();
  alloc(comm_, 1024);
  daemon_.die();
  const auto start = Clock::now();
  comm_.reset();
  EXPECT_LT(ms_since(start), kSoonMs);
}

TEST_F(Loss, OfPatienceWithADaemonThatDoesNotConfirmALeave) {
  daemon_.set([](Script& script) { script.answer_leave = false; });
  const auto start = Clock::now();
  comm_.reset();
  EXPECT_GE(ms_since(start), 1900);
  EXPECT_LT(ms_since(start), 2000 + kSoonMs);
}

TEST_F(Loss, OfTheJobEndsRequestsAsTheDaemonCompletesThem) {
  const gradring_request request = submit_barrier();
  close_job("rank 1 died");
  EXPECT_EQ(gradring_wait(comm_.get(), request, 100, nullptr), GRADRING_ERR_DEADLINE)
      << "its buffer may still be written";
  wire::DaemonMessage message;
  wire::Completion& completion = *message.mutable_completed()->add_completions();
  completion.set_ticket(request);
  completion.set_verdict(static_cast<uint32_t>(Verdict::kFailed));
  to_wire(Failure{Cause::kTrainerDied, Blame{1, "node-b", 99, "", ""}},
          completion.mutable_failure());
  completion.set_message("rank 1 died, and this op with it");
  daemon_.send(message);
  EXPECT_STREQ(wait_failed(request).message, "rank 1 died, and this op with it");
}

TEST_F(Loss, OfTheJobEndsAWaitEvenIfTheDaemonForgetsTo) {
  const gradring_request request = submit_barrier();
  std::thread closer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    close_job("rank 1 died");
  });
  const gradring_result result = wait_failed(request, 1000 + kSoonMs);
  closer.join();
  EXPECT_EQ(result.cause, static_cast<uint32_t>(Cause::kTrainerDied));
  EXPECT_EQ(result.blamed_rank, 1);
  EXPECT_EQ(result.blamed_pid, 99);
  EXPECT_STREQ(result.message, "rank 1 died");
}

TEST_F(Loss, OfTheJobIsToldBySubmit) {
  close_job("rank 1 died");
  const auto start = Clock::now();
  gradring_code code = GRADRING_OK;
  while (code == GRADRING_OK && ms_since(start) < 2000) code = submit_code();
  EXPECT_EQ(code, GRADRING_ERR_FAILED);
  EXPECT_STREQ(gradring_last_error(), "rank 1 died");
  void* memory = nullptr;
  EXPECT_EQ(gradring_alloc(comm_.get(), 64, &memory), GRADRING_ERR_FAILED);
}

TEST_F(Loss, OfAnotherJobIsNoneOfOurs) {
  const gradring_request request = submit_barrier();
  wire::DaemonMessage closed;
  closed.mutable_closed()->set_job(78);
  daemon_.send(closed);
  EXPECT_EQ(gradring_wait(comm_.get(), request, 100, nullptr), GRADRING_ERR_DEADLINE);
  daemon_.complete(daemon_.wait_for_operations(1).at(0));
  EXPECT_EQ(gradring_wait(comm_.get(), request, -1, nullptr), GRADRING_OK);
}

// The reason was given on one channel, and then the other is closed.
TEST_F(Loss, OfTheDaemonAfterTheJobSaysWhyTheJobEnded) {
  const gradring_request request = submit_barrier();
  close_job("the daemon was told to stop");
  daemon_.hang_up();
  EXPECT_STREQ(wait_failed(request).message, "the daemon was told to stop");
}

TEST_F(Loss, OfTheDaemonAfterTheJobIsToldToTheNextOpAsTheJobsEnd) {
  close_job("the daemon was told to stop");
  daemon_.hang_up();
  EXPECT_EQ(submit_code(), GRADRING_ERR_FAILED);
  EXPECT_STREQ(gradring_last_error(), "the daemon was told to stop");
}

class Garbage : public Loss {
 protected:
  void send_completion(uint64_t ticket, Verdict verdict, Cause cause = Cause::kNone) {
    wire::DaemonMessage message;
    wire::Completion& completion = *message.mutable_completed()->add_completions();
    completion.set_ticket(ticket);
    completion.set_verdict(static_cast<uint32_t>(verdict));
    completion.mutable_failure()->set_cause(static_cast<uint32_t>(cause));
    daemon_.send(message);
  }
  void expect_the_end(gradring_request request, const char* words) {
    const gradring_result result = wait_failed(request);
    EXPECT_EQ(result.cause, static_cast<uint32_t>(Cause::kProtocol));
    EXPECT_THAT(result.message, HasSubstr(words));
    EXPECT_EQ(submit_code(), GRADRING_ERR_INTERNAL);
    const auto start = Clock::now();
    comm_.reset();
    EXPECT_LT(ms_since(start), kSoonMs);
  }
};

TEST_F(Garbage, OnTheControlChannel) {
  const gradring_request request = submit_barrier();
  daemon_.send_bytes("\xff\xff\xff\xff this is no message");
  expect_the_end(request, "a message that cannot be read");
}

TEST_F(Garbage, OnTheAttachSocket) {
  const gradring_request request = submit_barrier();
  daemon_.send_attach_bytes("\xff\xff\xff\xff this is no packet");
  expect_the_end(request, "cannot be read");
}

TEST_F(Garbage, AsAPacketThatAnswersNothing) {
  const gradring_request request = submit_barrier();
  wire::AttachReply reply;
  reply.mutable_segment()->set_request(1'000'000);
  daemon_.send_attach_bytes(reply.SerializeAsString());
  expect_the_end(request, "answers nothing");
}

TEST_F(Garbage, AsAPacketThatIsTooLong) {
  const gradring_request request = submit_barrier();
  wire::AttachReply reply;
  reply.mutable_refused()->set_message(std::string(20'000, 'x'));
  daemon_.send_attach_bytes(reply.SerializeAsString());
  expect_the_end(request, "cannot be read");
}

TEST_F(Garbage, AsTheCompletionOfARequestThatNeverWas) {
  const gradring_request request = submit_barrier();
  send_completion(request + 1, Verdict::kOk);
  expect_the_end(request, "makes no sense");
}

TEST_F(Garbage, AsTheCompletionOfNothing) {
  const gradring_request request = submit_barrier();
  send_completion(0, Verdict::kOk);
  expect_the_end(request, "makes no sense");
}

TEST_F(Garbage, AsAnUnknownVerdict) {
  const gradring_request request = submit_barrier();
  send_completion(request, static_cast<Verdict>(4));
  expect_the_end(request, "makes no sense");
}

TEST_F(Garbage, AsAnUnknownCause) {
  const gradring_request request = submit_barrier();
  send_completion(request, Verdict::kFailed, static_cast<Cause>(200));
  expect_the_end(request, "makes no sense");
}

TEST_F(Garbage, AsASecondCompletionIsVoid) {
  const gradring_request request = submit_barrier();
  const auto operation = daemon_.wait_for_operations(1).at(0);
  daemon_.complete(operation);
  daemon_.complete(operation);
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
  EXPECT_EQ(submit_code(), GRADRING_OK);
}

TEST_F(Garbage, AsNewsThatALaterLibraryKnowsIsPassedOver) {
  const gradring_request request = submit_barrier();
  daemon_.send_bytes("");
  daemon_.send_bytes(std::string("\xa2\x06\x01x", 4));  // field 100, one byte
  daemon_.complete(daemon_.wait_for_operations(1).at(0));
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
}

TEST_F(Loss, OfTheSessionByARefusalThatAnswersNothing) {
  const gradring_request request = submit_barrier();
  wire::DaemonMessage message;
  *message.mutable_refused() = refusal(Code::kPermissionDenied, "this connection is not yours");
  daemon_.send(message);
  EXPECT_STREQ(wait_failed(request).message, "this connection is not yours");
  EXPECT_EQ(submit_code(), GRADRING_ERR_PERMISSION);
}

// The daemon is there and reads nothing: the queues between fill up, and then a submission is
// refused in bounded time.
TEST_F(Loss, OfAReadingDaemonRefusesSubmissionsInTime) {
  daemon_.freeze();
  gradring_code code = GRADRING_OK;
  const auto start = Clock::now();
  std::chrono::steady_clock::time_point last;
  for (int i = 0; i < 200'000 && code == GRADRING_OK && ms_since(start) < 60'000; ++i) {
    last = Clock::now();
    code = submit_code();
  }
  EXPECT_EQ(code, GRADRING_ERR_UNAVAILABLE);
  EXPECT_THAT(gradring_last_error(), HasSubstr("does not take messages"));
  EXPECT_GE(ms_since(last), 4900);
  EXPECT_LT(ms_since(last), 5000 + kSoonMs);
  const auto closing = Clock::now();
  comm_.reset();
  EXPECT_LT(ms_since(closing), 2000 + kSoonMs);
}

}  // namespace
}  // namespace gradring::test
