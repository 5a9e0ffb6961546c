// Whom an op waits for, told by a real daemon to the ranks that wait.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <gradring/gradring.hpp>
#include <string>
#include <thread>

#include "tests/daemon/live_daemon.h"
#include "tests/daemon/live_ranks.h"

namespace gradring::daemon {
namespace {

// The first two ranks on a node, the other two on another.
class LiveProgressTest : public LiveRanks {
 protected:
  LiveProgressTest() : LiveRanks({"--peer", "127.0.0.1:" + std::to_string(port())}, "a", 0) {}
  const LiveDaemon& daemon_of(int rank) const override { return rank < 2 ? daemon_ : other_; }
  static int port() {
    static const int the_port = free_port();
    return the_port;
  }
  // Asks until it says so, at most 10 s.
  static void until(Request& request, const std::string& told) {
    const auto start = std::chrono::steady_clock::now();
    while (request.progress().message != told &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(10)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(request.progress().message, told);
  }
  static std::string at(int rank, const std::string& node) {
    return "rank " + std::to_string(rank) + " (node " + node + ", pid " + std::to_string(getpid()) +
           ")";
  }

  LiveDaemon other_{{"--peer", daemon_.listen()}, "b", port()};
  std::atomic<int> waited_ = 0;
};

TEST_F(LiveProgressTest, IsOfTheRankThatIsMissingOrOfItsNode) {
  run("train", [&](Communicator& job) {
    auto memory = job.allocate<float>(10);
    if (job.rank() == 3) {
      while (waited_ < kRanks - 1) std::this_thread::yield();
    }
    Request sum = job.start_allreduce(memory.data(), memory.data(), 10);
    if (job.rank() != 3) {
      const std::string what = "allreduce sum of 10 float32 (op 0) waits for ";
      until(sum, what + (job.rank() == 2 ? at(3, "b") : "a rank of node b (ranks 2 to 3)"));
      EXPECT_EQ(sum.progress().first, 0);
      ++waited_;
    }
    sum.wait();
  });
}

TEST_F(LiveProgressTest, IsOfTheSenderAndOfTheRanksOfAGroup) {
  run("train", [&](Communicator& job) {
    auto memory = job.allocate<float>(10);
    if (job.rank() == 3) {
      const Communicator group = job.group({3, 0});
      while (waited_ < 1) std::this_thread::yield();
      job.send(memory.data(), 10, 0);
      while (waited_ < 2) std::this_thread::yield();
      group.allreduce(memory);
    }
    if (job.rank() == 0) {
      const Communicator group = job.group({3, 0});
      Request got = job.start_recv(memory.data(), 10, 3);
      until(got, "receive from rank 3 waits for rank 3");
      ++waited_;
      got.wait();
      Request sum = group.start_allreduce(memory.data(), memory.data(), 10);
      until(sum, "allreduce sum of 10 float32 (op 0) waits for " + at(0, "b"));
      EXPECT_EQ(sum.progress().first, 1) << "in the group's own numbers";
      ++waited_;
      sum.wait();
    }
  });
}

}  // namespace
}  // namespace gradring::daemon
