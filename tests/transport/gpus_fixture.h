#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/transport/gpus_share.h"
#include "transport/cuda/gpus.h"

namespace gradring::transport {

using Bytes = std::vector<std::byte>;

// The daemon's GPUs, which the tests' driver makes, and trainers' memory on them.
class GpusOfTheDaemon : public ::testing::Test {
 protected:
  using Memory = std::shared_ptr<const OpenGpuMemory>;

  void SetUp() override { have(1); }

  void TearDown() override {
    gpus_.reset();
    for (const auto& [address, of] : allocated_) twin_.gpu.free(address);
    EXPECT_EQ(twin_.held(), 0) << "nothing stays open, pinned, allocated or entered";
    twin_.have(1);
  }

  void have(int count, const GpuSums& sums = {}) {
    gpus_.reset();
    twin_.have(count);
    auto opened = open_gpus({}, sums);
    ASSERT_TRUE(opened) << opened.error().message();
    gpus_ = *std::move(opened);
  }

  // An allocation of a trainer's with these bytes from `offset` on.
  uint64_t allocate(const Bytes& bytes, size_t offset = 0, int gpu = 0) {
    const uint64_t address = twin_.alloc_on(gpu, offset + bytes.size());
    std::memcpy(static_cast<std::byte*>(twin_.behind(address)) + offset, bytes.data(),
                bytes.size());
    allocated_[address] = gpu;
    return address;
  }

  Memory open(uint64_t address, uint64_t offset, uint64_t bytes) {
    const int gpu = allocated_.at(address);
    auto opened = gpus_->open(test::share_of(address, offset, bytes, gpu));
    if (opened) return *std::move(opened);
    ADD_FAILURE() << opened.error().message();
    return nullptr;
  }
  Memory lend(const Bytes& bytes, size_t offset = 0, int gpu = 0) {
    return open(allocate(bytes, offset, gpu), offset, bytes.size());
  }

  // Until nothing works any more; what was not finite is in found_ then.
  std::map<uint64_t, Status> ends() {
    std::map<uint64_t, Status> ends;
    found_.clear();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (gpus_->busy()) {
      if (std::chrono::steady_clock::now() > until) {
        ADD_FAILURE() << "the GPUs are busy for ever";
        break;
      }
      std::vector<Gpus::Ended> ended;
      gpus_->take_ended(&ended);
      for (const auto& end : ended) {
        EXPECT_TRUE(ends.emplace(end.ticket, end.status).second) << end.ticket << " ended twice";
        if (end.nonfinite) found_[end.ticket] = *end.nonfinite;
      }
      std::this_thread::yield();
    }
    return ends;
  }
  void ends_well(uint64_t ticket) {
    const auto ended = ends();
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_EQ(ended.begin()->first, ticket);
    EXPECT_TRUE(ended.begin()->second.ok()) << ended.begin()->second.message();
  }

  // Whatever could be done on any stream until now has been done.
  void let_gpus_work() {
    void* const stream = twin_.gpu.make_stream();
    const uint64_t word = twin_.gpu.alloc(sizeof(float), false);
    for (int i = 0; i < 2; ++i) {  // the others' turn may come later in the same round
      twin_.gpu.fill_later(stream, word, 1, 1);
      twin_.gpu.wait_for(stream);
    }
    twin_.gpu.free(word);
    twin_.gpu.end_stream(stream);
  }

  Bytes random_bytes(size_t count) {
    Bytes bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }

  const test::CudaTwin& twin_ = test::cuda_twin();
  std::shared_ptr<Gpus> gpus_;
  std::map<uint64_t, Gpus::Nonfinite> found_;  // by ticket
  std::map<uint64_t, int> allocated_;
  std::mt19937_64 random_{20250611};
};

}  // namespace gradring::transport
