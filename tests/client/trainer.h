#pragma once

#include <gradring/gradring.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "proto/status.h"
#include "tests/client/fake_daemon.h"

namespace gradring::test {

using Clock = std::chrono::steady_clock;

inline int64_t ms_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

// What is to happen at once may take so long on a machine that is busy with other tests; far less
// than any timeout of the library that could end it instead.
constexpr int64_t kSoonMs = 1800;

// A wait ends within 5 ms of its deadline on a machine with nothing else to do; ten times that
// here.
constexpr int64_t kLateMs = 50;

// More packets than the kernel keeps for a socket that is not read (about 280).
constexpr size_t kManyThreads = 400;

// The time in ms that `body` takes at its best. A busy machine wakes a thread late now and then,
// the library must not do so every time.
template <class Body>
int64_t quickest_of_five(Body body) {
  int64_t quickest = INT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    body();
    quickest = std::min(quickest, ms_since(start));
  }
  return quickest;
}

struct Close {
  void operator()(gradring_comm* comm) const { gradring_close(comm); }
};
using Comm = std::unique_ptr<gradring_comm, Close>;

inline gradring_options options_for(const std::string& runtime_dir, int32_t rank = 0,
                                    int32_t size = 2) {
  gradring_options options{};
  options.struct_size = sizeof(options);
  options.runtime_dir = runtime_dir.c_str();
  options.job = "job";
  options.rank = rank;
  options.size = size;
  options.local_rank = -1;
  options.local_size = -1;
  return options;
}

inline Comm open(const FakeDaemon& daemon, int32_t rank = 0, int32_t size = 2) {
  const gradring_options options = options_for(daemon.runtime_dir(), rank, size);
  gradring_comm* comm = nullptr;
  EXPECT_EQ(gradring_open(&options, &comm), GRADRING_OK) << gradring_last_error();
  return Comm(comm);
}

// Tries to open what shall not open; the code and the sentence.
struct Refusal {
  gradring_code code;
  std::string message;
};
inline Refusal open_refused(const gradring_options& options) {
  gradring_comm* comm = nullptr;
  const gradring_code code = gradring_open(&options, &comm);
  EXPECT_EQ(comm, nullptr);
  gradring_close(comm);
  return {code, gradring_last_error()};
}

template <class T = float>
T* alloc(const Comm& comm, size_t count) {
  void* memory = nullptr;
  EXPECT_EQ(gradring_alloc(comm.get(), count * sizeof(T), &memory), GRADRING_OK)
      << gradring_last_error();
  return static_cast<T*>(memory);
}

inline gradring_op sum_of(const float* input, float* output, uint64_t count) {
  gradring_op op{};
  op.struct_size = sizeof(op);
  op.collective = GRADRING_ALLREDUCE;
  op.dtype = GRADRING_FLOAT32;
  op.op = GRADRING_SUM;
  op.count = count;
  op.input = input;
  op.output = output;
  return op;
}

inline gradring_op barrier_op() {
  gradring_op op{};
  op.struct_size = sizeof(op);
  op.collective = GRADRING_BARRIER;
  return op;
}

inline gradring_request submit(const Comm& comm, const gradring_op& op) {
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(comm.get(), &op, &request), GRADRING_OK) << gradring_last_error();
  return request;
}

inline gradring_result empty_result() {
  gradring_result result{};
  result.struct_size = sizeof(result);
  return result;
}

inline wire::Refused refusal(Code code, const std::string& message) {
  wire::Refused refused;
  refused.set_code(static_cast<uint32_t>(code));
  refused.set_message(message);
  return refused;
}

}  // namespace gradring::test
