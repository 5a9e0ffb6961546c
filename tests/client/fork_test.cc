#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

// Exit status of a forked child that runs `body`; -1 if it does not end within ten seconds.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  const auto start = Clock::now();
  int status = 0;
  while (ms_since(start) < 10'000) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return -1;
}

size_t count_descriptors() {
  size_t count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

class Fork : public ::testing::Test {
 protected:
  void expect_parent_goes_on() {
    memory_[0] = 21;
    EXPECT_EQ(gradring_allreduce(comm_.get(), memory_, memory_, 16, GRADRING_FLOAT32, GRADRING_SUM),
              GRADRING_OK)
        << gradring_last_error();
    EXPECT_EQ(memory_[0], 42);
  }

  FakeDaemon daemon_;
  Comm comm_ = open(daemon_, 1, 2);
  float* memory_ = alloc(comm_, 16);
};

TEST_F(Fork, MakesEveryCallInTheChildSaySo) {
  const int status = in_child([&] {
    gradring_comm* comm = comm_.get();
    void* memory = nullptr;
    int done = 0;
    gradring_request request = 0;
    const gradring_op op = barrier_op();
    if (gradring_alloc(comm, 64, &memory) != GRADRING_ERR_FORKED) return 1;
    if (gradring_free(comm, memory_) != GRADRING_ERR_FORKED) return 2;
    if (gradring_register(comm, &done, 4) != GRADRING_ERR_FORKED) return 3;
    if (gradring_unregister(comm, &done) != GRADRING_ERR_FORKED) return 4;
    if (gradring_submit(comm, &op, &request) != GRADRING_ERR_FORKED) return 5;
    if (gradring_wait(comm, 1, -1, nullptr) != GRADRING_ERR_FORKED) return 6;
    if (gradring_test(comm, 1, &done, nullptr) != GRADRING_ERR_FORKED) return 7;
    if (gradring_barrier(comm) != GRADRING_ERR_FORKED) return 8;
    if (std::strstr(gradring_last_error(), "forked") == nullptr) return 9;
    if (gradring_rank(comm) != 1 || gradring_size(comm) != 2) return 10;
    return 0;
  });
  EXPECT_EQ(status, 0);
  expect_parent_goes_on();
}

TEST_F(Fork, LetsTheChildReadWhatLiesInTheParentsBuffers) {
  memory_[7] = 5;
  EXPECT_EQ(in_child([&] { return memory_[7] == 5 ? 0 : 1; }), 0);
}

TEST_F(Fork, LetsTheChildCloseWithoutDisturbingTheParent) {
  const int status = in_child([&] {
    gradring_close(comm_.release());
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(daemon_.wait_for_messages(wire::ClientMessage::kLeave, 0).empty());
  expect_parent_goes_on();
}

// A child that lives on, like a DataLoader's worker, must not hide its parent's death: it must not
// hold the attach socket.
TEST_F(Fork, ClosesTheAttachSocketInTheChild) {
  const size_t before = count_descriptors();
  const int status = in_child([&] { return static_cast<int>(before - count_descriptors()); });
  EXPECT_EQ(status, 2) << "the attach socket and the reader's eventfd";
  EXPECT_EQ(count_descriptors(), before);
  expect_parent_goes_on();
}

// Here locks and condition variables of the library have sleepers that do not exist in the child.
TEST_F(Fork, WhileOtherThreadsWaitLetsTheChildClose) {
  daemon_.set([](Script& script) { script.complete = false; });
  const gradring_request first = submit(comm_, barrier_op());
  const gradring_request second = submit(comm_, barrier_op());
  const auto operations = daemon_.wait_for_operations(2);
  std::vector<std::thread> threads;
  for (const gradring_request request : {first, second}) {
    threads.emplace_back([this, request] {
      EXPECT_EQ(gradring_wait(comm_.get(), request, -1, nullptr), GRADRING_OK);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  gradring_comm* comm = comm_.get();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(in_child([&] {
                gradring_close(comm);
                return 0;
              }),
              0);
  }
  for (const auto& operation : operations) daemon_.complete(operation);
  for (auto& thread : threads) thread.join();
  daemon_.set([](Script& script) { script.complete = true; });
  expect_parent_goes_on();
}

TEST_F(Fork, WhileOtherThreadsAreBusyLeavesTheChildWhole) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        auto* memory = alloc<float>(comm_, 16);
        EXPECT_EQ(gradring_barrier(comm_.get()), GRADRING_OK);
        EXPECT_EQ(gradring_free(comm_.get(), memory), GRADRING_OK);
      }
    });
  }
  gradring_comm* comm = comm_.get();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([&] {
                if (gradring_barrier(comm) != GRADRING_ERR_FORKED) return 1;
                gradring_close(comm);
                return 0;
              }),
              0);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  expect_parent_goes_on();
}

TEST_F(Fork, LetsTheChildOpenItsOwn) {
  const int status = in_child([&] {
    gradring_options options = options_for(daemon_.runtime_dir(), 0, 2);
    gradring_comm* own = nullptr;
    if (gradring_open(&options, &own) != GRADRING_OK) return 1;
    void* memory = nullptr;
    if (gradring_alloc(own, 64, &memory) != GRADRING_OK) return 2;
    auto* values = static_cast<float*>(memory);
    values[0] = 4;
    if (gradring_allreduce(own, values, values, 16, GRADRING_FLOAT32, GRADRING_SUM) !=
        GRADRING_OK) {
      return 3;
    }
    if (values[0] != 8) return 4;
    // And a child of the child is a stranger to it again.
    if (in_child([&] { return gradring_barrier(own) == GRADRING_ERR_FORKED ? 0 : 1; }) != 0)
      return 5;
    if (gradring_barrier(own) != GRADRING_OK) return 6;
    gradring_close(own);
    return 0;
  });
  EXPECT_EQ(status, 0);
  expect_parent_goes_on();
}

TEST_F(Fork, OfAChildThatEndsLeavesTheParentAttached) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(in_child([] { return 0; }), 0);
  expect_parent_goes_on();
  EXPECT_TRUE(daemon_.wait_for_messages(wire::ClientMessage::kLeave, 0).empty());
}

}  // namespace
}  // namespace gradring::test
