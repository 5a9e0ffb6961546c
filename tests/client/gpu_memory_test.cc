// Memory of a GPU that is registered: on a driver that the test brings along.
#include <gmock/gmock.h>

#include <vector>

#include "tests/client/gpu_memory_fixture.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kOutOfMemory = 2, kNotSupported = 801;

TEST_F(GpuMemory, IsSummedByWayOfTheHost) {
  for (const bool pooled : {false, true}) {
    const uint64_t memory = registered(pooled);
    write_later(memory, 3);
    ASSERT_EQ(wait(submit(job_, sum(memory, memory))), GRADRING_OK) << gradring_last_error();
    EXPECT_THAT(read(memory), Each(6));
    ASSERT_EQ(gradring_unregister(job_.get(), pointer(memory)), GRADRING_OK);
    gpu_.free(memory);
  }
}

TEST_F(GpuMemory, IsReadWhenItsStreamHasComeThere) {
  void* const other = gpu_.make_stream();
  const uint64_t input = registered(), output = registered();
  write_later(output, 7, nullptr);  // what was asked for before is done before
  gpu_.hold(other, true);
  write_later(input, 1, other);
  write_later(input, 5);
  ASSERT_EQ(wait(submit(job_, sum(input, output))), GRADRING_OK) << gradring_last_error();
  EXPECT_THAT(read(output), Each(10)) << "of the op's stream alone";
  gpu_.hold(other, false);
  gpu_.wait_for(other);
}

TEST_F(GpuMemory, MeetsMemoryOfTheHostInOneOp) {
  const uint64_t on_gpu = registered();
  std::vector<float> on_host(kGpuCount, 4);
  ASSERT_EQ(gradring_register(job_.get(), on_host.data(), kGpuBytes), GRADRING_OK);
  gradring_op op = sum(0, on_gpu);
  op.input = on_host.data();
  write_later(on_gpu, 7);  // before the op, although nothing of it is read
  ASSERT_EQ(wait(submit(job_, op)), GRADRING_OK) << gradring_last_error();
  EXPECT_THAT(read(on_gpu), Each(8));
  op = sum(on_gpu, 0);
  op.output = on_host.data();
  ASSERT_EQ(wait(submit(job_, op)), GRADRING_OK) << gradring_last_error();
  EXPECT_THAT(on_host, Each(16));
}

TEST_F(GpuMemory, IsNamedByTheWholeFamily) {
  const uint64_t memory = registered();
  gradring_comm* made = nullptr;
  const uint32_t ranks[] = {0, 1};
  ASSERT_EQ(gradring_group(job_.get(), ranks, 2, &made), GRADRING_OK) << gradring_last_error();
  const Comm group(made);
  write_later(memory, 2);
  const gradring_request request = submit(group, sum(memory, memory));
  ASSERT_EQ(gradring_wait(made, request, 10'000, nullptr), GRADRING_OK) << gradring_last_error();
  EXPECT_THAT(read(memory), Each(4));
}

TEST_F(GpuMemory, OfAStreamThatIsCapturedIsRefused) {
  const uint64_t memory = registered();
  twin_.capture(nullptr, true);
  const gradring_op op = sum(memory, memory);
  gradring_request request = 1;
  EXPECT_EQ(gradring_submit(job_.get(), &op, &request), GRADRING_ERR_INVALID);
  EXPECT_EQ(request, 0u);
  EXPECT_THAT(gradring_last_error(), HasSubstr("captured into a CUDA graph"));
  twin_.capture(nullptr, false);
  EXPECT_EQ(wait(submit(job_, op)), GRADRING_OK) << "and nothing is lost by it";
}

TEST_F(GpuMemory, ThatCannotBeCopiedIsAnErrorInWords) {
  const uint64_t memory = gpu_.alloc(kGpuBytes, false);
  // The last page of what was said is not there.
  ASSERT_EQ(gradring_register(job_.get(), pointer(memory), 2 * kGpuBytes), GRADRING_OK);
  gradring_op op = sum(memory, memory);
  op.count = 2 * kGpuCount;
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(job_.get(), &op, &request), GRADRING_ERR_INTERNAL);
  EXPECT_THAT(gradring_last_error(), HasSubstr("8000 bytes at"));
  EXPECT_THAT(gradring_last_error(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  op.count = kGpuCount;
  EXPECT_EQ(wait(submit(job_, op)), GRADRING_OK) << gradring_last_error();
}

TEST_F(GpuMemory, ThatGoesAwayWhileItsOpIsUnderWayIsToldByWait) {
  const uint64_t memory = registered();
  const gradring_request request = submit(job_, sum(memory, memory));
  gpu_.free(memory);
  EXPECT_EQ(wait(request), GRADRING_ERR_INTERNAL);
  EXPECT_THAT(gradring_last_error(), HasSubstr("the op is done, but its result of 4000 bytes"));
}

// Where streams cannot be put into an order with the daemon's work, the caller waits for them.
TEST_F(GpuMemory, NeedsNoPinnedPagesAndNoOrderOfStreams) {
  size_t operations = 0;
  const auto sums = [this, &operations](uint64_t memory) {
    write_later(memory, 1);
    const gradring_request request = submit_alone(sum(memory, memory));
    EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, 0), GRADRING_ERR_DEADLINE);
    EXPECT_THAT(gradring_last_error(), HasSubstr("still under way after 0 ms"));
    const wire::Operation operation = daemon_.wait_for_operations(++operations).back();
    EXPECT_FALSE(operation.has_reached());
    daemon_.complete(operation);
    EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK)
        << gradring_last_error();
    EXPECT_THAT(read(memory), Each(2)) << "it is there by now";
    EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
  };
  twin_.answer("cuMemHostRegister_v2", kOutOfMemory);
  const uint64_t not_pinned = registered();
  twin_.answer("cuMemHostRegister_v2", 0);
  sums(not_pinned);
  twin_.answer("cuStreamWriteValue32_v2", kNotSupported);
  sums(registered());
  twin_.answer("cuStreamWriteValue32_v2", 0);
  daemon_.set([](Script& script) { script.stream_words = false; });
  job_.reset();
  job_ = open(daemon_);
  sums(registered());
}

TEST_F(GpuMemory, OfOneGpuHasOneStream) {
  registered();
  const int one = twin_.held();
  registered();
  registered(true);
  EXPECT_EQ(twin_.held(), one + 2) << "pages are pinned, and nothing else is opened";
}

TEST_F(GpuMemory, OfAGpuThatIsFullIsRefusedAndLeavesNothing) {
  for (const char* function : {"cuStreamCreate", "cuDevicePrimaryCtxRetain"}) {
    twin_.answer(function, kOutOfMemory);
    const uint64_t memory = gpu_.alloc(kGpuBytes, true);
    EXPECT_EQ(gradring_register(job_.get(), pointer(memory), kGpuBytes), GRADRING_ERR_INTERNAL);
    EXPECT_THAT(gradring_last_error(), HasSubstr("error 2 of CUDA"));
    twin_.answer(function, 0);
    EXPECT_EQ(twin_.held(), 0);
    EXPECT_EQ(daemon_.segments(), 0u);
    EXPECT_EQ(gradring_register(job_.get(), pointer(memory), kGpuBytes), GRADRING_OK);
    ASSERT_EQ(gradring_unregister(job_.get(), pointer(memory)), GRADRING_OK);
  }
}

// An op that was refused before a stream was to write its word does not keep that.
TEST_F(GpuMemory, HasTheWordsBackOfOpsThatCouldNotBegin) {
  const uint64_t memory = registered();
  const gradring_op op = sum(memory, memory);
  gradring_request request = 0;
  size_t operations = 0;
  for (const char* refuses : {"cuStreamCreate", "cuStreamWriteValue32_v2"}) {
    twin_.answer(refuses, kOutOfMemory);
    for (int i = 0; i < 70; ++i) {
      ASSERT_EQ(gradring_submit(job_.get(), &op, &request), GRADRING_ERR_INTERNAL) << refuses;
    }
    twin_.answer(refuses, 0);
    request = submit(job_, op);
    EXPECT_TRUE(daemon_.wait_for_operations(++operations).back().has_reached()) << refuses;
    EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
  }
}

}  // namespace
}  // namespace gradring::test
