// Sends, receives and blocks that differ through libgradring and a real daemon; each rank is a
// thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <gradring/gradring.hpp>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/daemon/live_daemon.h"
#include "tests/daemon/live_ranks.h"

namespace gradring::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using LivePairsTest = LiveRanks;

// The deadlock of every library whose send waits for the receiver.
TEST_F(LivePairsTest, AllSendToTheNextBeforeAnyReceives) {
  run("train", [](Communicator& job) {
    constexpr size_t kCount = 50'000;
    const auto rank = static_cast<unsigned>(job.rank());
    auto given = job.allocate<int>(kCount), got = job.allocate<int>(kCount);
    for (int step = 0; step < 20; ++step) {
      std::ranges::fill(given, static_cast<int>(100 * rank) + step);
      Request sent = job.start_send(given.data(), kCount, (rank + 1) % unsigned{kRanks});
      job.recv(got.data(), kCount, (rank + kRanks - 1u) % unsigned{kRanks});
      sent.wait();
      ASSERT_EQ(got[kCount - 1],
                static_cast<int>(100 * ((rank + kRanks - 1u) % unsigned{kRanks})) + step);
    }
  });
}

TEST_F(LivePairsTest, AReceiveMayComeLongBeforeItsSend) {
  run("train", [](Communicator& job) {
    auto memory = job.allocate<double>(3);
    if (job.rank() == 3) {
      Request late = job.start_recv(memory.data(), 3, 1, "late");
      job.barrier();
      late.wait();
      EXPECT_EQ(memory[2], 7);
    } else {
      std::ranges::fill(memory, 7);
      job.barrier();
      if (job.rank() == 1) job.send(memory.data(), 3, 3, "late");
    }
  });
}

TEST_F(LivePairsTest, AMismatchIsToldToTheTwo) {
  run("train", [](Communicator& job) {
    auto memory = job.allocate<float>(100);
    try {
      if (job.rank() == 0) job.send(memory.data(), 100, 2);
      if (job.rank() == 2) job.recv(memory.data(), 99, 0);
      EXPECT_EQ(job.rank() % 2, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.result().cause, GRADRING_CAUSE_MISMATCH) << error.what();
      EXPECT_THAT(error.what(), AllOf(HasSubstr(job.rank() == 0 ? "send to rank 2" : "from rank 0"),
                                      HasSubstr("submitted transfer of 99 float32 from rank 0"),
                                      HasSubstr("rank 2 (node"), Not(HasSubstr("rank 1"))));
    }
    job.barrier();
    // That failed for itself: the pair goes on.
    if (job.rank() == 0) job.send(memory.data(), 100, 2);
    if (job.rank() == 2) job.recv(memory.data(), 100, 0);
  });
}

TEST_F(LivePairsTest, WithinAGroupRanksAreThoseOfTheGroup) {
  run("train", [](Communicator& job) {
    auto memory = job.allocate<int>(1);
    memory[0] = job.rank();
    const Communicator group = job.group({3, 2, 1, 0});
    if (group.rank() == 0) group.send(memory.data(), 1, 2);
    if (group.rank() == 2) {
      group.recv(memory.data(), 1, 0);
      EXPECT_EQ(memory[0], 3);
    }
    group.barrier();
  });
}

TEST_F(LivePairsTest, BlocksOfAllLengths) {
  run("train", [](Communicator& job) {
    const std::vector<uint64_t> counts = {3, 0, 70'000, 11};
    const auto me = static_cast<size_t>(job.rank());
    auto mine = job.allocate<int64_t>(counts[me] + 1);
    auto all = job.allocate<int64_t>(70'014);
    std::iota(mine.begin(), mine.end(), static_cast<int64_t>(1000 * me));
    job.start_allgather(mine.data(), all.data(), counts).wait();
    EXPECT_EQ(all[2], 2);
    EXPECT_EQ(all[3], 2000);
    EXPECT_EQ(all[70'002], 2000 + 69'999);
    EXPECT_EQ(all[70'013], 3010);
    std::ranges::fill(mine, -1);
    job.start_reduce_scatter(all.data(), mine.data(), counts).wait();
    if (me == 3) {
      EXPECT_EQ(mine[10], 4 * 3010);
    }
    EXPECT_EQ(mine[counts[me]], -1) << "nothing is written behind the block";
  });
}

}  // namespace
}  // namespace gradring::daemon
