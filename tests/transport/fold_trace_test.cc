// What the kernels' own code notes of results that are not finite, by a loop on the host.

#include "transport/cuda/fold_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/transport/fold_kinds.h"
#include "tests/transport/sum_findings.h"
#include "transport/cuda/fold_share.h"

namespace gradring::transport {
namespace {

using cuda::FoldTrace;

class FoldTraces : public ::testing::Test {
 protected:
  using Bytes = std::vector<std::byte>;

  // In place of the first input, from an element on at which the arrays are not aligned, as element
  // kFirst of a sum whose inputs are numbered backwards.
  void check(const fold_kinds::Kind& kind, size_t num_inputs, size_t count, size_t skipped,
             const Scale& scale) {
    const size_t element = size_of(kind.dtype);
    std::vector<Bytes> arrays(num_inputs, Bytes((skipped + count) * element + 16));
    std::vector<const void*> inputs;
    for (Bytes& array : arrays) {
      fold_kinds::fill(random_, element, array.data(), skipped + count);
      inputs.push_back(array.data() + skipped * element);
    }
    Bytes sum(count * element);
    fold(kind.dtype, kind.op, inputs, sum.data(), count, 0, scale);
    const auto expected = sum_findings(kind.dtype, sum.data(), inputs, count);

    void* const out = arrays[0].data() + skipped * element;
    cuda::FoldArguments a = cuda::fold_arguments(kind.dtype, inputs, {&out, 1}, count, 0, scale);
    FoldTrace trace{};
    uint32_t raised = 0;
    a.trace = &trace;
    a.raised = &raised;
    a.element = kFirst;
    a.num_traced = a.num_inputs;
    for (size_t r = 0; r < num_inputs; ++r) {
      a.numbers[r] = static_cast<uint8_t>(num_inputs - 1 - r);
    }
    share_of(kind, a);
    ASSERT_EQ(std::memcmp(out, sum.data(), sum.size()), 0) << describe(kind);
    ASSERT_EQ(raised, expected ? 1u : 0u) << describe(kind);
    ASSERT_EQ(trace.first, expected ? ~FoldTrace::Number{kFirst + expected->first} : 0);
    for (size_t r = 0; r < num_inputs; ++r) {
      const auto input = expected ? expected->inputs[r] : Gpus::Nonfinite::Input{};
      const uint64_t mark = 2 * (kFirst + input.first) + (input.nan ? 0 : 1);
      const size_t number = num_inputs - 1 - r;
      ASSERT_EQ(trace.many[number], input.many) << describe(kind);
      ASSERT_EQ(trace.first_of[number], input.many == 0 ? 0 : ~FoldTrace::Number{mark});
    }
  }

  // Threads come in any order.
  void share_of(const fold_kinds::Kind& kind, const cuda::FoldArguments& a) {
    using Share = void (*)(const cuda::FoldArguments&, size_t, size_t);
    const Share share =
        cuda::with_kind(kind.dtype, kind.op, [&a](auto format, auto operation) -> Share {
          using Format = decltype(format);
          using Op = decltype(operation);
          if constexpr (std::is_floating_point_v<typename Format::Value>) {
            if (a.scaled != 0) return &cuda::fold_share<Format, Op, true>;
          }
          return &cuda::fold_share<Format, Op>;
        });
    std::vector<size_t> threads = {0, 1, 2, 3, 4};
    std::shuffle(threads.begin(), threads.end(), random_);
    for (const size_t thread : threads) share(a, thread, threads.size());
  }

  static constexpr uint64_t kFirst = uint64_t{1} << 33;
  std::mt19937_64 random_{20251125};
};

TEST_F(FoldTraces, SayWhatTheReducerAndItsInputsShow) {
  const std::vector<double> factors = {0.1, 1e30, -3};
  for (const fold_kinds::Kind& kind : fold_kinds::all_kinds()) {
    for (const size_t count : {1, 2, 7, 64, 257}) {
      for (const size_t skipped : {0, 1, 3}) {
        check(kind, 1, count, skipped, {});
        check(kind, 3, count, skipped, {});
        if (is_float(kind.dtype)) check(kind, 3, count, skipped, {factors, 1e20});
      }
    }
  }
}

TEST_F(FoldTraces, AreNotNeeded) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values(100, nan);
  const void* const inputs[] = {values.data()};
  void* const outs[] = {values.data()};
  const auto a = cuda::fold_arguments(Dtype::kFloat32, inputs, outs, values.size(), 0);
  ASSERT_EQ(a.trace, nullptr);
  share_of({Dtype::kFloat32, ReduceOp::kSum}, a);
}

}  // namespace
}  // namespace gradring::transport
