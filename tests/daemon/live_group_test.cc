// Groups of a job's ranks through libgradring and a real daemon; each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <gradring/gradring.hpp>
#include <vector>

#include "tests/daemon/live_ranks.h"

namespace gradring::daemon {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr size_t kElements = 50'000;

class LiveGroupTest : public LiveRanks {
 protected:
  static bool all_are(const Buffer<float>& memory, float value) {
    return std::all_of(memory.begin(), memory.end(), [=](float one) { return one == value; });
  }
  static std::vector<uint32_t> mine(const Communicator& job) {
    return job.rank() % 2 == 0 ? std::vector<uint32_t>{0, 2} : std::vector<uint32_t>{3, 1};
  }
};

TEST_F(LiveGroupTest, SumsAmongItsRanksInMemoryOfTheJob) {
  run("train", [](Communicator& job) {
    auto memory = job.allocate<float>(kElements);
    const Communicator group = job.group(mine(job));
    EXPECT_EQ(group.size(), 2);
    EXPECT_EQ(group.rank(), job.rank() == 0 || job.rank() == 3 ? 0 : 1);
    for (int step = 0; step < 20; ++step) {
      for (float& value : memory) value = static_cast<float>(1 << job.rank());
      group.allreduce(memory);
      ASSERT_TRUE(all_are(memory, job.rank() % 2 == 0 ? 5 : 10)) << "rank " << job.rank();
      job.allreduce(memory);
      ASSERT_TRUE(all_are(memory, 30)) << "rank " << job.rank();
    }
  });
}

TEST_F(LiveGroupTest, WorksBesideTheJobAndOtherGroups) {
  run("train", [](Communicator& job) {
    auto memory = job.allocate<int64_t>(3 * kElements);
    const Communicator pair = job.group(mine(job)), again = job.group(mine(job));
    for (int step = 0; step < 10; ++step) {
      for (int64_t& value : memory) value = job.rank() + 1;
      int64_t* const at = memory.data();
      Request all = job.start_allreduce(at, at, kElements);
      Request some = pair.start_allreduce(at + kElements, at + kElements, kElements, GRADRING_MAX);
      Request others = again.start_allreduce(at + 2 * kElements, at + 2 * kElements, kElements);
      others.wait();
      some.wait();
      all.wait();
      ASSERT_EQ(at[kElements - 1], 10);
      ASSERT_EQ(at[kElements], job.rank() % 2 == 0 ? 3 : 4);
      ASSERT_EQ(at[2 * kElements], job.rank() % 2 == 0 ? 4 : 6);
    }
  });
}

// The kernel gives out the same addresses again and again.
TEST_F(LiveGroupTest, AllocatesWhereTheJobHadRegisteredMemory) {
  run("train", [](Communicator& job) {
    const Communicator group = job.group(mine(job));
    constexpr size_t kBytes = 64 * sizeof(float) * kElements;
    for (int i = 0; i < 4; ++i) {
      void* const old =
          ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(old, MAP_FAILED);
      ASSERT_EQ(gradring_register(job.handle(), old, kBytes), GRADRING_OK);
      group.allreduce(static_cast<float*>(old), static_cast<float*>(old), kElements);
      ASSERT_EQ(gradring_unregister(job.handle(), old), GRADRING_OK);
      ::munmap(old, kBytes);
      auto memory = group.allocate<float>(64 * kElements);
      for (float& value : memory) value = 1;
      group.allreduce(memory);
      ASSERT_TRUE(all_are(memory, 2));
    }
  });
}

TEST_F(LiveGroupTest, ItsEndLeavesTheJobAsItIs) {
  run("train", [](Communicator& job) {
    auto memory = job.allocate<float>(kElements);
    for (int round = 0; round < 5; ++round) {
      const Communicator group = job.group({0, 1, 2, 3});
      for (float& value : memory) value = 1;
      group.allreduce(memory);
      ASSERT_TRUE(all_are(memory, 4));
      group.barrier();
    }
    job.allreduce(memory);
    EXPECT_TRUE(all_are(memory, 16));
  });
}

TEST_F(LiveGroupTest, ARankThatLeavesEndsTheGroupAndNotTheJob) {
  run("train", [](Communicator& job) {
    try {  // rank 2 may have left before another has even heard that the group is there
      const Communicator group = job.group({0, 1, 2, 3});
      if (job.rank() != 2) {
        group.barrier();
        ADD_FAILURE() << "rank 2 was not there";
      }
    } catch (const Error& error) {
      EXPECT_NE(job.rank(), 2) << error.what();
      // Of group() itself the words alone say who.
      EXPECT_THAT(error.result().blamed_rank, AnyOf(2, -1));
      EXPECT_THAT(error.what(), HasSubstr("rank 2"));
    }
    job.barrier();
  });
}

TEST_F(LiveGroupTest, WhoAbortsIsNamedWithItsWordsToAllWhoWaitForItAnywhere) {
  policy_ = "fail";
  run("train", [](Communicator& job) {
    job.barrier();  // all are in it
    if (job.rank() == 3) return job.abort("ended by ValueError: no such batch");
    try {
      auto memory = job.allocate<float>(kElements);
      if (job.rank() == 2) job.allreduce(memory);
      const Communicator group = job.group({0, 1, 2, 3});
      ADD_FAILURE() << "rank 3 was not there";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 3"), HasSubstr("pid"),
                                      HasSubstr("ended by ValueError: no such batch")));
    }
  });
}

TEST_F(LiveGroupTest, AnElasticJobGoesOnWithoutWhoAborts) {
  policy_ = "elastic";
  run("train", [](Communicator& job) {
    auto memory = job.allocate<float>(kElements);
    if (job.rank() == 3) return job.abort("ended by ValueError: no such batch");
    for (float& value : memory) value = 1;
    job.allreduce(memory);
    EXPECT_TRUE(all_are(memory, kRanks - 1));
  });
}

TEST_F(LiveGroupTest, MismatchesAreToldWithinTheGroup) {
  run("train", [](Communicator& job) {
    const Communicator group = job.group(mine(job));
    auto memory = job.allocate<float>(kElements);
    const bool odd = job.rank() == 2;
    try {
      group.allreduce(memory.data(), memory.data(), odd ? 10 : 20);
      EXPECT_EQ(job.rank() % 2, 1);
    } catch (const Error& error) {
      EXPECT_EQ(job.rank() % 2, 0) << error.what();
      EXPECT_EQ(error.result().cause, GRADRING_CAUSE_MISMATCH);
    }
  });
}

TEST_F(LiveGroupTest, AnOpForFewerRanksThanThereAreFailsOnAllOfThemAlike) {
  run("train", [](Communicator& job) {
    auto from = job.allocate<int>(4), to = job.allocate<int>(8);
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = GRADRING_ALLGATHER;
    op.dtype = GRADRING_INT32;
    op.count = 4;
    op.input = from.data();
    op.output = to.data();
    op.ranks = 2;
    try {
      job.start(op).wait();
      ADD_FAILURE() << "rank " << job.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.result().cause, GRADRING_CAUSE_MISMATCH) << error.what();
    }
    job.barrier();
  });
}

}  // namespace
}  // namespace gradring::daemon
