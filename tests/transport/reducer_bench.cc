// How fast one core folds: `reducer_bench`, not part of ctest. Bytes are counted as the inputs
// read.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#include "transport/reducer.h"
#include "transport/wire_format.h"

namespace {

using namespace gradring;

// Arguments: inputs, KiB of each.
void fold_sum(benchmark::State& state, Dtype dtype, ReduceOp op) {
  const auto num_inputs = static_cast<size_t>(state.range(0));
  const auto bytes = static_cast<size_t>(state.range(1)) << 10;
  std::vector<std::vector<std::byte>> arrays(num_inputs + 1, std::vector<std::byte>(bytes));
  std::vector<const void*> inputs;
  for (size_t r = 0; r < num_inputs; ++r) inputs.push_back(arrays[r].data());
  for (auto _ : state) {
    transport::fold(dtype, op, inputs, arrays.back().data(), bytes / size_of(dtype), 0);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes * num_inputs));
  state.SetLabel(transport::reducer_target());
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"inputs", "KiB"});
  for (const int inputs : {1, 2, 3, 5, 9}) {
    for (const int kib : {16, 256, 16384}) benchmark->Args({inputs, kib});
  }
}

BENCHMARK_CAPTURE(fold_sum, float32_sum, Dtype::kFloat32, ReduceOp::kSum)->Apply(sizes);
BENCHMARK_CAPTURE(fold_sum, bfloat16_sum, Dtype::kBfloat16, ReduceOp::kSum)->Apply(sizes);
BENCHMARK_CAPTURE(fold_sum, float16_sum, Dtype::kFloat16, ReduceOp::kSum)->Apply(sizes);
BENCHMARK_CAPTURE(fold_sum, float32_max, Dtype::kFloat32, ReduceOp::kMax)->Apply(sizes);

// Bytes are counted as those of float32.
constexpr size_t kPacked = 256 << 10;

void pack(benchmark::State& state, WireType wire) {
  const std::vector<float> from(kPacked / sizeof(float), 1.5F);
  std::vector<std::byte> to(packed_bytes(wire, from.size()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(transport::pack(wire, from.data(), from.size(), to.data()));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kPacked));
}

void unpack(benchmark::State& state, WireType wire) {
  std::vector<float> to(kPacked / sizeof(float), 1.5F);
  std::vector<std::byte> packed(packed_bytes(wire, to.size()));
  transport::pack(wire, to.data(), to.size(), packed.data());
  for (auto _ : state) {
    transport::unpack(wire, packed.data(), to.size(), to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kPacked));
}

BENCHMARK_CAPTURE(pack, fp16, WireType::kFloat16);
BENCHMARK_CAPTURE(pack, bf16, WireType::kBfloat16);
BENCHMARK_CAPTURE(pack, int8, WireType::kInt8);
BENCHMARK_CAPTURE(unpack, fp16, WireType::kFloat16);
BENCHMARK_CAPTURE(unpack, bf16, WireType::kBfloat16);
BENCHMARK_CAPTURE(unpack, int8, WireType::kInt8);

}  // namespace

BENCHMARK_MAIN();
