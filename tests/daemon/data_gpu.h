#pragma once

// Sums of what ranks have on the GPUs of a node.

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/daemon/gpu_nodes.h"

namespace gradring::daemon {

inline constexpr size_t kFloats = 3 * kPartBytes / sizeof(float) + 1000;  // three parts and a piece

class DataGpu : public GpuNodes {
 protected:
  struct Rank {
    explicit Rank(float factor) : gpu(numbers(kFloats, factor)), host(kFloats, kUntouched) {}
    std::vector<float> gpu;
    std::vector<float> host;  // its shadow, which nobody but the daemon writes
    SlowGpus::Memory memory{&gpu};
  };

  core::Submission submission(uint32_t rank, uint64_t sequence) const {
    core::Submission submission;
    submission.rank = rank;
    submission.ticket = sequence + 1;
    submission.key = {0, sequence};
    submission.signature = {Collective::kAllreduce, Dtype::kFloat32, op_, 0, x_.gpu.size()};
    submission.signature.postscale = postscale_;
    submission.prescale = prescale_[rank];
    return submission;
  }
  void submit(uint32_t number, Rank& rank, uint64_t sequence = 0) {
    submit(number, rank, rank, sequence);
  }
  void submit(uint32_t number, Rank& from, Rank& to, uint64_t sequence) {
    submit(number, from, to, sequence, number + 1000, sequence + 1);
  }
  void submit(uint32_t number, Rank& from, Rank& to, uint64_t sequence, SessionId session,
              uint64_t ticket) {
    auto* const input = reinterpret_cast<std::byte*>(from.host.data());
    auto* const output = reinterpret_cast<std::byte*>(to.host.data());
    Submit submit{session, view_.incarnation, submission(number, sequence), input, output};
    submit.submission.ticket = ticket;
    submit.part_bytes = part_bytes_;
    submit.gpu_input = {&from.memory, 0};
    submit.gpu_output = {&to.memory, 0};
    a_.post(submit);
  }
  void submit_all(uint64_t sequence = 0) {
    submit(0, x_, sequence);
    submit(1, y_, sequence);
    b_.submit(view_, 2, z_, sequence);
  }

  Rank x_{1}, y_{2};
  std::vector<float> z_ = numbers(kFloats, 3);
  const std::vector<float> sum_ = numbers(kFloats, 6);
  ReduceOp op_ = ReduceOp::kSum;
  std::array<double, 3> prescale_ = {1, 1, 1};
  double postscale_ = 1;
  uint64_t part_bytes_ = kPartBytes;
};

// Of node a alone, on a GPU each: as many parts of an op.
class DataGpuAlone : public DataGpu {
 protected:
  void begin(const std::string& policy = "fail") {
    view_ = view_of({{"a", 2}}, 2);
    y_.memory.lies_on(1);
    view_.policy = policy;
    a_.install(view_);
  }
  void until_begun(size_t parts) {
    while (gpus_->allreduces().size() < parts && !HasFailure()) std::this_thread::sleep_for(1ms);
  }
};

}  // namespace gradring::daemon
