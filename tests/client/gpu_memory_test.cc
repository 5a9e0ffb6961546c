// Memory of a GPU that is registered: on a driver that the test brings along.
#include <gmock/gmock.h>

#include <bit>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kGpuCount = 1000;
constexpr size_t kGpuBytes = kGpuCount * sizeof(float);
constexpr int kOutOfMemory = 2, kNotSupported = 801;

class GpuMemory : public ::testing::Test {
 protected:
  void TearDown() override {
    job_.reset();
    EXPECT_EQ(twin_.held(), 0) << "nothing stays pinned, open or entered";
  }

  static void* pointer(uint64_t address) { return std::bit_cast<void*>(address); }
  uint64_t registered(bool pooled = false) {
    const uint64_t address = gpu_.alloc(kGpuBytes, pooled);
    EXPECT_EQ(gradring_register(job_.get(), pointer(address), kGpuBytes), GRADRING_OK)
        << gradring_last_error();
    return address;
  }
  void write_later(uint64_t address, float value, void* stream = nullptr) {
    gpu_.fill_later(stream, address, value, kGpuCount);
  }
  std::vector<float> read(uint64_t address) const {
    std::vector<float> values(kGpuCount);
    gpu_.read(address, values.data(), kGpuBytes);
    return values;
  }
  static gradring_op sum(uint64_t input, uint64_t output, void* stream = nullptr) {
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = GRADRING_ALLREDUCE;
    op.dtype = GRADRING_FLOAT32;
    op.op = GRADRING_SUM;
    op.count = kGpuCount;
    op.input = pointer(input);
    op.output = pointer(output);
    op.stream = stream;
    return op;
  }
  // An op that the daemon does not answer by itself.
  gradring_request submit_alone(const gradring_op& op) {
    daemon_.set([](Script& script) { script.complete = false; });
    return submit(job_, op);
  }
  static wire::DaemonMessage completed(const wire::Operation& operation,
                                       const wire::Completion& end) {
    wire::DaemonMessage message;
    wire::Completion& told = *message.mutable_completed()->add_completions();
    told = end;
    told.set_ticket(operation.ticket());
    return message;
  }
  gradring_code wait(gradring_request request) {
    return gradring_wait(job_.get(), request, 10'000, nullptr);
  }

  const CudaTwin& twin_ = cuda_twin();
  const TestGpu& gpu_ = twin_.gpu;
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
  const auto sums = [this](uint64_t memory) {
    write_later(memory, 1);
    const gradring_request request = submit(job_, sum(memory, memory));
    EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr), GRADRING_OK)
        << gradring_last_error();
    EXPECT_THAT(read(memory), Each(2)) << "it is there by now";
    EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
    EXPECT_FALSE(daemon_.wait_for_operations(1).back().has_reached());
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

// ---- streams in an order with the daemon's work ----

class GpuStreams : public GpuMemory {
 protected:
  void TearDown() override {
    gpu_.hold(nullptr, false);
    GpuMemory::TearDown();
  }
  void sleep_a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  void* const another_stream_ = gpu_.make_stream();
};

TEST_F(GpuStreams, NobodyWaitsForThem) {
  const uint64_t memory = registered();
  gpu_.hold(nullptr, true);
  write_later(memory, 3);
  const gradring_request request = submit(job_, sum(memory, memory));  // returns
  EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr), GRADRING_OK)
      << gradring_last_error();  // and so does this
  EXPECT_EQ(gradring_wait(job_.get(), request, 20, nullptr), GRADRING_ERR_DEADLINE);
  gpu_.hold(nullptr, false);
  EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
  gpu_.wait_for(nullptr);
  EXPECT_THAT(read(memory), Each(6));
}

TEST_F(GpuStreams, OneMayWaitForWhatAnotherBegan) {
  const uint64_t input = registered(), output = registered();
  write_later(input, 4, another_stream_);
  const gradring_request request = submit(job_, sum(input, output, another_stream_));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr), GRADRING_OK);
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, another_stream_), GRADRING_OK)
      << "several may";
  gpu_.wait_for(another_stream_);
  EXPECT_THAT(read(output), Each(8));
  EXPECT_EQ(wait(request), GRADRING_OK);
}

// What waits in vain behind one op must not keep those of others.
TEST_F(GpuStreams, DoNotWaitForOneAnother) {
  const uint64_t slow = registered(), quick = registered();
  gpu_.hold(nullptr, true);
  write_later(slow, 1);
  write_later(quick, 2, another_stream_);
  const auto late = submit_alone(sum(slow, slow));
  const gradring_request early = submit(job_, sum(quick, quick, another_stream_));
  daemon_.complete(daemon_.wait_for_operations(2).at(1));
  EXPECT_EQ(wait(early), GRADRING_OK) << gradring_last_error();
  EXPECT_THAT(read(quick), Each(4));
  gpu_.hold(nullptr, false);
  daemon_.complete(daemon_.wait_for_operations(2).at(0));
  EXPECT_EQ(wait(late), GRADRING_OK);
  EXPECT_THAT(read(slow), Each(2));
}

TEST_F(GpuStreams, GoOnWhenTheOpFailsOrTheDaemonIsGone) {
  const uint64_t memory = registered();
  daemon_.set([](Script& script) { script.complete = false; });
  write_later(memory, 3);
  gradring_request request = submit(job_, sum(memory, memory));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr), GRADRING_OK);
  sleep_a_moment();
  EXPECT_THAT(read(memory), Each(3)) << "it waits";
  wire::Completion failed;
  failed.set_verdict(GRADRING_VERDICT_FAILED);
  failed.set_message("rank 1 died");
  daemon_.send(completed(daemon_.wait_for_operations(1).at(0), failed));
  EXPECT_EQ(wait(request), GRADRING_ERR_FAILED);
  gpu_.wait_for(nullptr);

  request = submit(job_, sum(memory, memory));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr), GRADRING_OK);
  daemon_.wait_for_operations(2);
  daemon_.die();
  EXPECT_EQ(wait(request), GRADRING_ERR_FAILED);
  gpu_.wait_for(nullptr);
}

TEST_F(GpuStreams, GoOnWhenTheCommunicatorIsClosed) {
  const uint64_t memory = registered();
  daemon_.set([](Script& script) { script.complete = false; });
  const gradring_request request = submit(job_, sum(memory, memory));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr), GRADRING_OK);
  job_.reset();
  gpu_.wait_for(nullptr);
}

TEST_F(GpuStreams, MoreOpsThanThereAreWordsGoWithoutThem) {
  const uint64_t memory = registered();
  daemon_.set([](Script& script) { script.complete = false; });
  std::vector<gradring_request> requests;
  for (int i = 0; i < 70; ++i) {
    gradring_op op = sum(memory, memory);
    op.count = 1;
    requests.push_back(submit(job_, op));
  }
  size_t with_words = 0;
  for (const auto& operation : daemon_.wait_for_operations(70)) {
    with_words += operation.has_reached() ? 1 : 0;
    daemon_.complete(operation);
  }
  EXPECT_EQ(with_words, 32u) << "of 64 words, two an op";
  for (const gradring_request request : requests) EXPECT_EQ(wait(request), GRADRING_OK);
}

TEST_F(GpuStreams, CannotWaitForWhatIsNotOnAGpuNorIntoAGraph) {
  const uint64_t memory = registered();
  std::vector<float> on_host(kGpuCount);
  ASSERT_EQ(gradring_register(job_.get(), on_host.data(), kGpuBytes), GRADRING_OK);
  gradring_op op = sum(memory, 0);
  op.output = on_host.data();
  gradring_request request = submit(job_, op);
  EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("has no output on a GPU"));
  EXPECT_EQ(wait(request), GRADRING_OK);
  EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr), GRADRING_ERR_NOT_FOUND);
  request = submit(job_, sum(memory, memory));
  twin_.capture(nullptr, true);
  EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("captured into a CUDA graph"));
  twin_.capture(nullptr, false);
  EXPECT_EQ(wait(request), GRADRING_OK) << "which brings the result, then";
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

}  // namespace
}  // namespace gradring::test
