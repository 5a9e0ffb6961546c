// What somebody captures into a CUDA graph while the library works.
#include <gmock/gmock.h>

#include <bit>
#include <thread>
#include <vector>

#include "tests/client/gpu_memory_fixture.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class GpuCaptures : public GpuMemory {
 protected:
  // All that calls the driver, while this thread or another one captures.
  void use_all() {
    const uint64_t memory = registered(), pooled = registered(true);
    const uint64_t staged = gpu_.alloc(kGpuBytes, false);
    for (const uint64_t each : {memory, pooled, staged}) {
      write_later(each, 3, stream_);
      ASSERT_EQ(wait(submit(job_, sum(each, each, stream_))), GRADRING_OK) << gradring_last_error();
      const gradring_request request = submit(job_, sum(each, each, stream_));
      ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, stream_, -1), GRADRING_OK)
          << gradring_last_error();
      EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
      gpu_.wait_for(stream_);
      EXPECT_THAT(read(each), Each(12));
    }
    EXPECT_EQ(gradring_unregister(job_.get(), pointer(memory)), GRADRING_OK);
    void* ours = nullptr;
    EXPECT_EQ(gradring_gpu_alloc(kGpuBytes, 0, &ours), GRADRING_OK) << gradring_last_error();
    EXPECT_EQ(gradring_gpu_free(ours), GRADRING_OK) << gradring_last_error();
    job_.reset();
  }
  void is_left_whole() {
    EXPECT_TRUE(twin_.capture(captured_, false));
    EXPECT_EQ(twin_.held(), 0) << "and nothing was refused";
  }

  void* const stream_ = gpu_.make_stream();
  void* const captured_ = gpu_.make_stream();
};

TEST_F(GpuCaptures, OfOtherThreadsAreLeftWhole) {
  std::thread([&] { twin_.capture(captured_, true); }).join();
  use_all();
  is_left_whole();
}

TEST_F(GpuCaptures, OfTheThreadItselfAreLeftWhole) {
  twin_.capture(captured_, true);
  use_all();
  is_left_whole();
}

TEST_F(GpuCaptures, AreLeftWholeAlsoWhereTheCallerWaitsForStreams) {
  daemon_.set([](Script& script) { script.stream_words = false; });
  job_ = open(daemon_);
  std::thread([&] { twin_.capture(captured_, true); }).join();
  use_all();
  is_left_whole();
}

TEST_F(GpuCaptures, AreNotMadeToWaitAlsoWhereAnotherStreamWaitsAlready) {
  const uint64_t memory = registered();
  const gradring_request request = submit_alone(sum(memory, memory, stream_));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, stream_, -1), GRADRING_OK)
      << gradring_last_error();
  twin_.capture(captured_, true);
  EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, captured_, -1), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("captured into a CUDA graph"));
  EXPECT_TRUE(twin_.capture(captured_, false));
  daemon_.complete(daemon_.wait_for_operations(1).back());
  EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
}

TEST_F(GpuCaptures, ThatTheDefaultStreamWouldBePartOfAreAReasonToRefuse) {
  const uint64_t memory = registered();
  twin_.capture(captured_, true);
  const gradring_op op = sum(memory, memory);
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(job_.get(), &op, &request), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("captured into a CUDA graph"));
  twin_.capture(captured_, false);
}

}  // namespace
}  // namespace gradring::test
