// A frame's way out and in, without the network: `frame_bench`, not part of ctest.

#include <benchmark/benchmark.h>

#include "daemon/data/seal.h"
#include "proto/frame.h"

namespace gradring {
namespace {

Frame slice() {
  Frame frame;
  frame.type = FrameType::kSlice;
  frame.key = {1, 2};
  frame.slice.length = 4096;
  return frame;
}

void out(benchmark::State& state) {
  Frame frame = slice();
  for (auto _ : state) {
    ++frame.slice.slice;
    benchmark::DoNotOptimize(daemon::sealed(frame));
  }
}
BENCHMARK(out)->Name("frame/encode and seal");

void in(benchmark::State& state) {
  const FrameBytes bytes = daemon::sealed(slice());
  for (auto _ : state) {
    if (!daemon::is_sound(bytes)) state.SkipWithError("the seal is wrong");
    benchmark::DoNotOptimize(decode(bytes, 4096));
  }
}
BENCHMARK(in)->Name("frame/check and decode");

}  // namespace
}  // namespace gradring

BENCHMARK_MAIN();
