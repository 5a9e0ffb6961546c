// Memory of gradring_gpu_alloc, summed by the daemon where it is.
#include <gmock/gmock.h>

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "proto/stream_word.h"
#include "tests/client/fake_view.h"
#include "tests/client/gpu_pool_fixture.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST_F(GpuPool, IsSummedWhereItIs) {
  const uint64_t memory = allocate(2 * kBytes);
  fill(memory, 3, 2 * kBytes);
  const uint64_t part = memory + kOdd;
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, part, part)));
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, memory, memory + kBytes)));
  EXPECT_THAT(all_of(memory, 2 * kBytes), Each(3)) << "this daemon leaves it as it is";
  const auto shares = daemon_.wait_for_messages(wire::ClientMessage::kShareGpu, 1);
  ASSERT_EQ(shares.size(), 1u) << "all of it, once";
  EXPECT_EQ(shares[0].share_gpu().bytes(), 2 * kBytes);
  EXPECT_EQ(shares[0].share_gpu().offset(), 0u);
  const auto operations = daemon_.wait_for_operations(2);
  EXPECT_EQ(operations[0].input().offset(), kOdd);
  EXPECT_EQ(operations[1].output().offset(), kBytes);
  free(memory);
  EXPECT_FALSE(is_there(memory));
  expect_freed(1);  // closed there before it goes here
  EXPECT_EQ(daemon_.segments(), 0u);
}

TEST_F(GpuPool, IsSummedWithoutTheCopiesThatOtherMemoryTakes) {
  const uint64_t foreign = gpu_.alloc(kBytes, false);
  const gradring_op op = sum_of(kBytes, foreign, foreign);
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(job_.get(), &op, &request), GRADRING_ERR_INTERNAL)
      << "none can be made in these tests";
  gpu_.free(foreign);
}

TEST_F(GpuPool, IsWaitedForByStreams) {
  const uint64_t memory = allocate();
  void* const stream = gpu_.make_stream();
  for (int step = 0; step < 3; ++step) {
    gradring_op op = sum_of(kBytes, memory, memory);
    op.stream = stream;
    gpu_.fill_later(stream, memory, 5, kBytes / sizeof(float));
    const gradring_request request = submit(job_, op);
    ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, stream, -1), GRADRING_OK)
        << gradring_last_error();
    EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
    gpu_.wait_for(stream);
    EXPECT_THAT(all_of(memory), Each(5));
  }
  EXPECT_EQ(shared(), 1u);
}

// They are parts of one buffer to the library, and nothing to one another.
TEST_F(GpuPool, HasOpsThatDoNotWaitForOneAnother) {
  const uint64_t memory = allocate(4 * kBytes);
  void* const slow = gpu_.make_stream();
  void* const quick = gpu_.make_stream();
  std::vector<wire::Operation> operations;
  std::vector<gradring_request> requests;
  const auto start = [&](uint64_t place, void* stream) {
    gradring_op op = sum_of(kBytes, memory + place * kBytes, memory + place * kBytes);
    op.stream = stream;
    requests.push_back(submit_alone(op));
    operations.push_back(last_operation());
    ASSERT_EQ(gradring_wait_on_stream(job_.get(), requests.back(), nullptr, -1), GRADRING_OK);
  };
  gpu_.hold(slow, true);
  start(0, slow);
  for (uint64_t place = 1; place < 4; ++place) start(place, quick);
  const auto reached = [&](size_t i) {
    return StreamWord{daemon_.word_at(operations[i].reached()), operations[i].reached().value()};
  };
  for (size_t i = 1; i < 4; ++i) {
    while (!reached(i).has_come()) std::this_thread::yield();
  }
  EXPECT_FALSE(reached(0).has_come());
  gpu_.hold(slow, false);
  for (const wire::Operation& operation : operations) daemon_.complete(operation);
  for (const gradring_request request : requests) EXPECT_EQ(wait(request), GRADRING_OK);
}

// The one is summed where it is, the other by a copy within the GPU.
TEST_F(GpuPool, MeetsOtherMemory) {
  twin_.answer("cuMemcpyDtoDAsync_v2", 0);
  const uint64_t ours = allocate(), another = allocate();
  const uint64_t theirs = gpu_.alloc(kBytes, true);
  fill(theirs, 7);
  fill(ours, 4);
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, ours, theirs)));
  EXPECT_EQ(shared(), 2u) << "a block stands for the other";
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, theirs, ours)));
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, ours, another)));
  EXPECT_EQ(shared(), 3u);
  gpu_.free(theirs);
}

TEST_F(GpuPool, GoesByTheHostWhereTheDaemonsGpusHaveNoPartInIt) {
  const uint64_t memory = allocate();
  fill(memory, 1);
  EXPECT_FALSE(is_on_gpu(sum_of(kGpuBytes, memory, memory)));
  EXPECT_THAT(all_of(memory, kGpuBytes), Each(2)) << "this daemon sums on the host alone";
  gradring_op broadcast = sum_of(kBytes, memory, memory);
  broadcast.collective = GRADRING_BROADCAST;
  EXPECT_FALSE(is_on_gpu(broadcast));
  EXPECT_EQ(shared(), 0u);
}

// As FSDP has it.
TEST_F(GpuPool, IsScatteredAndGathered) {
  twin_.answer("cuMemcpyDtoDAsync_v2", kNever);
  const uint64_t whole = allocate(2 * kBytes), share = allocate();
  fill(whole, 2, 2 * kBytes);
  gradring_op op = sum_of(kBytes, whole, share);
  op.collective = GRADRING_REDUCE_SCATTER;
  EXPECT_TRUE(is_on_gpu(op));
  EXPECT_EQ(shared(), 2u) << "all ranks are on one node, so that both stay on the GPU";
  op.input = pointer(share);
  op.output = pointer(whole);
  op.collective = GRADRING_ALLGATHER;
  EXPECT_TRUE(is_on_gpu(op));
  op.input = pointer(whole);  // the own block
  EXPECT_TRUE(is_on_gpu(op));
  EXPECT_EQ(shared(), 2u);
}

TEST_F(GpuPool, IsScatteredFromNodeToNodeWhereTheNetworkReachesIt) {
  twin_.answer("cuMemcpyDtoDAsync_v2", 0);
  const uint64_t whole = allocate(2 * kBytes), share = allocate();
  fill(whole, 2, 2 * kBytes);
  gradring_op op = sum_of(kBytes, whole, share);
  op.collective = GRADRING_REDUCE_SCATTER;
  for (const bool direct : {false, true}) {
    daemon_.set([&](Script& script) {
      script.view = view_of("job", 1, {0, 1});
      script.gpu_direct = direct;
    });
    job_.reset();
    job_ = open(daemon_);
    const gradring_request request = submit(job_, op);
    const wire::Operation operation = last_operation();
    EXPECT_TRUE(operation.on_gpu());
    EXPECT_EQ(operation.stays_on_gpu(), direct);
    EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
  }
}

TEST_F(GpuPool, IsNoMoreThanItHas) {
  twin_.answer("cuMemcpyDtoDAsync_v2", 0);
  const uint64_t memory = allocate();
  // The driver has rounded it up, and what lies behind it is the user's own mistake.
  fill(memory, 2);
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, memory + kOdd, memory + kOdd)));
  EXPECT_EQ(daemon_.wait_for_operations(1)[0].input().offset(), 0u) << "a block stood for it";
}

TEST_F(GpuPool, IsAskedForOnceWhereTheDaemonCannotOpenIt) {
  daemon_.set([](Script& script) {
    script.refuse_share_gpu = refusal(Code::kUnavailable, "another pid namespace");
  });
  const uint64_t memory = allocate();
  fill(memory, 1);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(is_on_gpu(sum_of(kBytes, memory, memory)));
  EXPECT_THAT(all_of(memory), Each(8));
  EXPECT_EQ(shared(), 1u);
  EXPECT_EQ(daemon_.segments(), 1u) << "the stage of any other memory";
}

TEST_F(GpuPool, IsNotSharedWithADaemonThatSumsOnTheHost) {
  daemon_.set([](Script& script) { script.sums_on_gpus = false; });
  job_.reset();
  job_ = open(daemon_);
  const uint64_t memory = allocate();
  fill(memory, 1);
  EXPECT_FALSE(is_on_gpu(sum_of(kBytes, memory, memory)));
  EXPECT_THAT(all_of(memory), Each(2));
  EXPECT_EQ(shared(), 0u);
}

TEST_F(GpuPool, IsOfTheGpuThatWasNamed) {
  twin_.have(2);
  const uint64_t first = allocate(kBytes, 0), second = allocate(kBytes, 1);
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, first, second)));
  const auto shares = daemon_.wait_for_messages(wire::ClientMessage::kShareGpu, 2);
  EXPECT_NE(shares[0].share_gpu().gpu(), shares[1].share_gpu().gpu());
}

TEST_F(GpuPool, IsRefusedInWords) {
  void* memory = this;
  EXPECT_EQ(gradring_gpu_alloc(64, 0, nullptr), GRADRING_ERR_INVALID);
  EXPECT_EQ(gradring_gpu_alloc(0, 0, &memory), GRADRING_ERR_INVALID);
  EXPECT_EQ(memory, nullptr);
  for (const int device : {-1, 7}) {
    EXPECT_EQ(gradring_gpu_alloc(64, device, &memory), GRADRING_ERR_INVALID);
    EXPECT_THAT(gradring_last_error(), HasSubstr("has no GPU " + std::to_string(device)));
  }
  twin_.answer("cuMemCreate", kFull);
  EXPECT_EQ(gradring_gpu_alloc(kBytes, 0, &memory), GRADRING_ERR_EXHAUSTED);
  EXPECT_THAT(gradring_last_error(), HasSubstr("no 3145728 bytes of memory of GPU 0"));
  EXPECT_EQ(gradring_torch_alloc(kBytes, 0, nullptr), nullptr);
  twin_.answer("cuMemCreate", 0);
  EXPECT_EQ(gradring_gpu_alloc(SIZE_MAX, 0, &memory), GRADRING_ERR_EXHAUSTED);
  twin_.answer("cuDevicePrimaryCtxRetain", kNever);
  EXPECT_EQ(gradring_gpu_alloc(kBytes, 0, &memory), GRADRING_ERR_UNAVAILABLE);
  twin_.answer("cuDevicePrimaryCtxRetain", 0);
  EXPECT_EQ(memory, nullptr);

  const uint64_t good = allocate();
  const uint64_t foreign = gpu_.alloc(kBytes, false);
  std::array<char, 8> host{};
  for (void* const nonsense : {pointer(good + 4), pointer(foreign), static_cast<void*>(&host)}) {
    EXPECT_EQ(gradring_gpu_free(nonsense), GRADRING_ERR_NOT_FOUND);
    EXPECT_THAT(gradring_last_error(),
                HasSubstr("not the start of memory that gradring_gpu_alloc"));
  }
  EXPECT_EQ(gradring_gpu_free(nullptr), GRADRING_OK);
  free(good);
  EXPECT_EQ(gradring_gpu_free(pointer(good)), GRADRING_ERR_NOT_FOUND) << "once";
  gpu_.free(foreign);
}

TEST_F(GpuPool, OfPyTorchIsTheSame) {
  void* const memory = gradring_torch_alloc(kBytes, 0, nullptr);
  ASSERT_NE(memory, nullptr) << gradring_last_error();
  const auto address = std::bit_cast<uint64_t>(memory);
  EXPECT_TRUE(is_on_gpu(sum_of(kBytes, address, address)));
  EXPECT_EQ(gradring_torch_alloc(-1, 0, nullptr), nullptr);
  EXPECT_STREQ(gradring_last_error(), "bytes is negative");
  gradring_torch_free(memory, kBytes, 0, nullptr);
  gradring_torch_free(memory, kBytes, 0, nullptr);  // of which nobody could be told
  EXPECT_FALSE(is_there(address));
}

TEST_F(GpuPool, WithoutRoomForItsShadowGoesAsOtherMemory) {
  twin_.answer("cuMemcpyDtoDAsync_v2", 0);
  const uint64_t memory = allocate(4 * kBytes);
  fill(memory, 1);
  daemon_.set([](Script& script) {
    script.refuse_allocate = refusal(Code::kResourceExhausted, "segment-limit");
  });
  gradring_op op = sum_of(kBytes, memory, memory);
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(job_.get(), &op, &request), GRADRING_ERR_EXHAUSTED);
  daemon_.set([](Script& script) { script.refuse_allocate.reset(); });
  EXPECT_TRUE(is_on_gpu(op)) << "by a block";
  EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kShareGpu, 1)[0].share_gpu().bytes(),
            kBytes);
}

}  // namespace
}  // namespace gradring::test
