#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "client/src/memory/segments.h"
#include "tests/client/trainer.h"
#include "tests/sanitized.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Memory, IsPageAlignedZeroAndWritable) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  constexpr size_t kCount = 5000;
  auto* memory = alloc<unsigned char>(comm, kCount);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % static_cast<size_t>(::sysconf(_SC_PAGESIZE)), 0u);
  EXPECT_THAT(std::vector<unsigned char>(memory, memory + kCount), Each(0));
  std::fill_n(memory, kCount, static_cast<unsigned char>(1));
  EXPECT_EQ(gradring_free(comm.get(), memory), GRADRING_OK);
  EXPECT_EQ(daemon.segments(), 0u);
}

TEST(Memory, IsFreedOnceAndOnlyWhereItBegins) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  float* memory = alloc(comm, 8);
  EXPECT_EQ(gradring_free(comm.get(), memory + 1), GRADRING_ERR_NOT_FOUND);
  EXPECT_EQ(gradring_free(comm.get(), nullptr), GRADRING_ERR_NOT_FOUND);
  EXPECT_EQ(gradring_unregister(comm.get(), memory), GRADRING_ERR_NOT_FOUND);
  EXPECT_EQ(gradring_free(comm.get(), memory), GRADRING_OK);
  EXPECT_EQ(gradring_free(comm.get(), memory), GRADRING_ERR_NOT_FOUND);
}

// Else each submission takes as long as there are ops under way.
TEST(Memory, OfTheHostKeepsNoListOfWhatIsGivenOfIt) {
  client::Segment segment;
  const client::Loan first({&segment, 0}, {0, 8, false});
  const client::Loan second({&segment, 8}, {8, 8, false});
  EXPECT_EQ(segment.lent, 2u);
  EXPECT_THAT(segment.given, IsEmpty());
}

// More threads ask than the daemon's socket takes while the daemon does something else.
TEST(Memory, IsAskedForByMoreThreadsThanTheSocketHolds) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  daemon.freeze();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kManyThreads; ++i) {
    threads.emplace_back([&] { alloc<unsigned char>(comm, 1); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  daemon.thaw();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon.segments(), kManyThreads);
}

// Nothing else may be found at its address.
TEST(Memory, WhereSomethingWasFreedThatIsStillRegisteredIsRefused) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  constexpr size_t kBytes = size_t{1} << 20;
  void* const old =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(old, MAP_FAILED);
  ASSERT_EQ(gradring_register(comm.get(), old, kBytes), GRADRING_OK);
  ::munmap(old, kBytes);
  void* memory = nullptr;
  const gradring_code code = gradring_alloc(comm.get(), kBytes, &memory);
  if (code == GRADRING_OK) {  // it came to lie elsewhere
    EXPECT_NE(memory, old);
    return;
  }
  EXPECT_EQ(code, GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("gradring_unregister"));
  EXPECT_EQ(daemon.segments(), 1u);
  ASSERT_EQ(gradring_unregister(comm.get(), old), GRADRING_OK);
  EXPECT_NE(alloc<unsigned char>(comm, kBytes), nullptr);
}

TEST(Memory, OfNoBytesIsRefused) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  void* memory = &daemon;
  EXPECT_EQ(gradring_alloc(comm.get(), 0, &memory), GRADRING_ERR_INVALID);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(gradring_alloc(comm.get(), 1, nullptr), GRADRING_ERR_INVALID);
}

TEST(Memory, BeyondTheDaemonsCapIsRefusedInItsWords) {
  FakeDaemon daemon;
  daemon.set([](Script& script) {
    script.refuse_allocate = refusal(Code::kResourceExhausted, "segment-limit of 1 MiB is reached");
  });
  const Comm comm = open(daemon);
  void* memory = nullptr;
  EXPECT_EQ(gradring_alloc(comm.get(), 4096, &memory), GRADRING_ERR_EXHAUSTED);
  EXPECT_STREQ(gradring_last_error(), "segment-limit of 1 MiB is reached");
}

// The kernel leaves the descriptor out of the packet. A child, so that the daemon has its own.
TEST(Memory, ForWhichThereIsNoDescriptorIsRefusedAndAllElseGoesOn) {
  if (kSanitized) GTEST_SKIP() << "UBSan needs descriptors to look at an object's type";
  FakeDaemon daemon;
  const pid_t child = ::fork();
  if (child == 0) {
    const Comm comm = open(daemon);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t before = limit.rlim_cur;
    const int free = ::dup(STDERR_FILENO);
    ::close(free);
    limit.rlim_cur = static_cast<rlim_t>(free);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    void* memory = nullptr;
    if (gradring_alloc(comm.get(), 8192, &memory) != GRADRING_ERR_EXHAUSTED) ::_exit(1);
    if (std::string(gradring_last_error()).find("descriptors") == std::string::npos) ::_exit(2);
    if (gradring_barrier(comm.get()) != GRADRING_OK) ::_exit(3);
    limit.rlim_cur = before;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (gradring_alloc(comm.get(), 8192, &memory) != GRADRING_OK) ::_exit(4);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
  EXPECT_EQ(daemon.segments(), 1u) << "what is not used is given back";
}

TEST(Memory, ThatCouldFaultLaterIsNotBelieved) {
  const std::pair<Memory, const char*> cases[] = {{Memory::kUnsealed, "not sealed"},
                                                  {Memory::kShort, "called it"},
                                                  {Memory::kNone, "without its memory"}};
  for (const auto& [kind, words] : cases) {
    FakeDaemon daemon;
    daemon.set([wanted = kind](Script& script) { script.memory = wanted; });
    const Comm comm = open(daemon);
    void* memory = nullptr;
    EXPECT_EQ(gradring_alloc(comm.get(), 8192, &memory), GRADRING_ERR_INTERNAL);
    EXPECT_THAT(gradring_last_error(), HasSubstr(words));
    EXPECT_EQ(daemon.segments(), 0u) << "what is not used is given back";
  }
}

TEST(Memory, InUseByARequestIsNotFreed) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.complete = false; });
  const Comm comm = open(daemon);
  float* memory = alloc(comm, 8);
  const gradring_request request = submit(comm, sum_of(memory, memory, 8));
  EXPECT_EQ(gradring_free(comm.get(), memory), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("wait for them first"));

  daemon.complete(daemon.wait_for_operations(1).at(0));
  EXPECT_EQ(gradring_wait(comm.get(), request, 5000, nullptr), GRADRING_OK);
  EXPECT_EQ(gradring_free(comm.get(), memory), GRADRING_OK);
}

TEST(Memory, ThatTheDaemonDoesNotFreeStaysUsable) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  float* memory = alloc(comm, 8);
  daemon.set([](Script& script) {
    script.refuse_free = refusal(Code::kUnavailable, "an op of another rank still reads it");
  });
  EXPECT_EQ(gradring_free(comm.get(), memory), GRADRING_ERR_UNAVAILABLE);
  EXPECT_STREQ(gradring_last_error(), "an op of another rank still reads it");
  memory[0] = 3;
  EXPECT_EQ(gradring_allreduce(comm.get(), memory, memory, 8, GRADRING_FLOAT32, GRADRING_SUM),
            GRADRING_OK);
  EXPECT_EQ(memory[0], 6);
}

TEST(Memory, IsAllocatedByManyThreadsAtOnce) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        auto* memory = alloc<int>(comm, 4096);
        std::fill_n(memory, 4096, t);
        EXPECT_EQ(std::count(memory, memory + 4096, t), 4096);
        EXPECT_EQ(gradring_free(comm.get(), memory), GRADRING_OK);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(daemon.segments(), 0u);
}

TEST(RegisteredMemory, IsCopiedInAtSubmitAndOutAtWait) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.complete = false; });
  const Comm comm = open(daemon);
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.0f);
  ASSERT_EQ(gradring_register(comm.get(), values.data(), values.size() * sizeof(float)),
            GRADRING_OK)
      << gradring_last_error();

  // The middle part only.
  const gradring_request request =
      submit(comm, sum_of(values.data() + 100, values.data() + 100, 800));
  daemon.complete(daemon.wait_for_operations(1).at(0));
  EXPECT_EQ(values[100], 100) << "copied out before anybody waited";
  ASSERT_EQ(gradring_wait(comm.get(), request, 5000, nullptr), GRADRING_OK);
  EXPECT_EQ(values[99], 99);
  EXPECT_EQ(values[100], 200);
  EXPECT_EQ(values[899], 1798);
  EXPECT_EQ(values[900], 900);

  EXPECT_EQ(gradring_free(comm.get(), values.data()), GRADRING_ERR_NOT_FOUND);
  EXPECT_EQ(gradring_unregister(comm.get(), values.data()), GRADRING_OK);
  EXPECT_EQ(daemon.segments(), 0u);
}

// Its elements are aligned, and lie in the shadow as they do in the trainer's memory.
TEST(RegisteredMemory, MayBeginAnywhere) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  gradring_comm* made = nullptr;
  const uint32_t both[] = {0, 1};
  ASSERT_EQ(gradring_group(comm.get(), both, 2, &made), GRADRING_OK) << gradring_last_error();
  const Comm group(made);
  alignas(64) std::array<std::byte, 256> memory{};
  float* const values = reinterpret_cast<float*>(memory.data() + 8);
  ASSERT_EQ(gradring_register(comm.get(), memory.data() + 4, 200), GRADRING_OK);
  gradring_op op = sum_of(values, values, 1);
  op.dtype = GRADRING_FLOAT64;
  for (const Comm* const one : {&comm, &group}) {
    EXPECT_EQ(gradring_wait(one->get(), submit(*one, op), 5000, nullptr), GRADRING_OK);
  }
  for (const wire::Operation& sent : daemon.wait_for_operations(2)) {
    EXPECT_EQ(sent.input().offset() % sizeof(double), 0u);
    EXPECT_EQ(sent.output().offset() % sizeof(double), 0u);
  }
  std::fill_n(values, 40, 3.0F);
  for (const Comm* const one : {&comm, &group}) {
    ASSERT_EQ(gradring_wait(one->get(), submit(*one, sum_of(values, values, 40)), 5000, nullptr),
              GRADRING_OK);
  }
  EXPECT_EQ(values[0], 12);
  EXPECT_EQ(values[39], 12);
  EXPECT_EQ(values[40], 0);
}

TEST(RegisteredMemory, ServesAsInputAndOutputApart) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  std::vector<float> input(64, 1.5f);
  std::vector<float> output(64, 0.0f);
  ASSERT_EQ(gradring_register(comm.get(), input.data(), 64 * sizeof(float)), GRADRING_OK);
  ASSERT_EQ(gradring_register(comm.get(), output.data(), 64 * sizeof(float)), GRADRING_OK);
  ASSERT_EQ(gradring_allreduce(comm.get(), input.data(), output.data(), 64, GRADRING_FLOAT32,
                               GRADRING_SUM),
            GRADRING_OK);
  EXPECT_THAT(input, Each(1.5f));
  EXPECT_THAT(output, Each(3.0f));
}

TEST(RegisteredMemory, KeepsItsContentsWhenTheOpFails) {
  FakeDaemon daemon;
  daemon.set([](Script& script) {
    script.refuse_submit = refusal(Code::kInvalidArgument, "the key was used before");
  });
  const Comm comm = open(daemon);
  std::vector<float> values(8, 4.0f);
  ASSERT_EQ(gradring_register(comm.get(), values.data(), 8 * sizeof(float)), GRADRING_OK);
  EXPECT_EQ(gradring_allreduce(comm.get(), values.data(), values.data(), 8, GRADRING_FLOAT32,
                               GRADRING_SUM),
            GRADRING_ERR_FAILED);
  EXPECT_THAT(values, Each(4.0f));
}

TEST(RegisteredMemory, MustNotOverlapAnyOther) {
  FakeDaemon daemon;
  const Comm comm = open(daemon);
  std::vector<char> values(300);
  ASSERT_EQ(gradring_register(comm.get(), values.data() + 100, 100), GRADRING_OK);
  const std::pair<int, int> overlapping[] = {{100, 100}, {0, 101}, {199, 50}, {120, 10}, {0, 300}};
  for (const auto& [start, bytes] : overlapping) {
    EXPECT_EQ(gradring_register(comm.get(), values.data() + start, static_cast<size_t>(bytes)),
              GRADRING_ERR_INVALID)
        << start << " " << bytes;
    EXPECT_THAT(gradring_last_error(), HasSubstr("overlap"));
  }
  EXPECT_EQ(gradring_register(comm.get(), values.data(), 100), GRADRING_OK);
  EXPECT_EQ(gradring_register(comm.get(), values.data() + 200, 100), GRADRING_OK);
  auto* allocated = alloc<char>(comm, 10);
  EXPECT_EQ(gradring_register(comm.get(), allocated, 1), GRADRING_ERR_INVALID);
  EXPECT_EQ(gradring_register(comm.get(), nullptr, 1), GRADRING_ERR_INVALID);
  EXPECT_EQ(gradring_register(comm.get(), values.data(), SIZE_MAX), GRADRING_ERR_INVALID);
}

}  // namespace
}  // namespace gradring::test
