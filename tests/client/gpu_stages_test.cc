// Memory of a GPU that nobody registered.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "proto/stream_word.h"
#include "tests/client/gpu_memory_fixture.h"
#include "tests/sanitized.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST_F(GpuMemory, ThatNobodyRegisteredIsSummedToo) {
  void* const stream = gpu_.make_stream();
  for (int round = 0; round < 3; ++round) {
    const uint64_t input = gpu_.alloc(kGpuBytes, false), output = gpu_.alloc(kGpuBytes, true);
    write_later(input, 3, stream);
    ASSERT_EQ(wait(submit(job_, sum(input, output, stream))), GRADRING_OK) << gradring_last_error();
    EXPECT_THAT(read(output), Each(6));
    write_later(output, 2, stream);
    ASSERT_EQ(wait(submit(job_, sum(output, output, stream))), GRADRING_OK)
        << gradring_last_error();
    EXPECT_THAT(read(output), Each(4));
    gpu_.free(input);
    gpu_.free(output);
  }
  EXPECT_EQ(daemon_.segments(), 2u) << "what stood in for one stands in for the next";
}

TEST_F(GpuMemory, ThatNobodyRegisteredIsInPlaceAlsoInBlocks) {
  const uint64_t memory = gpu_.alloc(2 * kGpuBytes, false);
  write_later(memory, 5);
  gradring_op op = sum(memory, memory);
  op.collective = GRADRING_ALLGATHER;  // of two ranks; this is the first
  ASSERT_EQ(wait(submit(job_, op)), GRADRING_OK) << gradring_last_error();
  EXPECT_THAT(read(memory), Each(5));
  EXPECT_EQ(daemon_.segments(), 1u);
}

TEST_F(GpuMemory, ThatNobodyRegisteredMeetsWhatSomebodyDid) {
  const uint64_t known = registered(), unknown = gpu_.alloc(kGpuBytes, false);
  write_later(unknown, 1);
  ASSERT_EQ(wait(submit(job_, sum(unknown, known))), GRADRING_OK) << gradring_last_error();
  ASSERT_EQ(wait(submit(job_, sum(known, unknown))), GRADRING_OK) << gradring_last_error();
  EXPECT_THAT(read(unknown), Each(4));
  gradring_op too_long = sum(known, known);
  too_long.count = kGpuCount + 1;
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(job_.get(), &too_long, &request), GRADRING_ERR_NOT_FOUND)
      << "registered memory is as long as it was said to be";
}

TEST_F(GpuMemory, OfNobodyThatIsIdleGoesBackWhenItIsMuch) {
  if (kSanitized) GTEST_SKIP() << "so much is not copied in time";
  constexpr uint64_t kMiB = 1 << 20;
  const auto use = [this](uint64_t bytes) {
    const uint64_t memory = gpu_.alloc(bytes, false);
    gradring_op op = sum(memory, memory);
    op.count = bytes / sizeof(float);
    EXPECT_EQ(wait(submit(job_, op)), GRADRING_OK) << gradring_last_error();
    gpu_.free(memory);
  };
  use(256 * kMiB);
  use(320 * kMiB);
  EXPECT_EQ(daemon_.segments(), 2u);
  use(kMiB);
  EXPECT_EQ(daemon_.segments(), 2u) << "the largest one went";
}

// A driver waits for all streams before it unpins, and where one of them waits for an op, another
// rank may wait for the next op of this one.
TEST_F(GpuMemory, OfNobodyThatIsIdleIsNotWaitedForBySubmissions) {
  if (kSanitized) GTEST_SKIP() << "so much is not copied in time";
  constexpr uint64_t kMiB = 1 << 20;
  const auto sum_of = [this](uint64_t bytes) {
    const uint64_t memory = gpu_.alloc(bytes, false);
    gradring_op op = sum(memory, memory);
    op.count = bytes / sizeof(float);
    return op;
  };
  EXPECT_EQ(wait(submit(job_, sum_of(256 * kMiB))), GRADRING_OK) << gradring_last_error();
  const uint64_t small = gpu_.alloc(kGpuBytes, false);
  const gradring_request first = submit_alone(sum(small, small));
  const gradring_request large = submit(job_, sum_of(320 * kMiB));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), first, gpu_.make_stream(), -1), GRADRING_OK);
  const auto under_way = daemon_.wait_for_operations(3);
  daemon_.complete(under_way[2]);
  EXPECT_EQ(wait(large), GRADRING_OK) << gradring_last_error();
  gradring_request second = 0;
  std::atomic<bool> submitted{false};
  std::thread another([&] {
    second = submit(job_, sum_of(kMiB));
    submitted = true;
  });
  const auto start = Clock::now();
  while (!submitted && ms_since(start) < kSoonMs) std::this_thread::yield();
  EXPECT_TRUE(submitted);
  const int held = twin_.held();
  daemon_.complete(under_way[1]);
  another.join();
  daemon_.complete(daemon_.wait_for_operations(4).back());
  EXPECT_EQ(wait(first), GRADRING_OK) << gradring_last_error();
  EXPECT_EQ(wait(second), GRADRING_OK) << gradring_last_error();
  EXPECT_LT(twin_.held(), held) << "the largest one is not pinned any more";
}

// What was to be copied for it is still on its stream when another op has the same stage.
TEST_F(GpuMemory, OfNobodyIsNotOverwrittenByWhatAnOpThatWasRefusedLeftOnAStream) {
  const uint64_t early = gpu_.alloc(kGpuBytes, false), late = gpu_.alloc(kGpuBytes, false);
  void* const captured = gpu_.make_stream();
  void* const slow = gpu_.make_stream();
  void* const another = gpu_.make_stream();
  gpu_.hold(slow, true);
  write_later(early, 1, slow);
  const gradring_op refused[] = {sum(early, early, slow), sum(late, late, captured)};
  gradring_request requests[2] = {};
  twin_.capture(captured, true);
  EXPECT_EQ(gradring_submit_all(job_.get(), refused, 2, requests), GRADRING_ERR_INVALID);
  twin_.capture(captured, false);
  write_later(late, 2, another);
  const gradring_request request = submit_alone(sum(late, late, another));
  const wire::Operation operation = daemon_.wait_for_operations(1).at(0);
  EXPECT_EQ(daemon_.segments(), 2u) << "it has one that there was";
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for what would not wait
  gpu_.hold(slow, false);
  gpu_.wait_for(slow);
  const StreamWord reached{daemon_.word_at(operation.reached()), operation.reached().value()};
  while (!reached.has_come()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  wire::StreamWord first;
  first.set_segment(operation.input().segment());
  first.set_offset(operation.input().offset());
  first.set_value(1);
  const auto* const shadow = reinterpret_cast<const float*>(daemon_.word_at(first));
  EXPECT_THAT(std::vector<float>(shadow, shadow + kGpuCount), Each(2));
  daemon_.complete(operation);
  EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
}

TEST_F(GpuMemory, OfNobodyMakesRoomForMore) {
  const uint64_t small = gpu_.alloc(kGpuBytes, false), large = gpu_.alloc(2 * kGpuBytes, false);
  ASSERT_EQ(wait(submit(job_, sum(small, small))), GRADRING_OK) << gradring_last_error();
  wire::Refused full;
  full.set_code(static_cast<uint32_t>(Code::kResourceExhausted));
  full.set_message("this uid has all that it may");
  daemon_.set([&](Script& script) { script.refuse_allocate = full; });
  gradring_op op = sum(large, large);
  op.count = 2 * kGpuCount;
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(job_.get(), &op, &request), GRADRING_ERR_EXHAUSTED);
  EXPECT_THAT(gradring_last_error(), HasSubstr("has all that it may"));
  EXPECT_EQ(daemon_.segments(), 0u) << "what was idle has been given back first";
  daemon_.set([](Script& script) { script.refuse_allocate.reset(); });
  EXPECT_EQ(wait(submit(job_, op)), GRADRING_OK) << gradring_last_error();
}

}  // namespace
}  // namespace gradring::test
