// When memory of gradring_gpu_alloc goes.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <gradring/gradring.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "tests/client/gpu_pool_fixture.h"

namespace gradring::test {
namespace {

using ::testing::Each;

TEST_F(GpuPool, ThatIsFreedOutlastsTheOpsThatNameIt) {
  const uint64_t memory = allocate();
  fill(memory, 6);
  const gradring_request request = submit_alone(sum_of(kBytes, memory, memory));
  const wire::Operation operation = last_operation();
  free(memory);
  ASSERT_TRUE(is_there(memory));
  expect_freed(0);
  EXPECT_THAT(all_of(memory), Each(6));
  daemon_.complete(operation);
  EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
  EXPECT_FALSE(is_there(memory)) << "gone with the last op";
  expect_freed(1);
}

TEST_F(GpuPool, ThatIsFreedMeanwhileGoesWithItsCommunicatorAtTheLatest) {
  const uint64_t memory = allocate();
  submit_alone(sum_of(kBytes, memory, memory));
  free(memory);
  ASSERT_TRUE(is_there(memory));
  job_.reset();
  EXPECT_FALSE(is_there(memory));
}

// It waits for a word that lies where the daemon has the rest.
TEST_F(GpuPool, ThatIsFreedOutlastsTheStreamThatIsToWaitForItsOp) {
  const uint64_t memory = allocate();
  void* const first = gpu_.make_stream();
  void* const second = gpu_.make_stream();
  const gradring_request request = submit_alone(sum_of(kBytes, memory, memory));
  gpu_.hold(second, true);
  for (void* const stream : {first, second}) {
    ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, stream, -1), GRADRING_OK);
  }
  daemon_.complete(last_operation());
  EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
  gpu_.wait_for(first);
  std::thread another([&] { free(memory); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(is_there(memory));
  gpu_.hold(second, false);
  another.join();
  EXPECT_FALSE(is_there(memory));
}

// Other ranks may wait there for what this one does next.
TEST_F(GpuPool, ThatGoesWithItsLastOpIsNotWaitedForWhereAStreamWaitsForAnother) {
  const uint64_t quick = allocate(), slow = allocate();
  const gradring_request late = submit_alone(sum_of(kBytes, slow, slow));
  const wire::Operation last = last_operation();
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), late, gpu_.make_stream(), -1), GRADRING_OK);
  const gradring_request early = submit_alone(sum_of(kBytes, quick, quick));
  free(quick);
  daemon_.complete(last_operation());
  std::thread another([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(kSoonMs));
    daemon_.complete(last);
  });
  const auto start = Clock::now();
  EXPECT_EQ(wait(early), GRADRING_OK) << gradring_last_error();
  EXPECT_LT(ms_since(start), kSoonMs);
  expect_freed(1);
  EXPECT_TRUE(is_there(quick));
  another.join();
  EXPECT_EQ(wait(late), GRADRING_OK) << gradring_last_error();
  EXPECT_FALSE(is_there(quick));
}

TEST_F(GpuPool, StaysUntilTheDaemonHasClosedIt) {
  const uint64_t memory = allocate();
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, memory, memory)));
  daemon_.set([](Script& script) { script.refuse_free = refusal(Code::kInternal, "not yet"); });
  free(memory);
  EXPECT_TRUE(is_there(memory)) << "another process has it open";
  daemon_.set([](Script& script) { script.refuse_free.reset(); });
  const uint64_t other = allocate();
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, other, other)));
  EXPECT_FALSE(is_there(memory)) << "asked again at the next look";
}

TEST_F(GpuPool, IsFreedInBoundedTimeBesideADaemonThatSaysNothing) {
  const uint64_t memory = allocate();
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, memory, memory)));
  daemon_.freeze();
  const auto start = Clock::now();
  free(memory);
  EXPECT_LT(ms_since(start), 2'000 + kSoonMs);
  EXPECT_TRUE(is_there(memory));
}

// A driver does not wait for a GPU that has failed, and need not while somebody captures: nobody
// knows then what uses the memory.
TEST_F(GpuPool, StaysWhereTheDriverDoesNotWaitForTheGpuAndGoesLater) {
  constexpr int kOfACapture = 900;
  const uint64_t first = allocate(), second = allocate(), third = allocate();
  twin_.answer("cuMemFree_v2", kOfACapture);
  free(first);
  free(second);
  EXPECT_TRUE(is_there(first) && is_there(second));
  twin_.answer("cuMemFree_v2", 0);
  free(third);
  EXPECT_FALSE(is_there(first) || is_there(second) || is_there(third));
}

TEST_F(GpuPool, ThatStayedGoesBeforeMoreIsAllocated) {
  const uint64_t memory = allocate();
  twin_.answer("cuMemFree_v2", kNever);
  free(memory);
  EXPECT_TRUE(is_there(memory));
  twin_.answer("cuMemFree_v2", 0);
  twin_.answer("cuMemCreate", kFull);
  void* more = nullptr;
  EXPECT_EQ(gradring_gpu_alloc(kBytes, 0, &more), GRADRING_ERR_EXHAUSTED);
  twin_.answer("cuMemCreate", 0);
  EXPECT_FALSE(is_there(memory));
}

TEST_F(GpuPool, ThatIsFreedWaitsForWorkOfTheGpu) {
  const uint64_t memory = allocate();
  void* const stream = gpu_.make_stream();
  gpu_.hold(stream, true);
  gpu_.fill_later(stream, memory, 5, kBytes / sizeof(float));
  std::thread another([&] { free(memory); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(is_there(memory));
  gpu_.hold(stream, false);
  another.join();
  EXPECT_FALSE(is_there(memory));
}

// Who frees waits for what the GPU has to do with it, which may wait for another op.
TEST_F(GpuPool, ThatIsJustBeingFreedDoesNotKeepItsCommunicatorOpen) {
  const uint64_t slow = allocate(), quick = allocate();
  const gradring_request late = submit_alone(sum_of(kBytes, slow, slow));
  last_operation();
  const gradring_request early = submit_alone(sum_of(kBytes, quick, quick));
  const wire::Operation operation = last_operation();
  for (const gradring_request request : {late, early}) {
    ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
  }
  daemon_.complete(operation);
  EXPECT_EQ(wait(early), GRADRING_OK) << gradring_last_error();
  std::thread another([&] { free(quick); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto start = Clock::now();
  job_.reset();
  EXPECT_LT(ms_since(start), kSoonMs);
  another.join();
  EXPECT_FALSE(is_there(quick));
}

// Who is inside meanwhile enters the pool once more.
TEST_F(GpuPool, IsLeftAlsoByACommunicatorThatIsClosedDuringItsFirstOp) {
  const uint64_t memory = allocate();
  twin_.stall("cuMemHostRegister_v2", true);
  std::thread submits([&] {
    const gradring_op op = sum_of(kBytes, memory, memory);
    gradring_request request = 0;
    EXPECT_NE(gradring_submit(job_.get(), &op, &request), GRADRING_OK);
  });
  while (daemon_.segments() == 0) std::this_thread::yield();
  gradring_comm* const closed = job_.get();
  std::thread closes([closed] { gradring_close(closed); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  twin_.stall("cuMemHostRegister_v2", false);
  submits.join();
  closes.join();
  static_cast<void>(job_.release());
  free(memory);
  EXPECT_FALSE(is_there(memory));
}

TEST_F(GpuPool, IsOfAllCommunicators) {
  const uint64_t memory = allocate();
  Comm other = open(daemon_);
  for (const Comm* const job : {&job_, &other}) {
    const gradring_request request = submit(*job, sum_of(kBytes, memory, memory));
    EXPECT_TRUE(last_operation().on_gpu());
    EXPECT_EQ(gradring_wait(job->get(), request, 10'000, nullptr), GRADRING_OK);
  }
  EXPECT_EQ(shared(), 2u);
  free(memory);
  expect_freed(2);
  EXPECT_FALSE(is_there(memory));
}

TEST_F(GpuPool, OfABufferGoesWithIt) {
  GpuBuffer<float> first(kGpuCount, 0);
  const auto memory = std::bit_cast<uint64_t>(first.data());
  GpuBuffer<float> second(std::move(first));
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): that is what is looked at
  EXPECT_EQ(second.size(), kGpuCount);
  EXPECT_TRUE(is_there(memory));
  second = GpuBuffer<float>();
  EXPECT_FALSE(is_there(memory));
  EXPECT_THROW(GpuBuffer<float>(kGpuCount, 7), Error);
}

TEST_F(GpuPool, OutlivesItsCommunicators) {
  const uint64_t memory = allocate();
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, memory, memory)));
  job_ = open(daemon_);
  EXPECT_TRUE(is_there(memory));
  expect_freed(1);  // closed by the daemon with the one that was closed
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, memory, memory)));
  EXPECT_EQ(shared(), 2u);
}

// The lock must be free in a child that was forked off at any moment, and nothing of the parent's;
// nor is the driver asked there, which would wait for what the parent's streams do.
TEST_F(GpuPool, IsNotOfAForkedChild) {
  const uint64_t memory = allocate();
  fill(memory, 3);
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, memory, memory)));
  test_gpu().hold(nullptr, true);
  const gradring_request under_way = submit(job_, sum_of(kBytes, memory, memory));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    const bool refused = gradring_gpu_free(pointer(memory)) == GRADRING_ERR_NOT_FOUND;
    gradring_close(job_.release());
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  test_gpu().hold(nullptr, false);
  EXPECT_EQ(wait(under_way), GRADRING_OK);
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, memory, memory)));
  EXPECT_THAT(all_of(memory), Each(3));
}

TEST_F(GpuPool, ThatIsAllocatedAndFreedByManyThreadsIsSummedInThem) {
  constexpr int kThreads = 4, kRounds = 10;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this] {
      for (int round = 0; round < kRounds; ++round) {
        const GpuBuffer<float> buffer(kBytes / sizeof(float), 0);
        const auto memory = std::bit_cast<uint64_t>(buffer.data());
        EXPECT_EQ(wait(submit(job_, sum_of(kBytes, memory, memory))), GRADRING_OK)
            << gradring_last_error();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const wire::Operation& operation : daemon_.wait_for_operations(kThreads * kRounds)) {
    EXPECT_TRUE(operation.on_gpu());
  }
  EXPECT_EQ(shared(), size_t{kThreads * kRounds});
  expect_freed(size_t{kThreads * kRounds});
}

}  // namespace
}  // namespace gradring::test
