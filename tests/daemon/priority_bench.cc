// How long a trainer waits for its first layer, with and without learned priorities: two daemons,
// a rank each, layers that are submitted as a backward pass does, the last one first, and waited
// for as the next forward pass does. For people: cmake --build DIR --target priority_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <gradring/gradring.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/live_daemon.h"

namespace {

using namespace gradring;
using namespace gradring::daemon;
using Clock = std::chrono::steady_clock;

constexpr size_t kLayers = 16;
constexpr int kSteps = 25, kLearning = 5;  // the first ones are not counted

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Waits {
  std::vector<double> first;  // from the last submission until the first layer is there
  std::vector<double> all;    // until all are
};

Waits train(const LiveDaemon& daemon, int rank, size_t floats, const char* priorities) {
  gradring_options options{};
  options.struct_size = sizeof options;
  options.runtime_dir = daemon.runtime_dir().c_str();
  options.job = priorities;
  options.rank = rank;
  options.size = 2;
  options.local_rank = options.local_size = -1;
  options.priorities = priorities;
  const Communicator job(options);
  std::vector<Buffer<float>> layers;
  for (size_t i = 0; i < kLayers; ++i) layers.push_back(job.allocate<float>(floats));
  Waits waits;
  for (int step = 0; step < kSteps; ++step) {
    job.barrier();
    std::vector<Request> requests(kLayers);
    for (size_t i = kLayers; i-- > 0;) {
      const std::string name = "layer " + std::to_string(i);
      requests[i] = job.start_allreduce(layers[i], GRADRING_SUM, name.c_str());
    }
    const auto start = Clock::now();
    requests[0].wait();
    if (step >= kLearning) waits.first.push_back(ms_since(start));
    for (size_t i = 1; i < kLayers; ++i) requests[i].wait();
    if (step >= kLearning) waits.all.push_back(ms_since(start));
  }
  return waits;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main() {
  const int port_a = free_port(), port_b = free_port();
  const auto address = [](int port) { return "127.0.0.1:" + std::to_string(port); };
  const LiveDaemon a({"--peer", address(port_b)}, "a", port_a);
  const LiveDaemon b({"--peer", address(port_a)}, "b", port_b);
  std::printf("%zu layers; medians of %d steps\n", kLayers, kSteps - kLearning);
  for (const size_t kib : {256, 1024, 4096}) {
    for (const char* priorities : {"given", "learned", "given", "learned"}) {
      Waits waits;
      std::thread other([&] { train(b, 1, kib * 256, priorities); });
      waits = train(a, 0, kib * 256, priorities);
      other.join();
      std::printf("%5zu KiB a layer, %-7s: first layer after %7.2f ms, all after %7.2f ms\n", kib,
                  priorities, median(waits.first), median(waits.all));
      std::fflush(stdout);
    }
  }
  return 0;
}
