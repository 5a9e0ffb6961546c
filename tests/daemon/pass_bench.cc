// How fast a node's sums are made: `pass_bench`, not part of ctest. Bytes are counted as all that
// are read and written, of ranks that sum in place in shared memory, a slice after the other.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "daemon/config.h"
#include "daemon/data/pass.h"
#include "transport/shm/segment.h"

namespace {

using namespace gradring;

// Arguments: ranks, helpers, MiB of each rank.
void sum_in_place(benchmark::State& state) {
  const auto ranks = static_cast<size_t>(state.range(0));
  const uint64_t bytes = static_cast<uint64_t>(state.range(2)) << 20;
  daemon::PassRunner runner(static_cast<uint32_t>(state.range(1)));
  std::vector<transport::Segment> memory;
  for (size_t r = 0; r < ranks; ++r) {
    auto segment = transport::Segment::create(bytes);
    if (!segment) return state.SkipWithError(segment.error().message().c_str());
    std::memset(segment->memory().data(), 0, bytes);
    memory.push_back(std::move(*segment));
  }
  std::vector<const void*> inputs(ranks);
  std::vector<std::byte*> outputs(ranks);
  const auto spoilt = [](uint64_t, uint64_t, const transport::FoldFindings&) {};
  for (auto _ : state) {
    for (uint64_t at = 0; at < bytes; at += daemon::kSliceBytesAlone) {
      for (size_t r = 0; r < ranks; ++r) {
        inputs[r] = outputs[r] = memory[r].memory().data() + at;
      }
      daemon::Pass pass;
      pass.inputs = inputs;
      pass.outputs = outputs;
      pass.bytes = daemon::kSliceBytesAlone;
      runner.run(pass, std::ref(spoilt));
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * ranks * bytes));
}

BENCHMARK(sum_in_place)
    ->ArgNames({"ranks", "helpers", "MiB"})
    ->ArgsProduct({{2, 4, 8}, {0, 1}, {4, 64}})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
