// Ranks without more data through libgradring and a real daemon; each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <gradring/gradring.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tests/daemon/live_ranks.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

using LiveJoinTest = LiveRanks;

class LiveJoinOfLittleMemoryTest : public LiveRanks {
 protected:
  LiveJoinOfLittleMemoryTest() : LiveRanks({"--segment-limit", "8M"}) {}
};

// Instead of leaving the others waiting.
TEST_F(LiveJoinOfLittleMemoryTest, WhatThereIsNoMemoryForFailsAloneAndNamesTheRank) {
  run("train", [](Communicator& job) {
    constexpr size_t kCount = 400'000;
    if (job.rank() != 2) {
      auto memory = job.allocate<float>(kCount);
      try {
        job.allreduce(memory);
        ADD_FAILURE() << "rank 2 has no memory to stand in";
      } catch (const Error& error) {
        EXPECT_EQ(error.result().cause, GRADRING_CAUSE_MISMATCH);
        EXPECT_THAT(error.what(), HasSubstr("rank 2"));
      }
      std::fill_n(memory.begin(), 4, 1.0F);
      job.allreduce(memory.data(), memory.data(), 4);
      EXPECT_EQ(memory[3], 3) << "the next op is as good as ever";
      job.join();
    } else {
      const auto most = job.allocate<float>(700'000);
      job.join();
    }
  });
}

TEST_F(LiveJoinTest, SumsAreThoseOfTheRanksThatHaveData) {
  run("train", [](Communicator& job) {
    constexpr size_t kCount = 10'000;
    auto memory = job.allocate<float>(kCount);
    for (int epoch = 0; epoch < 3; ++epoch) {
      const int mine = 5 * ((job.rank() + epoch) % kRanks);
      for (int step = 0; step < mine; ++step) {
        std::ranges::fill(memory, static_cast<float>(1 << job.rank()));
        float expected = 0;
        for (int rank = 0; rank < kRanks; ++rank) {
          if (step < 5 * ((rank + epoch) % kRanks)) expected += static_cast<float>(1 << rank);
        }
        job.allreduce(memory);
        ASSERT_EQ(memory[kCount - 1], expected) << "step " << step << " of epoch " << epoch;
      }
      EXPECT_EQ(job.join(), static_cast<uint32_t>(kRanks - 1 - epoch));
    }
    std::ranges::fill(memory, 1.0F);
    job.allreduce(memory);
    EXPECT_EQ(memory[0], 4) << "all go on";
  });
}

TEST_F(LiveJoinTest, NothingThatIsReducedShowsThem) {
  run("train", [](Communicator& job) {
    if (job.rank() != 3) {
      auto f = job.allocate<float>(2);
      auto i = job.allocate<int16_t>(2);
      const auto all = [&](auto& memory, auto value, gradring_reduce_op op) {
        std::ranges::fill(memory, value);
        job.allreduce(memory, op);
        return memory[1];
      };
      EXPECT_EQ(all(f, 5.0F, GRADRING_MIN), 5);
      EXPECT_EQ(all(f, -5.0F, GRADRING_MAX), -5);
      EXPECT_EQ(all(f, std::numeric_limits<float>::infinity(), GRADRING_MIN),
                std::numeric_limits<float>::infinity());
      EXPECT_EQ(all(f, 2.0F, GRADRING_PRODUCT), 8);
      EXPECT_EQ(all(f, 4.0F, GRADRING_AVERAGE), 3) << "of all ranks";
      EXPECT_EQ(all(i, int16_t{7}, GRADRING_MIN), 7);
      EXPECT_EQ(all(i, int16_t{-7}, GRADRING_MAX), -7);
      EXPECT_EQ(all(i, int16_t{0x55}, GRADRING_BAND), 0x55);
      EXPECT_EQ(all(i, int16_t{0x55}, GRADRING_BOR), 0x55);
    }
    job.join();
  });
}

TEST_F(LiveJoinTest, OtherCollectivesGetZeros) {
  run("train", [](Communicator& job) {
    if (job.rank() != 1) {
      auto mine = job.allocate<int>(kRanks), all = job.allocate<int>(kRanks);
      std::ranges::fill(mine, 10 + job.rank());
      job.allgather(mine.data(), all.data(), 1);
      EXPECT_THAT(std::vector<int>(all.begin(), all.end()), testing::ElementsAre(10, 0, 12, 13));
      job.alltoall(mine.data(), all.data(), 1);
      EXPECT_THAT(std::vector<int>(all.begin(), all.end()), testing::ElementsAre(10, 0, 12, 13));
      job.reduce(mine.data(), all.data(), 1, 2);
      EXPECT_TRUE(job.rank() != 2 || all[0] == 35);
      job.broadcast(mine.data(), 1, 3);
      EXPECT_EQ(mine[0], 13);
      job.barrier();
    }
    job.join();
  });
}

TEST_F(LiveJoinTest, WhatNeedsTheRankItselfFailsAloneAndNamesIt) {
  run("train", [](Communicator& job) {
    auto memory = job.allocate<float>(4);
    if (job.rank() != 2) {
      try {
        job.broadcast(memory.data(), 4, 2);
        ADD_FAILURE() << "rank 2 has nothing to give";
      } catch (const Error& error) {
        EXPECT_EQ(error.result().cause, GRADRING_CAUSE_MISMATCH);
        EXPECT_THAT(error.what(), HasSubstr("submitted join"));
      }
      std::ranges::fill(memory, 1.0F);
      job.allreduce(memory);
      EXPECT_EQ(memory[3], 3) << "the next op is as good as ever";
    }
    job.join();
    std::ranges::fill(memory, 1.0F);
    job.allreduce(memory);
    EXPECT_EQ(memory[3], 4) << "all count alike";
  });
}

TEST_F(LiveJoinTest, ManyNamedOpsAtOnceInAnyOrder) {
  run("train", [](Communicator& job) {
    constexpr size_t kOps = 200;
    if (job.rank() < 2) {
      auto memory = job.allocate<float>(kOps * 100);
      for (int step = 0; step < 3; ++step) {
        std::ranges::fill(memory, 1.0F);
        std::vector<Request> open;
        for (size_t i = 0; i < kOps; ++i) {
          const size_t op = job.rank() == 0 ? i : kOps - 1 - i;
          const std::string name = "layer" + std::to_string(op);
          float* at = memory.data() + op * 100;
          open.push_back(job.start_allreduce(at, at, 100, GRADRING_SUM, name.c_str()));
        }
        for (Request& request : open) request.wait();
        ASSERT_TRUE(std::ranges::all_of(memory, [](float value) { return value == 2; }));
      }
    }
    job.join();
  });
}

TEST_F(LiveJoinTest, WhatTheOthersWaitInEndsWhereARankGoesBack) {
  run("train", [](Communicator& job) {
    auto memory = job.allocate<float>(4);
    const auto fails = [&](auto op) {
      try {
        op();
        ADD_FAILURE() << "rank 2 does not come";
      } catch (const Error& error) {
        EXPECT_EQ(error.result().cause, GRADRING_CAUSE_MISMATCH);
        EXPECT_THAT(error.what(), HasSubstr("rank 2"));
      }
    };
    const auto all_go_on = [&] {
      job.abandon();
      std::ranges::fill(memory, 1.0F);
      job.allreduce(memory);
      EXPECT_EQ(memory[3], kRanks);
    };
    if (job.rank() != 2) fails([&] { job.allreduce(memory); });
    all_go_on();
    if (job.rank() != 2) fails([&] { job.join_point(); });
    all_go_on();
    if (job.rank() == 0) {  // what one alone has begun keeps nobody
      auto request = job.start_allreduce(memory.data(), memory.data(), 4, GRADRING_SUM, "alone");
      job.abandon();
      EXPECT_THROW(request.wait(), Error);
    } else {
      job.abandon();
    }
    all_go_on();
  });
}

}  // namespace
}  // namespace gradring::daemon
