#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class Group : public ::testing::Test {
 protected:
  Comm group_of(const std::vector<uint32_t>& ranks) { return group_of(job_, ranks); }
  static Comm group_of(const Comm& comm, const std::vector<uint32_t>& ranks) {
    gradring_comm* made = nullptr;
    EXPECT_EQ(gradring_group(comm.get(), ranks.data(), static_cast<uint32_t>(ranks.size()), &made),
              GRADRING_OK)
        << gradring_last_error();
    return Comm(made);
  }
  std::string refused(const std::vector<uint32_t>& ranks) {
    gradring_comm* made = nullptr;
    EXPECT_EQ(gradring_group(job_.get(), ranks.data(), static_cast<uint32_t>(ranks.size()), &made),
              GRADRING_ERR_INVALID);
    EXPECT_EQ(made, nullptr);
    return gradring_last_error();
  }
  // Of the last one who joined.
  wire::Join join(size_t nth) {
    return daemon_.wait_for_messages(wire::ClientMessage::kJoin, nth).at(nth - 1).join();
  }
  static void sum_up(const Comm& comm, float* memory, float expected) {
    ASSERT_EQ(gradring_allreduce(comm.get(), memory, memory, 8, GRADRING_FLOAT32, GRADRING_SUM),
              GRADRING_OK)
        << gradring_last_error();
    EXPECT_EQ(memory[7], expected);
  }

  FakeDaemon daemon_;
  Comm job_ = open(daemon_, 1, 8);
};

TEST_F(Group, IsAJobOfItsOwnWithRanksInTheOrderOfTheList) {
  const Comm group = group_of({3, 1, 5, 6, 7});
  EXPECT_EQ(gradring_rank(group.get()), 1);
  EXPECT_EQ(gradring_size(group.get()), 5);
  const wire::Join joined = join(2);
  EXPECT_EQ(joined.job(), "job[3,1,5-7]");
  EXPECT_EQ(joined.policy(), "fail");
  EXPECT_NE(joined.token(), join(1).token());
  EXPECT_FALSE(join(1).has_within());
  EXPECT_THAT(joined.within().ranks(), testing::ElementsAre(3, 1, 5, 6, 7));
  EXPECT_EQ(gradring_rank(job_.get()), 1);
  EXPECT_EQ(gradring_size(job_.get()), 8);
}

TEST_F(Group, OfTheSameRanksIsCounted) {
  const Comm first = group_of({0, 1}), second = group_of({0, 1}), other = group_of({1, 0});
  EXPECT_EQ(join(2).job(), "job[0-1]");
  EXPECT_EQ(join(3).job(), "job[0-1]#2");
  EXPECT_EQ(join(4).job(), "job[1,0]");
  EXPECT_EQ(join(3).token(), join(2).token());
}

TEST_F(Group, ThatCameAboutNowhereDoesNotCount) {
  daemon_.set(
      [](Script& script) { script.refuse_join = refusal(Code::kDeadlineExceeded, "late"); });
  gradring_comm* made = nullptr;
  const uint32_t ranks[] = {0, 1};
  EXPECT_EQ(gradring_group(job_.get(), ranks, 2, &made), GRADRING_ERR_DEADLINE);
  EXPECT_EQ(made, nullptr);
  EXPECT_STREQ(gradring_last_error(), "late");
  daemon_.set([](Script& script) { script.refuse_join.reset(); });
  const Comm group = group_of({0, 1});
  EXPECT_EQ(join(3).job(), "job[0-1]");
}

TEST_F(Group, IsWaitedForAsLongAsItsMakerSays) {
  gradring_comm* made = nullptr;
  const uint32_t ranks[] = {0, 1};
  const int64_t own = join(1).timeout_ms();
  for (const int64_t given : {int64_t{-1}, int64_t{0}, int64_t{750}}) {
    ASSERT_EQ(gradring_group_timed(job_.get(), ranks, 2, given, &made), GRADRING_OK);
    const Comm group(made);
    EXPECT_EQ(join(given < 0 ? 2 : given == 0 ? 3 : 4).timeout_ms(), given < 0 ? own : given);
  }
  EXPECT_EQ(gradring_group_timed(job_.get(), ranks, 2, -2, &made), GRADRING_ERR_INVALID);
  EXPECT_EQ(made, nullptr);
}

// By the group's name, since its ranks have other numbers than those of the job.
TEST_F(Group, ThatEndsAsItFormsSaysThatItDid) {
  daemon_.set([](Script& script) { script.close_after_join = true; });
  gradring_comm* made = nullptr;
  const uint32_t ranks[] = {1, 3};
  while (gradring_group(job_.get(), ranks, 2, &made) == GRADRING_OK) {
    gradring_close(made);  // the news came behind the answer, and not with it
  }
  EXPECT_EQ(made, nullptr);
  EXPECT_THAT(gradring_last_error(), MatchesRegex("job job\\[1,3\\](#[0-9]+)?: rank 1 died"));
}

TEST_F(Group, OfAGroupNamesItsRanks) {
  const Comm group = group_of({1, 2, 4});
  const Comm inner = group_of(group, {2, 0});
  EXPECT_EQ(join(3).job(), "job[1-2,4][2,0]");
  EXPECT_THAT(join(3).within().ranks(), testing::ElementsAre(2, 0)) << "by its numbers there";
  EXPECT_EQ(gradring_rank(inner.get()), 1);
}

TEST_F(Group, OfManyRanksHasAShortName) {
  FakeDaemon daemon;
  const Comm job = open(daemon, 0, 200);
  std::vector<uint32_t> even(100);
  for (uint32_t i = 0; i < 100; ++i) even[i] = 2 * i;
  const Comm group = group_of(job, even);
  std::swap(even[98], even[99]);
  const Comm other = group_of(job, even);
  const auto joins = daemon.wait_for_messages(wire::ClientMessage::kJoin, 3);
  const std::string name = joins.at(1).join().job();
  EXPECT_THAT(name, AllOf(StartsWith("job[0,2,4,"), HasSubstr(".., 100 ranks, ")));
  EXPECT_LT(name.size(), 80u);
  EXPECT_NE(joins.at(2).join().job(), name);
}

TEST_F(Group, RefusesRanksThatMakeNoSense) {
  EXPECT_THAT(refused({0, 2}), HasSubstr("rank 1 makes a group without itself"));
  EXPECT_THAT(refused({1, 8}), HasSubstr("rank 8 is not in job job, which has 8 ranks"));
  EXPECT_THAT(refused({1, 0, 1}), HasSubstr("rank 1 is in the group twice"));
  EXPECT_THAT(refused({}), HasSubstr("a group has ranks"));
  EXPECT_EQ(gradring_group(job_.get(), nullptr, 1, nullptr), GRADRING_ERR_INVALID);
  const uint32_t own = 1;
  gradring_comm* made = nullptr;
  EXPECT_EQ(gradring_group(job_.get(), &own, UINT32_MAX, &made), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("a group of 4294967295 ranks"));
  EXPECT_EQ(gradring_group(nullptr, &own, 1, &made), GRADRING_ERR_INVALID);
}

TEST_F(Group, NamesTheMemoryOfItsFamily) {
  const Comm group = group_of({0, 1}), other = group_of({1, 2, 3});
  float* of_job = alloc(job_, 8);
  float* of_group = alloc(group, 8);
  of_job[7] = of_group[7] = 1;
  // The fake daemon knows one job, of as many ranks as the last one who joined said.
  sum_up(job_, of_job, 3);
  sum_up(group, of_job, 9);
  sum_up(group, of_job, 27);
  sum_up(other, of_job, 81);
  sum_up(other, of_group, 3);
  sum_up(job_, of_group, 9);
  EXPECT_EQ(daemon_.borrowed(), 4u) << "once for each communicator and segment";
  EXPECT_EQ(gradring_free(group.get(), of_job), GRADRING_ERR_NOT_FOUND);
  EXPECT_THAT(gradring_last_error(), HasSubstr("of this communicator"));
  EXPECT_EQ(gradring_free(job_.get(), of_job), GRADRING_OK);
}

TEST_F(Group, CopiesWhatAnotherHasRegistered) {
  const Comm group = group_of({0, 1});
  std::vector<float> values(8, 3);
  ASSERT_EQ(gradring_register(job_.get(), values.data(), sizeof(float) * 8), GRADRING_OK);
  sum_up(group, values.data(), 6);
  EXPECT_EQ(gradring_unregister(group.get(), values.data()), GRADRING_ERR_NOT_FOUND);
  // Registered anew, and larger: what the group has borrowed is of no use.
  ASSERT_EQ(gradring_unregister(job_.get(), values.data()), GRADRING_OK);
  std::vector<float> more(4096, 1);
  ASSERT_EQ(gradring_register(job_.get(), more.data(), sizeof(float) * 8), GRADRING_OK);
  sum_up(group, more.data(), 2);
  ASSERT_EQ(gradring_unregister(job_.get(), more.data()), GRADRING_OK);
  ASSERT_EQ(gradring_register(job_.get(), more.data(), sizeof(float) * 4096), GRADRING_OK);
  sum_up(group, more.data() + 4088, 2);
}

TEST_F(Group, DoesNotFindWhatWasFreed) {
  const Comm group = group_of({0, 1});
  float* memory = alloc(job_, 8);
  sum_up(group, memory, 0);
  ASSERT_EQ(gradring_free(job_.get(), memory), GRADRING_OK);
  EXPECT_EQ(gradring_allreduce(group.get(), memory, memory, 8, GRADRING_FLOAT32, GRADRING_SUM),
            GRADRING_ERR_NOT_FOUND);
  EXPECT_EQ(daemon_.segments(), 0u) << "the group gave it back";
}

// Its address may be that of memory which another of the family had registered, and which was
// unmapped since.
TEST_F(Group, AllocatesWhereAnotherHadRegisteredMemory) {
  constexpr size_t kBytes = size_t{1} << 20;
  const Comm group = group_of({0, 1});
  for (int i = 0; i < 3; ++i) {
    void* const old =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(old, MAP_FAILED);
    ASSERT_EQ(gradring_register(job_.get(), old, kBytes), GRADRING_OK);
    sum_up(group, static_cast<float*>(old), 0);
    ASSERT_EQ(gradring_unregister(job_.get(), old), GRADRING_OK);
    ::munmap(old, kBytes);
    auto* const memory = alloc<float>(group, kBytes / sizeof(float));
    std::fill_n(memory, kBytes / sizeof(float), 1.0f);
    sum_up(group, memory, 2);
    EXPECT_EQ(gradring_free(group.get(), memory), GRADRING_OK) << gradring_last_error();
  }
}

// Else the result would be copied to where there may be anything else by then.
TEST_F(Group, KeepsWhatItsOpsName) {
  const Comm group = group_of({0, 1});
  std::vector<float> own(8, 1);
  ASSERT_EQ(gradring_register(job_.get(), own.data(), sizeof(float) * 8), GRADRING_OK);
  float* const memory = alloc(job_, 8);
  sum_up(group, memory, 0);
  daemon_.set([](Script& script) { script.complete = false; });
  const gradring_op ops[] = {sum_of(own.data(), own.data(), 8), sum_of(memory, memory, 8)};
  gradring_request requests[2] = {};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(gradring_submit(group.get(), &ops[i], &requests[i]), GRADRING_OK);
  }
  EXPECT_EQ(gradring_unregister(job_.get(), own.data()), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("is lent to requests"));
  EXPECT_EQ(gradring_free(job_.get(), memory), GRADRING_ERR_INVALID);
  const auto operations = daemon_.wait_for_operations(3);
  for (size_t i = 1; i < operations.size(); ++i) daemon_.complete(operations[i]);
  for (const gradring_request request : requests) {
    EXPECT_EQ(gradring_wait(group.get(), request, 10'000, nullptr), GRADRING_OK);
  }
  EXPECT_EQ(gradring_unregister(job_.get(), own.data()), GRADRING_OK) << gradring_last_error();
  EXPECT_EQ(gradring_free(job_.get(), memory), GRADRING_OK) << gradring_last_error();
}

TEST_F(Group, GoesOnWhenTheJobItWasMadeFromIsClosed) {
  const Comm group = group_of({0, 1});
  float* of_job = alloc(job_, 8);
  float* of_group = alloc(group, 8);
  sum_up(group, of_job, 0);
  job_.reset();
  of_group[7] = 1;
  sum_up(group, of_group, 2);
  EXPECT_EQ(gradring_allreduce(group.get(), of_job, of_job, 8, GRADRING_FLOAT32, GRADRING_SUM),
            GRADRING_ERR_NOT_FOUND);
}

TEST_F(Group, IsNotWaitedForWhenTheJobItIsMadeFromIsClosed) {
  daemon_.set([](Script& script) { script.answer_join = false; });
  std::thread waiting([&] {
    const std::vector<uint32_t> ranks = {0, 1};
    gradring_comm* made = nullptr;
    EXPECT_EQ(gradring_group(job_.get(), ranks.data(), 2, &made), GRADRING_ERR_UNAVAILABLE);
    EXPECT_THAT(gradring_last_error(), HasSubstr("closed by another thread"));
    EXPECT_EQ(made, nullptr);
  });
  join(2);
  const auto start = Clock::now();
  gradring_close(job_.get());
  EXPECT_LT(ms_since(start), kSoonMs);
  waiting.join();
  static_cast<void>(job_.release());
}

TEST_F(Group, OfADaemonThatDoesNotLendHasItsOwnMemory) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.lends = false; });
  const Comm job = open(daemon, 0, 4);
  const Comm group = group_of(job, {0, 1});
  float* of_group = alloc(group, 8);
  of_group[7] = 1;
  sum_up(group, of_group, 2);
  float* of_job = alloc(job, 8);
  EXPECT_EQ(gradring_allreduce(group.get(), of_job, of_job, 8, GRADRING_FLOAT32, GRADRING_SUM),
            GRADRING_ERR_INCOMPATIBLE);
  EXPECT_THAT(gradring_last_error(), HasSubstr("too old"));
}

TEST_F(Group, MayNameWhatTwoOfTheFamilyHaveRegisteredWhileOneStillHas) {
  const Comm one = group_of({0, 1}), other = group_of({0, 1});
  for (const bool first_stays : {true, false}) {
    std::vector<float> memory(8, 1.0F);
    const Comm& stays = first_stays ? job_ : one;
    const Comm& goes = first_stays ? one : job_;
    for (gradring_comm* const comm : {job_.get(), one.get()}) {
      ASSERT_EQ(gradring_register(comm, memory.data(), 32), GRADRING_OK);
    }
    EXPECT_EQ(gradring_unregister(goes.get(), memory.data()), GRADRING_OK);
    sum_up(other, memory.data(), 2);
    EXPECT_EQ(gradring_unregister(stays.get(), memory.data()), GRADRING_OK);
    const gradring_op op = sum_of(memory.data(), memory.data(), 8);
    gradring_request request = 0;
    EXPECT_EQ(gradring_submit(other.get(), &op, &request), GRADRING_ERR_NOT_FOUND);
  }
}

}  // namespace
}  // namespace gradring::test
