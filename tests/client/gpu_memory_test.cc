// Memory of a GPU that is registered: on a driver that the test brings along.
#include <gmock/gmock.h>

#include <bit>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kCount = 1000;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr int kOutOfMemory = 2;

class GpuMemory : public ::testing::Test {
 protected:
  void TearDown() override {
    job_.reset();
    EXPECT_EQ(twin_.held(), 0) << "nothing stays pinned, open or entered";
  }

  static void* pointer(uint64_t address) { return std::bit_cast<void*>(address); }
  uint64_t registered(bool pooled = false) {
    const uint64_t address = twin_.alloc(kBytes, pooled);
    EXPECT_EQ(gradring_register(job_.get(), pointer(address), kBytes), GRADRING_OK)
        << gradring_last_error();
    return address;
  }
  void write_later(uint64_t address, float value, void* stream = nullptr) {
    const std::vector<float> values(kCount, value);
    twin_.write_later(stream, address, values.data(), kBytes);
  }
  std::vector<float> read(uint64_t address) const {
    std::vector<float> values(kCount);
    twin_.read(address, values.data(), kBytes);
    return values;
  }
  static gradring_op sum(uint64_t input, uint64_t output, void* stream = nullptr) {
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = GRADRING_ALLREDUCE;
    op.dtype = GRADRING_FLOAT32;
    op.op = GRADRING_SUM;
    op.count = kCount;
    op.input = pointer(input);
    op.output = pointer(output);
    op.stream = stream;
    return op;
  }
  gradring_code wait(gradring_request request) {
    return gradring_wait(job_.get(), request, 10'000, nullptr);
  }

  const CudaTwin& twin_ = cuda_twin();
  FakeDaemon daemon_;
  Comm job_ = open(daemon_);  // of two ranks, and all give the same
};

TEST_F(GpuMemory, IsSummedByWayOfTheHost) {
  for (const bool pooled : {false, true}) {
    const uint64_t memory = registered(pooled);
    write_later(memory, 3);
    ASSERT_EQ(wait(submit(job_, sum(memory, memory))), GRADRING_OK) << gradring_last_error();
    EXPECT_THAT(read(memory), Each(6));
    ASSERT_EQ(gradring_unregister(job_.get(), pointer(memory)), GRADRING_OK);
    twin_.free(memory);
  }
}

TEST_F(GpuMemory, IsReadWhenItsStreamHasComeThere) {
  char other = 0;
  const uint64_t input = registered(), output = registered();
  write_later(output, 7, nullptr);  // what was asked for before is done before
  write_later(input, 1, &other);
  twin_.write_later(nullptr, input, std::vector<float>(kCount, 5).data(), kBytes);
  ASSERT_EQ(wait(submit(job_, sum(input, output))), GRADRING_OK) << gradring_last_error();
  EXPECT_THAT(read(output), Each(10)) << "of the op's stream alone";
}

TEST_F(GpuMemory, MeetsMemoryOfTheHostInOneOp) {
  const uint64_t on_gpu = registered();
  std::vector<float> on_host(kCount, 4);
  ASSERT_EQ(gradring_register(job_.get(), on_host.data(), kBytes), GRADRING_OK);
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
  const uint64_t memory = twin_.alloc(kBytes, false);
  // The last page of what was said is not there.
  ASSERT_EQ(gradring_register(job_.get(), pointer(memory), 2 * kBytes), GRADRING_OK);
  gradring_op op = sum(memory, memory);
  op.count = 2 * kCount;
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(job_.get(), &op, &request), GRADRING_ERR_INTERNAL);
  EXPECT_THAT(gradring_last_error(), HasSubstr("8000 bytes at"));
  EXPECT_THAT(gradring_last_error(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  op.count = kCount;
  EXPECT_EQ(wait(submit(job_, op)), GRADRING_OK) << gradring_last_error();
}

TEST_F(GpuMemory, ThatGoesAwayWhileItsOpIsUnderWayIsToldByWait) {
  const uint64_t memory = registered();
  const gradring_request request = submit(job_, sum(memory, memory));
  twin_.free(memory);
  EXPECT_EQ(wait(request), GRADRING_ERR_INTERNAL);
  EXPECT_THAT(gradring_last_error(), HasSubstr("the op is done, but its result of 4000 bytes"));
}

TEST_F(GpuMemory, NeedsNoPinnedPages) {
  twin_.answer("cuMemHostRegister_v2", kOutOfMemory);
  const uint64_t memory = registered();
  twin_.answer("cuMemHostRegister_v2", 0);
  write_later(memory, 1);
  ASSERT_EQ(wait(submit(job_, sum(memory, memory))), GRADRING_OK) << gradring_last_error();
  EXPECT_THAT(read(memory), Each(2));
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
    const uint64_t memory = twin_.alloc(kBytes, true);
    EXPECT_EQ(gradring_register(job_.get(), pointer(memory), kBytes), GRADRING_ERR_INTERNAL);
    EXPECT_THAT(gradring_last_error(), HasSubstr("error 2 of CUDA"));
    twin_.answer(function, 0);
    EXPECT_EQ(twin_.held(), 0);
    EXPECT_EQ(daemon_.segments(), 0u);
    EXPECT_EQ(gradring_register(job_.get(), pointer(memory), kBytes), GRADRING_OK);
    ASSERT_EQ(gradring_unregister(job_.get(), pointer(memory)), GRADRING_OK);
  }
}

}  // namespace
}  // namespace gradring::test
