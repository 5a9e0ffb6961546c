// Streams of a GPU that have more to do than a driver takes: whoever puts more on one waits there.
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <thread>

#include "tests/client/gpu_memory_fixture.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class GpuFullStreams : public GpuMemory {
 protected:
  void* const full_ = gpu_.make_stream();
};

// What that one waits for may be an op whose other ranks wait for what comes on another stream.
TEST_F(GpuFullStreams, KeepOpsOfNoOtherStream) {
  const uint64_t slow = registered(), quick = registered();
  write_later(slow, 1, full_);
  write_later(quick, 2);
  twin_.fill_up(full_, true);
  auto late = std::async(std::launch::async, [&] { return submit(job_, sum(slow, slow, full_)); });
  EXPECT_EQ(late.wait_for(50ms), std::future_status::timeout);
  auto early =
      std::async(std::launch::async, [&] { return wait(submit(job_, sum(quick, quick))); });
  EXPECT_EQ(early.wait_for(5s), std::future_status::ready) << "it waits for another's stream";
  twin_.fill_up(full_, false);
  EXPECT_EQ(early.get(), GRADRING_OK);
  EXPECT_EQ(wait(late.get()), GRADRING_OK);
  EXPECT_THAT(read(quick), Each(4));
  EXPECT_THAT(read(slow), Each(2));
}

// As all gradients of a model do that lie in one allocation.
TEST_F(GpuFullStreams, KeepNoOpOfAnotherStreamInTheSameMemory) {
  const uint64_t memory = registered();
  write_later(memory, 1);
  gradring_op first = sum(memory, memory);
  first.count = kGpuCount / 2;
  gradring_op second = sum(memory + kGpuBytes / 2, memory + kGpuBytes / 2);
  second.count = kGpuCount / 2;
  const gradring_request slow = submit(job_, first);
  twin_.fill_up(full_, true);
  auto late = std::async(std::launch::async,
                         [&] { return gradring_wait_on_stream(job_.get(), slow, full_, -1); });
  EXPECT_EQ(late.wait_for(50ms), std::future_status::timeout);
  auto early = std::async(std::launch::async, [&] { return wait(submit(job_, second)); });
  EXPECT_EQ(early.wait_for(5s), std::future_status::ready) << "it waits for another's stream";
  twin_.fill_up(full_, false);
  EXPECT_EQ(early.get(), GRADRING_OK);
  EXPECT_EQ(late.get(), GRADRING_OK);
  EXPECT_EQ(wait(slow), GRADRING_OK);
  gpu_.wait_for(full_);
  EXPECT_THAT(read(memory), Each(2));
}

}  // namespace
}  // namespace gradring::test
