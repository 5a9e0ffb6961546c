#pragma once

#include <algorithm>
#include <vector>

#include "tests/daemon/data_node.h"
#include "tests/daemon/slow_gpus.h"

namespace gradring::daemon {

inline std::byte* bytes_of(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// A rank of a reduce-scatter or an allgather that has both buffers on a GPU. Rank r gives
// numbers(..., r + 1).
class GpuBlockRank {
 public:
  GpuBlockRank(uint32_t rank, uint32_t ranks, Collective collective, size_t block)
      : first_(rank * block),
        block_(block),
        scatters_(collective == Collective::kReduceScatter),
        input(numbers(scatters_ ? ranks * block : block, static_cast<float>(rank + 1))),
        output(scatters_ ? block : ranks * block, kUnwritten),
        input_shadow_(input.size(), kUnwritten),
        output_shadow_(output.size(), kUnwritten) {}

  // Says where its buffers are; `in_place`: the shorter one is the own block of the longer one.
  void lend(Submit* submit, bool in_place) {
    in_place_ = in_place;
    submit->input = bytes_of(input_shadow_);
    submit->output = bytes_of(output_shadow_);
    submit->gpu_input = {&input_memory_, 0};
    submit->gpu_output = {&output_memory_, 0};
    const uint64_t own = first_ * sizeof(float);
    if (in_place && scatters_) {
      submit->gpu_output = {&input_memory_, own};
      submit->output = bytes_of(input_shadow_) + own;
    } else if (in_place) {
      std::copy(input.begin(), input.end(), output.begin() + static_cast<ptrdiff_t>(first_));
      submit->gpu_input = {&output_memory_, own};
      submit->input = submit->output + own;
    }
  }
  void takes_on(size_t gpu) { output_memory_.lies_on(gpu); }
  std::vector<float> result() const {
    if (!scatters_ || !in_place_) return output;
    const auto own = input.begin() + static_cast<ptrdiff_t>(first_);
    return {own, own + static_cast<ptrdiff_t>(block_)};
  }
  // Whether what the host has in their place is as it was.
  bool never_by_host() const {
    const auto is_untouched = [](const std::vector<float>& all) {
      return std::ranges::all_of(all, [](float value) { return value == kUnwritten; });
    };
    return is_untouched(input_shadow_) && is_untouched(output_shadow_);
  }

 private:
  static constexpr float kUnwritten = -1;
  const size_t first_;
  const size_t block_;
  const bool scatters_;
  bool in_place_ = false;

 public:
  std::vector<float> input, output;

 private:
  std::vector<float> input_shadow_, output_shadow_;
  SlowGpus::Memory input_memory_{&input}, output_memory_{&output};
};

}  // namespace gradring::daemon
