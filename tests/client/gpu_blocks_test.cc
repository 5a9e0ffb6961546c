// Memory of a GPU that nobody registered, with a daemon that sums on the node's GPUs.
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "proto/stream_word.h"
#include "tests/client/gpu_memory_fixture.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class GpuBlocks : public GpuMemory {
 protected:
  static constexpr int kNoMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY
  static constexpr uint64_t kMiB = uint64_t{1} << 20;
  static constexpr uint64_t kBytes = 3 * kMiB;

  GpuBlocks() { open_with({}); }
  void TearDown() override {
    ::unsetenv("GRADRING_GPU_STAGE_MIB");
    GpuMemory::TearDown();
  }
  // A communicator with so many MiB of blocks at the most.
  void open_with(const std::string& mebibytes) {
    if (!mebibytes.empty()) ::setenv("GRADRING_GPU_STAGE_MIB", mebibytes.c_str(), 1);
    daemon_.set([](Script& script) { script.sums_on_gpus = true; });
    job_.reset();
    job_ = open(daemon_);
  }
  static gradring_op sum_of(uint64_t bytes, uint64_t input, uint64_t output,
                            void* stream = nullptr) {
    gradring_op op = sum(input, output, stream);
    op.count = bytes / sizeof(float);
    return op;
  }
  void fill(uint64_t memory, float value, uint64_t bytes = kBytes) {
    gpu_.fill_later(nullptr, memory, value, bytes / sizeof(float));
    gpu_.wait_for(nullptr);
  }
  std::vector<float> all_of(uint64_t memory, uint64_t bytes = kBytes) const {
    std::vector<float> values(bytes / sizeof(float));
    gpu_.read(memory, values.data(), bytes);
    return values;
  }
  // Whether the next op of so many bytes is one for the daemon's GPUs; waits for its end.
  bool stays_on_gpu(uint64_t bytes) {
    const uint64_t memory = gpu_.alloc(bytes, false);
    fill(memory, 3, bytes);
    const gradring_request request = submit(job_, sum_of(bytes, memory, memory));
    const bool stays = last_operation().on_gpu();
    EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
    EXPECT_THAT(all_of(memory, bytes), Each(stays ? 3 : 6)) << "this daemon sums on the host alone";
    gpu_.free(memory);
    return stays;
  }
  wire::Operation last_operation() {
    ++operations_;
    return daemon_.wait_for_operations(operations_).at(operations_ - 1);
  }
  size_t shared() { return daemon_.wait_for_messages(wire::ClientMessage::kShareGpu, 0).size(); }

  size_t operations_ = 0;
};

TEST_F(GpuBlocks, StandForMemoryThatTheDaemonCannotOpen) {
  for (const bool by_stream : {false, true}) {
    for (const bool pooled : {false, true}) {
      const uint64_t memory = gpu_.alloc(kBytes, pooled);
      fill(memory, 3);
      const gradring_request request = submit_alone(sum_of(kBytes, memory, memory));
      const wire::Operation operation = last_operation();
      EXPECT_TRUE(operation.on_gpu());
      const StreamWord reached{daemon_.word_at(operation.reached()), operation.reached().value()};
      while (!reached.has_come()) std::this_thread::yield();
      fill(memory, 9);  // the daemon has another one by now
      daemon_.complete(operation);
      if (by_stream) {
        EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
      }
      EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
      gpu_.wait_for(nullptr);
      EXPECT_THAT(all_of(memory), Each(3)) << "brought back from there";
      gpu_.free(memory);
    }
  }
  const auto shares = daemon_.wait_for_messages(wire::ClientMessage::kShareGpu, 1);
  ASSERT_EQ(shares.size(), 1u) << "it is kept for the next op";
  EXPECT_EQ(shares[0].share_gpu().bytes(), kBytes);
  EXPECT_NE(shares[0].share_gpu().offered(), 0u) << "by a descriptor";
  EXPECT_EQ(shares[0].share_gpu().handle().size(), 0u);
  job_.reset();
  EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kFree, 1).size(), 1u)
      << "closed there before it goes here";
}

TEST_F(GpuBlocks, StayUntilTheirStreamHasBroughtTheResultAlsoWhenTheJobIsClosed) {
  const uint64_t memory = gpu_.alloc(kBytes, false);
  void* const stream = gpu_.make_stream();
  fill(memory, 4);
  const gradring_request request = submit(job_, sum_of(kBytes, memory, memory));
  EXPECT_TRUE(last_operation().on_gpu());
  EXPECT_EQ(wait(request), GRADRING_OK);
  const gradring_request last = submit(job_, sum_of(kBytes, memory, memory));
  gpu_.hold(stream, true);
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), last, stream, -1), GRADRING_OK);
  EXPECT_EQ(wait(last), GRADRING_OK);
  std::thread another([&] { job_.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  fill(memory, 9);
  gpu_.hold(stream, false);
  another.join();
  EXPECT_THAT(all_of(memory), Each(4));
}

TEST_F(GpuBlocks, OfResultsKeepWhatTheirStreamHasNotBrought) {
  const uint64_t first = gpu_.alloc(kBytes, false), second = gpu_.alloc(kBytes, false);
  void* const another_stream = gpu_.make_stream();
  fill(first, 1);
  fill(second, 2);
  const gradring_request early = submit(job_, sum_of(kBytes, first, first));
  EXPECT_TRUE(last_operation().on_gpu());
  gpu_.hold(nullptr, true);
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), early, nullptr, -1), GRADRING_OK);
  EXPECT_EQ(wait(early), GRADRING_OK) << "it has ended, and its result is not there yet";
  const gradring_request late = submit(job_, sum_of(kBytes, second, second, another_stream));
  gpu_.hold(nullptr, false);
  EXPECT_EQ(wait(late), GRADRING_OK) << gradring_last_error();
  gpu_.wait_for(nullptr);
  EXPECT_THAT(all_of(first), Each(1));
  EXPECT_THAT(all_of(second), Each(2));
  EXPECT_EQ(daemon_.segments(), 1u) << "one stood for both";
}

TEST_F(GpuBlocks, AreForSumsThatTheDaemonCanMakeThere) {
  EXPECT_TRUE(stays_on_gpu(kBytes));
  EXPECT_FALSE(stays_on_gpu(2 * kMiB)) << "sooner there by way of the host";
}

TEST_F(GpuBlocks, AreForScaledSumsToo) {
  const uint64_t memory = gpu_.alloc(kBytes, false);
  fill(memory, 3);
  gradring_op scaled = sum_of(kBytes, memory, memory);
  scaled.prescale = 0.5;
  scaled.postscale = 3;
  EXPECT_EQ(wait(submit(job_, scaled)), GRADRING_OK) << gradring_last_error();
  const wire::Operation operation = last_operation();
  EXPECT_TRUE(operation.on_gpu());
  EXPECT_TRUE(operation.stays_on_gpu());
  EXPECT_EQ(operation.prescale(), 0.5);
}

TEST_F(GpuBlocks, AreNoMoreThanWasAllowed) {
  open_with("7");
  const std::array<uint64_t, 3> memory = {gpu_.alloc(kBytes, false), gpu_.alloc(kBytes, false),
                                          gpu_.alloc(kBytes, false)};
  std::vector<gradring_request> requests;
  for (size_t i = 0; i < memory.size(); ++i) {
    fill(memory[i], 1);
    requests.push_back(submit_alone(sum_of(kBytes, memory[i], memory[i])));
    const wire::Operation operation = last_operation();
    EXPECT_EQ(operation.on_gpu(), i < 2) << "two of 3 MiB fit";
    daemon_.complete(operation);
  }
  for (const gradring_request request : requests) EXPECT_EQ(wait(request), GRADRING_OK);
  EXPECT_THAT(all_of(memory[1]), Each(1));
  EXPECT_THAT(all_of(memory[2]), Each(2)) << "by way of the host";
  daemon_.set([](Script& script) { script.complete = true; });
  EXPECT_TRUE(stays_on_gpu(kBytes)) << "there is room again";
  open_with("0");
  EXPECT_FALSE(stays_on_gpu(kBytes));
}

// Bucket sizes change once and then stay; those of before must not keep their room.
TEST_F(GpuBlocks, OfASizeThatNobodyAsksForMakeRoom) {
  open_with("4");
  EXPECT_TRUE(stays_on_gpu(kBytes));
  EXPECT_FALSE(stays_on_gpu(4 * kMiB)) << "that one may come again in the next step";
  const uint64_t small = gpu_.alloc(sizeof(float), false);
  std::vector<gradring_op> ops(100, sum_of(sizeof(float), small, small));
  std::vector<gradring_request> requests(ops.size());
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(gradring_submit_all(job_.get(), ops.data(), ops.size(), requests.data()), GRADRING_OK)
        << gradring_last_error();
    for (const gradring_request request : requests) EXPECT_EQ(wait(request), GRADRING_OK);
    operations_ += ops.size();
  }
  EXPECT_TRUE(stays_on_gpu(4 * kMiB));
  EXPECT_FALSE(stays_on_gpu(kBytes));
}

TEST_F(GpuBlocks, AreAskedForOnceWhereTheDaemonCannotOpenThem) {
  wire::Refused refused;
  refused.set_message("another pid namespace");
  daemon_.set([&](Script& script) { script.refuse_share_gpu = refused; });
  EXPECT_FALSE(stays_on_gpu(kBytes));
  EXPECT_FALSE(stays_on_gpu(2 * kBytes));
  EXPECT_EQ(shared(), 1u);
}

TEST_F(GpuBlocks, AreOpenedByAHandleWhereTheDriverHasNoPages) {
  constexpr int kNotSupported = 801;
  twin_.answer("cuMemCreate", kNotSupported);
  EXPECT_TRUE(stays_on_gpu(kBytes));
  twin_.answer("cuMemCreate", 0);
  const auto shares = daemon_.wait_for_messages(wire::ClientMessage::kShareGpu, 1);
  EXPECT_EQ(shares[0].share_gpu().offered(), 0u);
  EXPECT_EQ(shares[0].share_gpu().handle().size(), 64u);
  job_.reset();
}

TEST_F(GpuBlocks, WhoseDescriptorIsRefusedGoByWayOfTheHost) {
  daemon_.set([](Script& script) {
    script.refuse_offer.emplace().set_message("the GPUs of this daemon sum for nobody");
    script.refuse_share_gpu.emplace().set_message("so it cannot be opened");
  });
  EXPECT_FALSE(stays_on_gpu(kBytes));
  const auto shares = daemon_.wait_for_messages(wire::ClientMessage::kShareGpu, 1);
  EXPECT_THAT(shares[0].share_gpu().cannot(), HasSubstr("sum for nobody")) << "for its log";
}

// Whoever closes may give it back to the GPU at once, and CUDA wants the other one to be first.
TEST_F(GpuBlocks, AreNotNeededForWhatIsRegisteredWhichTheDaemonClosesWithTheJobToo) {
  std::vector<float> on_host(kGpuCount);
  ASSERT_EQ(gradring_register(job_.get(), on_host.data(), kGpuBytes), GRADRING_OK);
  ASSERT_EQ(gradring_register(job_.get(), pointer(gpu_.alloc(kBytes, false)), kBytes), GRADRING_OK);
  EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kShareGpu, 1).size(), 1u);
  job_.reset();
  const auto freed = daemon_.wait_for_messages(wire::ClientMessage::kFree, 1);
  EXPECT_EQ(freed.size(), 1u) << "of the host's nobody has to hear";
}

TEST_F(GpuBlocks, AreNotNeededWhereTheGpuIsFull) {
  twin_.answer("cuMemCreate", kNoMemory);
  EXPECT_FALSE(stays_on_gpu(kBytes));
  twin_.answer("cuMemCreate", 0);
  EXPECT_TRUE(stays_on_gpu(kBytes)) << "it has room now";
}

// A driver waits for all streams where such a one goes, and somebody has to hear of what they wait
// for.
TEST_F(GpuBlocks, ThatTheDaemonHasNoSegmentForKeepNobodyFromHearingOfIt) {
  constexpr int kNotSupported = 801;
  twin_.answer("cuMemCreate", kNotSupported);
  const uint64_t slow = registered(), other = gpu_.alloc(kBytes, false);
  const gradring_request request = submit_alone(sum(slow, slow));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
  daemon_.set([](Script& script) { script.refuse_allocate.emplace().set_message("no room"); });
  std::thread fails([&] {
    const gradring_op op = sum_of(kBytes, other, other);
    gradring_request none = 0;
    EXPECT_NE(gradring_submit(job_.get(), &op, &none), GRADRING_OK);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  daemon_.die();
  EXPECT_EQ(wait(request), GRADRING_ERR_FAILED);
  fails.join();
  twin_.answer("cuMemCreate", 0);
}

TEST_F(GpuBlocks, AreOfAsManyMiBAsTheEnvironmentSaysInDigits) {
  ::setenv("GRADRING_GPU_STAGE_MIB", "much", 1);
  gradring_options options = options_for(daemon_.runtime_dir());
  gradring_comm* made = nullptr;
  EXPECT_EQ(gradring_open(&options, &made), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("GRADRING_GPU_STAGE_MIB is no number of MiB"));
}

}  // namespace
}  // namespace gradring::test
