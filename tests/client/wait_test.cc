#include <gmock/gmock.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <vector>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Wait : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_.set([](Script& script) { script.complete = false; });
  }
  gradring_request submit_barrier() { return submit(comm_, barrier_op()); }

  FakeDaemon daemon_;
  Comm comm_ = open(daemon_);
};

TEST_F(Wait, EndsAtItsDeadlineAndCanGoOn) {
  const gradring_request request = submit_barrier();
  for (const int64_t timeout_ms : {0, 1, 20, 150}) {
    const int64_t took = quickest_of_five([&] {
      EXPECT_EQ(gradring_wait(comm_.get(), request, timeout_ms, nullptr), GRADRING_ERR_DEADLINE);
    });
    EXPECT_GE(took, timeout_ms);
    EXPECT_LE(took, timeout_ms + kLateMs);
  }
  EXPECT_THAT(gradring_last_error(),
              AllOf(HasSubstr("barrier (op 0)"), HasSubstr("still under way after 150 ms"),
                    HasSubstr("gradringctl --runtime-dir " + daemon_.runtime_dir() + " job job")));
  daemon_.complete(daemon_.wait_for_operations(1).at(0));
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
}

// As that of a group, train[0,2], which zsh takes for a pattern that no file matches.
TEST_F(Wait, NamesACommandThatAShellTakesAsItIs) {
  gradring_options options = options_for(daemon_.runtime_dir(), 1);
  options.job = "it's[0,2]";
  gradring_comm* comm = nullptr;
  ASSERT_EQ(gradring_open(&options, &comm), GRADRING_OK) << gradring_last_error();
  const Comm group(comm);
  const gradring_request request = submit(group, barrier_op());
  EXPECT_EQ(gradring_wait(group.get(), request, 0, nullptr), GRADRING_ERR_DEADLINE);
  EXPECT_THAT(gradring_last_error(), HasSubstr(" job 'it'\\''s[0,2]'` tells who waits for whom"));
}

TEST_F(Wait, ConsumesTheRequest) {
  const gradring_request request = submit_barrier();
  daemon_.complete(daemon_.wait_for_operations(1).at(0));
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_ERR_NOT_FOUND);
  EXPECT_EQ(gradring_wait(comm_.get(), 4711, 0, nullptr), GRADRING_ERR_NOT_FOUND);
}

TEST_F(Wait, RefusesNonsense) {
  const gradring_request request = submit_barrier();
  EXPECT_EQ(gradring_wait(comm_.get(), request, -2, nullptr), GRADRING_ERR_INVALID);
  gradring_result unset{};
  EXPECT_EQ(gradring_wait(comm_.get(), request, 0, &unset), GRADRING_ERR_INVALID);
  EXPECT_EQ(gradring_test(comm_.get(), request, nullptr, nullptr), GRADRING_ERR_INVALID);
}

TEST_F(Wait, OfTestIsAFlag) {
  const gradring_request request = submit_barrier();
  int done = 7;
  EXPECT_EQ(gradring_test(comm_.get(), request, &done, nullptr), GRADRING_OK);
  EXPECT_EQ(done, 0);
  daemon_.complete(daemon_.wait_for_operations(1).at(0));
  const auto start = Clock::now();
  while (done == 0 && ms_since(start) < 5000) {
    ASSERT_EQ(gradring_test(comm_.get(), request, &done, nullptr), GRADRING_OK);
  }
  EXPECT_EQ(done, 1);
  EXPECT_EQ(gradring_test(comm_.get(), request, &done, nullptr), GRADRING_ERR_NOT_FOUND);
  EXPECT_EQ(done, 0);
}

TEST_F(Wait, FindsResultsInAnyOrder) {
  std::vector<gradring_request> requests;
  for (int i = 0; i < 50; ++i) requests.push_back(submit_barrier());
  const auto operations = daemon_.wait_for_operations(50);
  ASSERT_EQ(operations.size(), 50u);
  for (const auto& operation : operations) daemon_.complete(operation);
  for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
    EXPECT_EQ(gradring_wait(comm_.get(), *request, 5000, nullptr), GRADRING_OK);
  }
}

TEST_F(Wait, OfAFailedOpTellsWhomToBlame) {
  const gradring_request request = submit_barrier();
  wire::DaemonMessage message;
  wire::Completion& completion = *message.mutable_completed()->add_completions();
  completion.set_ticket(request);
  completion.set_verdict(static_cast<uint32_t>(Verdict::kFailed));
  completion.set_epoch(3);
  to_wire(Failure{Cause::kTrainerDied, Blame{3, "node-b", 4711, "", "killed by signal 9"}},
          completion.mutable_failure());
  completion.set_message("trainer died: rank 3, node node-b, pid 4711: killed by signal 9");
  daemon_.send(message);

  gradring_result result = empty_result();
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, &result), GRADRING_ERR_FAILED);
  EXPECT_EQ(result.verdict, 3u);
  EXPECT_EQ(result.cause, static_cast<uint32_t>(Cause::kTrainerDied));
  EXPECT_EQ(result.blamed_rank, 3);
  EXPECT_EQ(result.blamed_pid, 4711);
  EXPECT_STREQ(result.blamed_node, "node-b");
  EXPECT_EQ(result.epoch, 3u);
  EXPECT_STREQ(result.message, completion.message().c_str());
  EXPECT_STREQ(gradring_last_error(), completion.message().c_str());
  EXPECT_EQ(gradring_epoch(comm_.get()), 3u);
}

TEST_F(Wait, OfAFailureWithoutWordsFindsSome) {
  const gradring_request request = submit_barrier();
  wire::DaemonMessage message;
  wire::Completion& completion = *message.mutable_completed()->add_completions();
  completion.set_ticket(request);
  completion.set_verdict(static_cast<uint32_t>(Verdict::kFailed));
  to_wire(Failure{Cause::kPeerSilent, Blame{kNoRank, "node-c", 0, "", "3 s"}},
          completion.mutable_failure());
  daemon_.send(message);
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_ERR_FAILED);
  EXPECT_STREQ(gradring_last_error(), "peer silent: node node-c: 3 s");
}

TEST_F(Wait, CutsALongMessageBeforeACharacter) {
  const gradring_request request = submit_barrier();
  std::string words;
  while (words.size() < 2000) words += "\xc3\xa4";
  words = "x" + words;  // so that 511 bytes end inside a character
  wire::DaemonMessage message;
  wire::Completion& completion = *message.mutable_completed()->add_completions();
  completion.set_ticket(request);
  completion.set_verdict(static_cast<uint32_t>(Verdict::kFailed));
  to_wire(Failure{Cause::kDeadline, {}}, completion.mutable_failure());
  completion.set_message(words);
  daemon_.send(message);
  gradring_result result = empty_result();
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, &result), GRADRING_ERR_FAILED);
  const std::string told = result.message;
  EXPECT_EQ(told, words.substr(0, told.size()));
  EXPECT_EQ(told.size(), 511u);
  EXPECT_EQ(std::string(gradring_last_error()), words.substr(0, 1023));
}

TEST_F(Wait, ByManyThreadsEachForItsOwn) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 25;
  daemon_.set([](Script& script) { script.complete = true; });
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      float* memory = alloc(comm_, 64);
      const std::string name = "thread " + std::to_string(t);
      for (int i = 0; i < kRounds; ++i) {
        memory[0] = static_cast<float>(t + i);
        gradring_op op = sum_of(memory, memory, 64);
        op.name = name.c_str();
        const gradring_request request = submit(comm_, op);
        if (gradring_wait(comm_.get(), request, 10000, nullptr) == GRADRING_OK &&
            memory[0] == 2 * static_cast<float>(t + i)) {
          ++good;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, kThreads * kRounds);
}

TEST_F(Wait, ByManyThreadsIsHandedOverWhenTheReaderLeaves) {
  const gradring_request first = submit_barrier();
  const gradring_request second = submit_barrier();
  const auto operations = daemon_.wait_for_operations(2);
  std::atomic<bool> done = false;
  // Reads first, and leaves at its deadline; then somebody else has to.
  std::thread reader(
      [&] { EXPECT_EQ(gradring_wait(comm_.get(), first, 100, nullptr), GRADRING_ERR_DEADLINE); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  std::thread follower([&] {
    EXPECT_EQ(gradring_wait(comm_.get(), second, 10000, nullptr), GRADRING_OK);
    done = true;
  });
  reader.join();
  EXPECT_FALSE(done);
  const auto start = Clock::now();
  daemon_.complete(operations.at(1));
  follower.join();
  EXPECT_LT(ms_since(start), kSoonMs);
}

TEST_F(Wait, KeepsEachThreadsDeadline) {
  const gradring_request slow = submit_barrier();
  const gradring_request quick = submit_barrier();
  const auto operations = daemon_.wait_for_operations(2);
  std::thread reader(
      [&] { EXPECT_EQ(gradring_wait(comm_.get(), slow, 10000, nullptr), GRADRING_OK); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t took = quickest_of_five(
      [&] { EXPECT_EQ(gradring_wait(comm_.get(), quick, 50, nullptr), GRADRING_ERR_DEADLINE); });
  EXPECT_GE(took, 50);
  EXPECT_LE(took, 50 + kLateMs);
  daemon_.complete(operations.at(0));
  reader.join();
}

TEST_F(Wait, ByTwoThreadsForOneRequestGivesItToOne) {
  const gradring_request request = submit_barrier();
  std::atomic<int> good = 0;
  std::atomic<int> missing = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      const gradring_code code = gradring_wait(comm_.get(), request, 10000, nullptr);
      good += code == GRADRING_OK;
      missing += code == GRADRING_ERR_NOT_FOUND;
    });
  }
  daemon_.complete(daemon_.wait_for_operations(1).at(0));
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 1);
  EXPECT_EQ(missing, 1);
}

// While one thread sleeps on the sockets, another sends, which takes in what has arrived.
TEST_F(Wait, IsNotDisturbedByOtherThreadsSubmissions) {
  for (size_t i = 0; i < 50; ++i) {
    const gradring_request request = submit_barrier();
    const auto operations = daemon_.wait_for_operations(2 * i + 1);
    std::thread waiter(
        [&] { EXPECT_EQ(gradring_wait(comm_.get(), request, 10000, nullptr), GRADRING_OK); });
    std::thread completer([&] { daemon_.complete(operations.back()); });
    submit_barrier();
    waiter.join();
    completer.join();
  }
}

TEST_F(Wait, SurvivesSignals) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  const gradring_request request = submit_barrier();
  std::atomic<bool> waiting = true;
  const pthread_t waiter = ::pthread_self();
  std::thread sender([&] {
    while (waiting) {
      ::pthread_kill(waiter, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const int64_t took = quickest_of_five(
      [&] { EXPECT_EQ(gradring_wait(comm_.get(), request, 50, nullptr), GRADRING_ERR_DEADLINE); });
  EXPECT_GE(took, 50);
  EXPECT_LE(took, 50 + kLateMs);
  waiting = false;
  sender.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(Wait, EndsWhenAnotherThreadCloses) {
  const gradring_request request = submit_barrier();
  gradring_comm* comm = comm_.release();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      EXPECT_EQ(gradring_wait(comm, request, -1, nullptr), GRADRING_ERR_UNAVAILABLE);
      EXPECT_THAT(gradring_last_error(), HasSubstr("closed by another thread"));
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  gradring_close(comm);
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace gradring::test
