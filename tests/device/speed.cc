// How fast allreduce is on memory of this machine's first GPU, with real daemons, and beside each
// figure what it cannot be faster than. For people.
// usage: gradring-gpu-speed [--quick]
//   --quick  a size or two, a few times: whether it runs, not how fast
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <gradring/gradring.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/daemon/live_daemon.h"
#include "tests/device/floors.h"

namespace {

using namespace gradring;
using daemon::LiveDaemon;
using test::test_gpu;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
constexpr int kRounds = 3;  // the best of them counts

enum class Memory { kHost, kGpu, kRegisteredOnGpu };

// Of one rank, for as long as an op needs it.
class Gradients {
 public:
  Gradients(const Communicator& job, uint64_t bytes, Memory kind)
      : job_(job), bytes_(bytes), kind_(kind) {
    if (kind == Memory::kHost) {
      host_ = job.allocate<float>(bytes / sizeof(float));
      return;
    }
    address_ = test_gpu().alloc(bytes, false);
    stream_ = test_gpu().make_stream();
    test_gpu().fill_later(stream_, address_, 1, bytes / sizeof(float));
    if (kind == Memory::kRegisteredOnGpu &&
        gradring_register(job.handle(), at(), bytes) != GRADRING_OK) {
      throw std::runtime_error(gradring_last_error());
    }
  }
  ~Gradients() {
    if (kind_ == Memory::kHost) return;
    if (kind_ == Memory::kRegisteredOnGpu) gradring_unregister(job_.handle(), at());
    test_gpu().end_stream(stream_);
    test_gpu().free(address_);
  }
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  // Returns when the result is there.
  void sum() {
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = GRADRING_ALLREDUCE;
    op.dtype = GRADRING_FLOAT32;
    op.op = GRADRING_AVERAGE;  // in place again and again: a sum would soon be infinite
    op.count = bytes_ / sizeof(float);
    op.input = op.output = at();
    op.stream = stream_;
    Request request = job_.start(op);
    if (kind_ != Memory::kHost) {
      request.wait_on_stream(stream_);
      test_gpu().wait_for(stream_);
    }
    request.wait();
  }

 private:
  void* at() { return kind_ == Memory::kHost ? host_.data() : std::bit_cast<void*>(address_); }

  const Communicator& job_;
  const uint64_t bytes_;
  const Memory kind_;
  Buffer<float> host_;
  uint64_t address_ = 0;
  void* stream_ = nullptr;
};

struct Sizes {
  std::vector<uint64_t> bytes;
  int times_most = 200;  // of the smallest
  int times(uint64_t size) const {
    constexpr uint64_t kBytes = uint64_t{4} << 30;  // that all of them have together
    return static_cast<int>(std::clamp<uint64_t>(kBytes / size, 5, 1000)) * times_most / 1000 + 2;
  }
};

double rank_of(const LiveDaemon& daemon, int rank, uint64_t bytes, Memory kind, int times) {
  gradring_options options{};
  options.struct_size = sizeof options;
  options.runtime_dir = daemon.runtime_dir().c_str();
  options.job = "speed";
  options.rank = rank;
  options.size = kRanks;
  options.local_rank = options.local_size = -1;
  const Communicator job(options);
  Gradients gradients(job, bytes, kind);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    gradients.sum();
    job.barrier();
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) gradients.sum();
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    best = round == 0 ? us / times : std::min(best, us / times);
  }
  job.barrier();
  return best;
}

// Microseconds an op, of rank 0; each rank is a thread on the daemon of its number, or the last.
double time_ops(const std::vector<const LiveDaemon*>& daemons, uint64_t bytes, Memory kind,
                int times) {
  double us = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const LiveDaemon& daemon = *daemons.at(std::min<size_t>(rank, daemons.size() - 1));
    ranks.emplace_back([&, rank] {
      try {
        const double took = rank_of(daemon, rank, bytes, kind, times);
        if (rank == 0) us = took;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "gradring-gpu-speed: rank %d: %s\n", rank, error.what());
        std::exit(1);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return us;
}

std::string in_words(uint64_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

// MiB of the GPU that a process has; nothing where nvidia-smi does not say.
std::optional<long> gpu_memory_of(pid_t pid) {
  constexpr const char* kAsk =
      "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits 2>/dev/null";
  FILE* const answer = ::popen(kAsk, "r");  // NOLINT(bugprone-command-processor): nobody's words
  std::optional<long> found;
  std::array<char, 128> line{};
  while (answer != nullptr && std::fgets(line.data(), line.size(), answer) != nullptr) {
    char* end = nullptr;
    const bool ours = std::strtol(line.data(), &end, 10) == pid && *end == ',';
    if (ours) found = std::strtol(end + 1, nullptr, 10);
  }
  if (answer != nullptr) ::pclose(answer);
  return found;
}

// Of copies of that size: what a cache of the GPU holds is quicker there, too.
device::Floors floors_of(uint64_t bytes, int times) {
  constexpr int kCopies = 10;
  return device::measure_floors(bytes, std::max(times, kCopies));
}

// Of two inputs each byte is read and written: what a copy does, twice.
void one_node(const Sizes& sizes) {
  const LiveDaemon sums({"--gpu-sums", "on"}, "sums"), plain({}, "plain");
  if (const auto used = gpu_memory_of(sums.pid())) {
    std::printf("gradringd with gpu-sums has %ld MiB of the GPU\n", *used);
  } else {
    std::printf("what gradringd has of the GPU is not known: nvidia-smi does not say\n");
  }
  std::printf(
      "\nOne node, two ranks on one GPU, allreduce of float32, us an op (best of %d)\n"
      "%10s  %12s %9s  %12s  %12s  %12s\n",
      kRounds, "size", "registered", "of floor", "not", "by the host", "floor");
  std::fflush(stdout);
  for (const uint64_t bytes : sizes.bytes) {
    const int times = sizes.times(bytes);
    const double registered = time_ops({&sums}, bytes, Memory::kRegisteredOnGpu, times);
    const double staged = time_ops({&sums}, bytes, Memory::kGpu, times);
    const double host = time_ops({&plain}, bytes, Memory::kGpu, times);
    const double floor = 2e6 * static_cast<double>(bytes) / floors_of(bytes, times).within;
    std::printf("%10s  %12.1f %8.1f%%  %12.1f  %12.1f  %12.1f\n", in_words(bytes).c_str(),
                registered, 100 * floor / registered, staged, host, floor);
    std::fflush(stdout);
  }
}

// Two daemons share the GPU's bus, so that what both ranks give and get passes it.
void two_nodes(const Sizes& sizes) {
  const int port = daemon::free_port(), other_port = daemon::free_port();
  const auto to = [](int peer) { return "127.0.0.1:" + std::to_string(peer); };
  const LiveDaemon a({"--peer", to(other_port)}, "a", port);
  const LiveDaemon b({"--peer", to(port)}, "b", other_port);
  std::printf(
      "\nTwo nodes on this machine, a rank each on one GPU, allreduce of float32, us an op (best "
      "of %d)\n%10s  %12s %9s  %12s  %12s\n",
      kRounds, "size", "on the GPU", "of floor", "on the host", "bus alone");
  for (const uint64_t bytes : sizes.bytes) {
    const int times = sizes.times(bytes);
    const double gpu = time_ops({&a, &b}, bytes, Memory::kGpu, times);
    const double host = time_ops({&a, &b}, bytes, Memory::kHost, times);
    const double bus = 2e6 * static_cast<double>(bytes) / floors_of(bytes, times).both_ways;
    std::printf("%10s  %12.1f %8.1f%%  %12.1f  %12.1f\n", in_words(bytes).c_str(), gpu,
                100 * std::max(host, bus) / gpu, host, bus);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc == 2 && std::string_view(argv[1]) == "--quick";
  if (argc > 1 && !quick) {
    std::fprintf(stderr, "usage: gradring-gpu-speed [--quick]\n");
    return 2;
  }
  setenv("GRADRING_GPU_STAGE_MIB", "2048", 0);
  if (!test::is_real()) setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);  // of the daemons
  test_gpu();
  Sizes sizes;
  if (quick) {
    sizes = {{4, 3 << 20}, 1};
  } else {
    for (int power = 2; power <= 28; power += power < 20 ? 4 : 2) {
      sizes.bytes.push_back(uint64_t{1} << power);
    }
  }
  try {
    const uint64_t bytes = quick ? 1 << 20 : 256 << 20;
    const device::Floors floors = device::measure_floors(bytes, quick ? 2 : 10);
    std::printf("copies within the GPU %.1f GB/s, to and from the host at once %.1f GB/s each\n",
                floors.within / 1e9, floors.both_ways / 1e9);
    std::fflush(stdout);
    one_node(sizes);
    two_nodes(sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradring-gpu-speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
