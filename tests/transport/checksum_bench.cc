// How fast one core checks slices, next to copying and to folding them: `checksum_bench`, not part
// of ctest. Bytes are counted once for the checksum and the copy, and as the inputs read for the
// fold. Fair in one run: --benchmark_enable_random_interleaving=true --benchmark_repetitions=9.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "transport/checksum.h"
#include "transport/reducer.h"

namespace {

using namespace gradring;

// Whole pages, as staging memory is. Elsewhere a copy may measure the processor's worst case: Zen 3
// copies at a fifteenth of the rate where the target begins some bytes further into its page than
// the source (glibc bug 30994).
struct alignas(4096) Page {
  std::byte bytes[4096];
};

class Slice {
 public:
  explicit Slice(const benchmark::State& state) : pages_(static_cast<size_t>(state.range(0)) / 4) {}
  std::byte* data() { return pages_[0].bytes; }
  size_t size() const { return pages_.size() * sizeof(Page); }

 private:
  std::vector<Page> pages_;
};

void finish(benchmark::State& state, size_t bytes_a_turn) {
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes_a_turn));
}

void checksum(benchmark::State& state) {
  Slice bytes(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(transport::crc32c(std::span(bytes.data(), bytes.size())));
  }
  finish(state, bytes.size());
}

void copy(benchmark::State& state) {
  Slice from(state), to(state);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  finish(state, from.size());
}

// As a slice is: in place, onto what has arrived.
void fold_two(benchmark::State& state) {
  Slice local(state), arrived(state);
  const std::array<const void*, 2> inputs = {arrived.data(), local.data()};
  for (auto _ : state) {
    transport::fold(Dtype::kFloat32, ReduceOp::kSum, inputs, arrived.data(), local.size() / 4, 0);
    benchmark::ClobberMemory();
  }
  finish(state, 2 * local.size());
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("KiB");
  for (const int kib : {64, 128, 256}) benchmark->Arg(kib);
}

BENCHMARK(checksum)->Apply(sizes);
BENCHMARK(copy)->Apply(sizes);
BENCHMARK(fold_two)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
