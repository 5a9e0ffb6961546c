// Streams of a GPU in an order with the daemon's work.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "proto/stream_word.h"
#include "tests/client/gpu_memory_fixture.h"

namespace gradring::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class GpuStreams : public GpuMemory {
 protected:
  void TearDown() override {
    gpu_.hold(nullptr, false);
    GpuMemory::TearDown();
  }
  // Within a second.
  bool comes(const wire::StreamWord& word) {
    const StreamWord looked_at{daemon_.word_at(word), word.value()};
    for (int i = 0; i < 50 && !looked_at.has_come(); ++i) sleep_a_moment();
    return looked_at.has_come();
  }
  // In a thread, which has entered the GPU's context so many times when this returns.
  std::thread waits_on_stream(gradring_request request, int entries, void* stream,
                              gradring_code expected = GRADRING_OK) {
    const int before = twin_.entries();
    std::thread other([=, this] {
      EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, stream, -1), expected)
          << gradring_last_error();
    });
    while (twin_.entries() < before + entries) std::this_thread::yield();
    return other;
  }
  void sleep_a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  void* const another_stream_ = gpu_.make_stream();
  size_t operations_ = 0;
};

TEST_F(GpuStreams, NobodyWaitsForThem) {
  const uint64_t memory = registered();
  gpu_.hold(nullptr, true);
  write_later(memory, 3);
  const gradring_request request = submit(job_, sum(memory, memory));  // returns
  EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK)
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
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, another_stream_, -1), GRADRING_OK)
      << "several may";
  gpu_.wait_for(another_stream_);
  EXPECT_THAT(read(output), Each(8));
  EXPECT_EQ(wait(request), GRADRING_OK);
}

// Until it is on that one's stream there is nothing that another could come behind.
TEST_F(GpuStreams, WaitForWhoeverIsAboutToBringItAndBringItWhereThatOneFails) {
  for (const bool fails : {false, true}) {
    const uint64_t input = registered(), output = registered();
    void* const firsts = gpu_.make_stream();
    write_later(input, 4);
    const gradring_request request = submit(job_, sum(input, output));
    twin_.stall("cuStreamWaitValue32_v2", true);
    const gradring_code expected = fails ? GRADRING_ERR_INTERNAL : GRADRING_OK;
    std::thread first = waits_on_stream(request, 1, firsts, expected);
    EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, 20), GRADRING_ERR_DEADLINE);
    std::thread second = waits_on_stream(request, 0, nullptr);
    sleep_a_moment();
    if (fails) gpu_.end_stream(firsts);
    twin_.stall("cuStreamWaitValue32_v2", false);
    for (std::thread* const one : {&first, &second}) one->join();
    gpu_.wait_for(nullptr);
    EXPECT_THAT(read(output), Each(8));
    EXPECT_EQ(wait(request), GRADRING_OK);
  }
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

// The memory that stood in for the output is lent to another op before the first result has left
// it.
TEST_F(GpuStreams, ThatAreLateKeepTheResultsOfMemoryThatNobodyRegistered) {
  const auto fresh = [this] { return gpu_.alloc(kGpuBytes, false); };
  const uint64_t first = fresh(), first_sum = fresh(), second = fresh(), second_sum = fresh();
  write_later(first, 1, another_stream_);
  const gradring_request early = submit(job_, sum(first, first_sum, another_stream_));
  gpu_.hold(nullptr, true);
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), early, nullptr, -1), GRADRING_OK);
  EXPECT_EQ(wait(early), GRADRING_OK) << "it has ended, and its result is not there yet";
  write_later(second, 2, another_stream_);
  const gradring_request late = submit(job_, sum(second, second_sum, another_stream_));
  sleep_a_moment();
  gpu_.hold(nullptr, false);
  EXPECT_EQ(wait(late), GRADRING_OK) << gradring_last_error();
  gpu_.wait_for(nullptr);
  EXPECT_THAT(read(first_sum), Each(2));
  EXPECT_THAT(read(second_sum), Each(4));
}

// Another thread takes the request meanwhile, and with it all that the request held.
TEST_F(GpuStreams, ThatTakeNothingYetKeepTheResultForWhoeverPutsItOnThem) {
  const auto fresh = [this] { return gpu_.alloc(kGpuBytes, false); };
  const uint64_t first = fresh(), first_sum = fresh(), second = fresh(), second_sum = fresh();
  write_later(first, 1);
  const gradring_request early = submit(job_, sum(first, first_sum));
  twin_.stall("cuStreamWaitValue32_v2", true);
  std::thread other = waits_on_stream(early, 1, another_stream_);
  EXPECT_EQ(wait(early), GRADRING_OK) << gradring_last_error();
  write_later(second, 2);
  EXPECT_EQ(wait(submit(job_, sum(second, second_sum))), GRADRING_OK) << gradring_last_error();
  twin_.stall("cuStreamWaitValue32_v2", false);
  other.join();
  gpu_.wait_for(another_stream_);
  EXPECT_THAT(read(first_sum), Each(2));
  EXPECT_THAT(read(second_sum), Each(4));
}

TEST_F(GpuStreams, ThatCannotWaitKeepTheMemoryUntilTheResultIsThere) {
  twin_.answer("cuStreamWaitValue32_v2", 801);  // CUDA_ERROR_NOT_SUPPORTED
  const std::vector<const char*> begun = {"cuStreamWaitValue32_v2", "cuMemcpyHtoDAsync_v2"};
  for (int i = 0; i < 2; ++i) {
    const uint64_t memory = registered();
    write_later(memory, 3);
    const gradring_request request = submit(job_, sum(memory, memory));
    twin_.stall(begun[i], true);
    std::thread other = waits_on_stream(request, 1 + i, another_stream_);
    EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
    EXPECT_EQ(gradring_unregister(job_.get(), pointer(memory)), GRADRING_ERR_INVALID);
    EXPECT_THAT(gradring_last_error(), HasSubstr("is lent to requests"));
    twin_.stall(begun[i], false);
    other.join();
    EXPECT_THAT(read(memory), Each(6));
    EXPECT_EQ(gradring_unregister(job_.get(), pointer(memory)), GRADRING_OK);
  }
  twin_.answer("cuStreamWaitValue32_v2", 0);
}

TEST_F(GpuStreams, GoOnWhenTheOpFailsOrTheDaemonIsGone) {
  const uint64_t memory = registered();
  daemon_.set([](Script& script) { script.complete = false; });
  write_later(memory, 3);
  gradring_request request = submit(job_, sum(memory, memory));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
  sleep_a_moment();
  EXPECT_THAT(read(memory), Each(3)) << "it waits";
  wire::Completion failed;
  failed.set_verdict(GRADRING_VERDICT_FAILED);
  failed.set_message("rank 1 died");
  daemon_.send(completed(daemon_.wait_for_operations(1).at(0), failed));
  EXPECT_EQ(wait(request), GRADRING_ERR_FAILED);
  gpu_.wait_for(nullptr);

  request = submit(job_, sum(memory, memory));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
  daemon_.wait_for_operations(2);
  daemon_.die();
  EXPECT_EQ(wait(request), GRADRING_ERR_FAILED);
  gpu_.wait_for(nullptr);
}

TEST_F(GpuStreams, GoOnWhenTheCommunicatorIsClosed) {
  const uint64_t memory = registered();
  daemon_.set([](Script& script) { script.complete = false; });
  const gradring_request request = submit(job_, sum(memory, memory));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
  job_.reset();
  gpu_.wait_for(nullptr);
}

// The daemon's word that the op has failed is what they wait for, and somebody has to hear it.
TEST_F(GpuStreams, GoOnAlsoWhileTheDriverWaitsForThem) {
  const uint64_t slow = registered(), other = registered();
  const gradring_request request = submit_alone(sum(slow, slow));
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
  std::thread frees([&] {
    EXPECT_EQ(gradring_unregister(job_.get(), pointer(other)), GRADRING_OK)
        << gradring_last_error();
  });
  sleep_a_moment();
  daemon_.die();
  EXPECT_EQ(wait(request), GRADRING_ERR_FAILED);
  frees.join();
}

TEST_F(GpuStreams, GoOnWhateverKeepsTheDriver) {
  const uint64_t slow = registered(), other = gpu_.alloc(kGpuBytes, false);
  wire::Completion failed;
  failed.set_verdict(GRADRING_VERDICT_FAILED);
  const auto goes_on_beside = [&](const char* function,
                                  const std::function<gradring_code()>& call) {
    const gradring_request request = submit_alone(sum(slow, slow));
    const wire::Operation operation = daemon_.wait_for_operations(++operations_).back();
    ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
    twin_.stall(function, true);
    std::thread another([&] { EXPECT_EQ(call(), GRADRING_OK) << gradring_last_error(); });
    sleep_a_moment();
    daemon_.send(completed(operation, failed));
    EXPECT_EQ(wait(request), GRADRING_ERR_FAILED) << function;
    twin_.stall(function, false);
    another.join();
  };
  const auto enters = [&] { return gradring_register(job_.get(), pointer(other), kGpuBytes); };
  const auto leaves = [&] { return gradring_unregister(job_.get(), pointer(other)); };
  const auto sums = [&] {
    daemon_.set([](Script& script) { script.complete = true; });
    ++operations_;
    const gradring_op op = sum(other, other);
    gradring_request request = 0;
    const gradring_code code = gradring_submit(job_.get(), &op, &request);
    return code == GRADRING_OK ? wait(request) : code;
  };
  goes_on_beside("cuMemHostRegister_v2", enters);
  goes_on_beside("cuMemHostUnregister", leaves);
  goes_on_beside("cuMemHostRegister_v2", sums);
}

// What has failed leaves its word, and a stream that has yet to write there.
TEST_F(GpuStreams, DoNotTakeBackWhatAnotherHasWrittenSince) {
  void* ours = nullptr;
  daemon_.set([](Script& script) { script.sums_on_gpus = true; });
  job_ = open(daemon_);
  constexpr uint64_t kBytes = uint64_t{3} << 20;
  ASSERT_EQ(gradring_gpu_alloc(kBytes, 0, &ours), GRADRING_OK) << gradring_last_error();
  gradring_op op = sum(std::bit_cast<uint64_t>(ours), std::bit_cast<uint64_t>(ours));
  op.count = kBytes / sizeof(float);
  gpu_.hold(nullptr, true);
  const gradring_request early = submit_alone(op);
  wire::Completion failed;
  failed.set_verdict(GRADRING_VERDICT_FAILED);
  daemon_.send(completed(daemon_.wait_for_operations(1).at(0), failed));
  EXPECT_EQ(wait(early), GRADRING_ERR_FAILED);
  op.stream = another_stream_;
  const gradring_request late = submit_alone(op);
  const wire::Operation operation = daemon_.wait_for_operations(2).at(1);
  const StreamWord reached{daemon_.word_at(operation.reached()), operation.reached().value()};
  gpu_.wait_for(another_stream_);
  gpu_.hold(nullptr, false);
  gpu_.wait_for(nullptr);
  EXPECT_TRUE(reached.has_come());
  daemon_.complete(operation);
  EXPECT_EQ(wait(late), GRADRING_OK) << gradring_last_error();
  EXPECT_EQ(gradring_gpu_free(ours), GRADRING_OK);
}

// Nor do two ops in parts of one buffer, which other ranks may start in another order.
TEST_F(GpuStreams, ThatBringResultsKeepNoOtherOpOfTheirMemory) {
  const uint64_t memory = registered();
  gradring_op first = sum(memory, memory), second = first;
  first.count = second.count = kGpuCount / 2;
  second.input = second.output = pointer(memory + kGpuBytes / 2);
  write_later(memory, 3);
  const gradring_request slow = submit_alone(first);
  ASSERT_EQ(gradring_wait_on_stream(job_.get(), slow, another_stream_, -1), GRADRING_OK);
  const gradring_request quick = submit_alone(second);
  const auto operations = daemon_.wait_for_operations(2);
  ASSERT_TRUE(comes(operations[1].reached()));
  for (const wire::Operation& operation : operations) daemon_.complete(operation);
  for (const gradring_request request : {slow, quick}) EXPECT_EQ(wait(request), GRADRING_OK);
}

// A GPU has few connections for all streams, and what waits on one holds up others.
TEST_F(GpuStreams, AreSoFewThatTheyDoNotWaitForOneAnother) {
  twin_.share(8);
  void* const held = gpu_.make_stream();
  void* const quick = gpu_.make_stream();
  std::vector<uint64_t> buffers;
  for (int i = 0; i < 10; ++i) buffers.push_back(registered());
  const uint64_t slow = registered();
  gpu_.hold(held, true);
  const gradring_request late = submit_alone(sum(slow, slow, held));
  for (const uint64_t memory : buffers) {
    write_later(memory, 2, quick);
    submit_alone(sum(memory, memory, quick));
  }
  const auto operations = daemon_.wait_for_operations(1 + buffers.size());
  for (size_t i = 1; i < operations.size(); ++i) {
    EXPECT_TRUE(comes(operations[i].reached())) << i;
  }
  gpu_.hold(held, false);
  for (const wire::Operation& operation : operations) daemon_.complete(operation);
  EXPECT_EQ(wait(late), GRADRING_OK) << gradring_last_error();
  twin_.share(0);
}

// 5 MiB in parts of 2: of the result some is fetched before the op has ended.
TEST_F(GpuStreams, FetchALargeResultPartAfterPart) {
  constexpr uint64_t kPart = uint64_t{2} << 20, kBytes = uint64_t{5} << 20;
  const uint64_t memory = gpu_.alloc(kBytes, false);
  gradring_op op = sum(memory, memory);
  op.count = kBytes / sizeof(float);
  for (uint64_t at = 0; at < kBytes; at += kPart / 2) {
    const uint64_t part = at / kPart;
    gpu_.fill_later(nullptr, memory + at, static_cast<float>(1 + part), kPart / 2 / sizeof(float));
  }
  const gradring_request request = submit_alone(op);
  const auto begins = [&](uint64_t part) {
    float value = 0;
    gpu_.read(memory + part * kPart, &value, sizeof(value));
    return value;
  };
  const wire::Operation operation = daemon_.wait_for_operations(1).at(0);
  EXPECT_EQ(operation.part_bytes(), kPart);
  const StreamWord reached{daemon_.word_at(operation.reached()), operation.reached().value(), 3};
  while (!reached.has_come()) sleep_a_moment();
  const wire::Buffer& output = operation.output();
  wire::StreamWord first;
  first.set_segment(output.segment());
  first.set_offset(output.offset());
  first.set_value(1);
  auto* const result = reinterpret_cast<float*>(daemon_.word_at(first));
  EXPECT_EQ(result[2 * kPart / sizeof(float)], 3) << "all of the input is there";
  std::fill_n(result, op.count, 8.0f);

  ASSERT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_OK);
  const StreamWord ended{daemon_.word_at(operation.ended()), operation.ended().value(), 3};
  ended.set_come(1);
  while (begins(0) != 8) sleep_a_moment();
  sleep_a_moment();
  EXPECT_EQ(begins(1), 2) << "that may not be final";
  ended.set_come(2);
  while (begins(1) != 8) sleep_a_moment();
  daemon_.complete(operation);
  EXPECT_EQ(wait(request), GRADRING_OK);
  gpu_.wait_for(nullptr);
  EXPECT_EQ(begins(2), 16) << "as this daemon sums";
  gpu_.free(memory);
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
  EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("has no output on a GPU"));
  EXPECT_EQ(wait(request), GRADRING_OK);
  EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_ERR_NOT_FOUND);
  request = submit(job_, sum(memory, memory));
  twin_.capture(nullptr, true);
  EXPECT_EQ(gradring_wait_on_stream(job_.get(), request, nullptr, -1), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("captured into a CUDA graph"));
  twin_.capture(nullptr, false);
  EXPECT_EQ(wait(request), GRADRING_OK) << "which brings the result, then";
}

}  // namespace
}  // namespace gradring::test
