// Whether ops on memory of this machine's first GPU come to what they should, to the bit: with real
// daemons, values that are other ones each time, and a plain reference (tests/differential).
// usage: gradring-gpu-check [--quick] [--seed N] [--max-mib N]
//   --quick      a few of each, none of them large: whether it runs
//   --seed N     those values once more
//   --max-mib N  no larger ops: of 1024, ranks take some 30 GiB of the host and 20 of the GPU
// Exit: 0 all is right, 1 something is not, 2 nonsense was asked.
#include <algorithm>
#include <bit>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"
#include "tests/device/check_programs.h"
#include "tests/differential/runner.h"

namespace {

using namespace gradring;
using daemon::LiveDaemon;
using differential::Program;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::minutes(2);  // with one op
constexpr size_t kFaultsShown = 5;

struct Layout {
  const char* words;
  std::vector<size_t> node_of;  // by rank
  bool sums;                    // gpu-sums
  bool nccl = false;            // gpu-engine
};

struct Part {
  const char* words;
  std::vector<Program> programs;
  uint64_t bytes;           // of the buffers of one, on a rank
  bool all_on_gpu = false;  // else some buffers are the host's
};

Part chosen(const char* words, std::vector<Program> programs) {
  const uint64_t bytes = device::bytes_of(programs);
  return {words, std::move(programs), bytes, true};
}

struct Orders {
  bool quick = false;
  uint64_t seed = 0;
  uint64_t max_mib = 1024;
};

class Check {
 public:
  explicit Check(const Layout& layout) : layout_(layout) {
    std::vector<std::string> flags = {"--op-deadline", "100s"};
    if (layout.sums) flags.insert(flags.end(), {"--gpu-sums", "on"});
    if (layout.nccl) flags.insert(flags.end(), {"--gpu-engine", "nccl"});
    nodes_ = daemon::live_nodes(*std::ranges::max_element(layout.node_of) + 1, flags);
  }

  // What was asked for may not be there.
  bool can_run() const {
    if (!layout_.nccl || nodes_[0]->log().find("by NCCL ") != std::string::npos) return true;
    std::printf("%-38s  left out: the daemon finds no NCCL (LD_LIBRARY_PATH)\n", layout_.words);
    return false;
  }

  // A line; true: all was right.
  bool run(const Part& part) {
    faults_.clear();
    ops_ = 0;
    const auto start = Clock::now();
    std::vector<std::thread> ranks;
    for (size_t rank = 0; rank < layout_.node_of.size(); ++rank) {
      ranks.emplace_back([this, &part, rank] {
        try {
          run_rank(part, rank);
        } catch (const std::exception& error) {
          add({"rank " + std::to_string(rank) + " gave up: " + error.what()}, 0);
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::printf("%-38s  %-22s  %6lu  %8.1f s  %s\n", layout_.words, part.words,
                static_cast<unsigned long>(ops_), seconds, faults_.empty() ? "right" : "WRONG");
    for (size_t i = 0; i < std::min(faults_.size(), kFaultsShown); ++i) {
      std::printf("    %s\n", faults_[i].c_str());
    }
    std::fflush(stdout);
    return faults_.empty();
  }

  // A line; true: the daemon says whose a NaN was that went into a sum on the GPU.
  bool tell_origin() {
    if (!layout_.sums) return true;
    const size_t guilty = layout_.node_of.size() - 1;
    std::vector<std::thread> ranks;
    for (size_t rank = 0; rank <= guilty; ++rank) {
      ranks.emplace_back([this, guilty, rank] { sum_with_nan(rank, rank == guilty); });
    }
    for (std::thread& rank : ranks) rank.join();
    const std::string words = "rank " + std::to_string(guilty) + " ";
    const std::string place = "element " + std::to_string(kNanAt);
    const LiveDaemon& node = *nodes_[layout_.node_of[guilty]];
    bool told = false;
    for (const auto start = Clock::now(); !told && Clock::now() < start + kToldWithin;) {
      std::istringstream lines(node.log());
      for (std::string line; std::getline(lines, line);) {
        told =
            told || (line.find("job origin") != std::string::npos &&
                     line.find("first NaN of this node's ranks: " + words) != std::string::npos &&
                     line.find(place) != std::string::npos);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::printf("%-38s  %-22s  %6d  %10s  %s\n", layout_.words, "whose a NaN was", 1, "",
                told ? "right" : "WRONG");
    return told;
  }

  // That what was to be summed by GPUs was: else it would be right, and not what is to be shown.
  bool tell_traffic() {
    if (!layout_.sums) return true;
    uint64_t bytes = 0;
    for (const auto& node : nodes_) {
      bytes += daemon::RawTrainer(node->runtime_dir()).counter("gpu_input_bytes");
    }
    std::printf("%-38s  GPUs took %.2f GiB of inputs\n", layout_.words,
                static_cast<double>(bytes) / (1 << 30));
    return bytes > 0;
  }

 private:
  static constexpr size_t kNanAt = 1'000'001;
  static constexpr auto kToldWithin = std::chrono::seconds(5);

  Communicator join(const char* job, size_t rank) const {
    gradring_options options{};
    options.struct_size = sizeof options;
    options.runtime_dir = nodes_[layout_.node_of[rank]]->runtime_dir().c_str();
    options.job = job;
    options.rank = static_cast<int>(rank);
    options.size = static_cast<int>(layout_.node_of.size());
    options.local_rank = options.local_size = -1;
    return Communicator(options);
  }

  void sum_with_nan(size_t rank, bool has_it) const {
    const test::TestGpu& gpu = test::test_gpu();
    const Communicator world = join("origin", rank);
    constexpr size_t kCount = 2 * kNanAt;
    const uint64_t memory = gpu.alloc(kCount * sizeof(float), false);
    void* const stream = gpu.make_stream();
    gpu.fill_later(stream, memory, 1, kCount);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    if (has_it) gpu.fill_later(stream, memory + kNanAt * sizeof(float), nan, 1);
    gradring_op op{};
    op.struct_size = sizeof op;
    op.collective = GRADRING_ALLREDUCE;
    op.dtype = GRADRING_FLOAT32;
    op.op = GRADRING_SUM;
    op.count = kCount;
    op.input = op.output = std::bit_cast<void*>(memory);
    op.stream = stream;
    try {
      world.start(op).wait();
    } catch (const std::exception& error) {
      std::printf("    rank %zu: %s\n", rank, error.what());
    }
    gpu.wait_for(stream);
    gpu.end_stream(stream);
    gpu.free(memory);
  }

  void run_rank(const Part& part, size_t rank) {
    const Communicator world = join("check", rank);
    differential::RunnerOptions how;
    how.patience = kPatience;
    how.gpu = &test::test_gpu();
    how.all_on_gpu = part.all_on_gpu;
    how.node_sums.may_be = layout_.sums;
    how.bytes = part.bytes;
    differential::Runner runner(world, how);
    std::vector<std::string> faults;
    for (const Program& program : part.programs) {
      for (std::string& fault : runner.run(program)) faults.push_back(std::move(fault));
    }
    world.barrier();  // nobody leaves while another is at work
    add(std::move(faults), runner.ops());
  }

  void add(std::vector<std::string> faults, uint64_t ops) {
    const std::lock_guard lock(mutex_);
    for (std::string& fault : faults) faults_.push_back(std::move(fault));
    ops_ = std::max(ops_, ops);
  }

  const Layout& layout_;
  std::vector<std::unique_ptr<LiveDaemon>> nodes_;
  std::mutex mutex_;
  std::vector<std::string> faults_;
  uint64_t ops_ = 0;
};

std::vector<Part> parts_for(const Orders& orders, const Layout& layout) {
  const auto ranks = static_cast<uint32_t>(layout.node_of.size());
  const device::Extent kinds = {uint64_t{16} << 20, orders.quick ? 9u : 1u};
  // By the host each byte takes ten times as long, and is what other tests go through too.
  const uint64_t most = layout.sums ? orders.max_mib : std::min<uint64_t>(orders.max_mib, 64);
  const device::Extent sizes = {(orders.quick ? 4 : most) << 20};
  std::vector<Program> random;
  const differential::Choice choice{.formed = false, .large = !orders.quick};
  for (uint64_t i = 0; i < (orders.quick ? 4 : 100); ++i) {
    random.push_back(differential::make_program(orders.seed + i, ranks, choice));
  }
  return {chosen("types and operations", device::all_kinds(orders.seed, ranks, kinds)),
          chosen("collectives", device::all_collectives(orders.seed, ranks, kinds)),
          chosen("sizes", device::all_sizes(orders.seed, ranks, sizes)),
          {"random programs", random, differential::program_bytes_max(choice)}};
}

// Ranks are threads of this process, and share what it may have of the GPU.
int run(const Orders& orders) {
  static const std::vector<Layout> kLayouts = {
      {"one node, 3 ranks, by way of the host", {0, 0, 0}, false},
      {"one node, 3 ranks, summed on the GPU", {0, 0, 0}, true},
      {"one node, 3 ranks, summed by NCCL", {0, 0, 0}, true, true},
      {"two nodes, 2 ranks on each, by the host", {0, 1, 0, 1}, false},
      {"two nodes, 2 ranks on each, on the GPU", {0, 1, 0, 1}, true}};
  setenv("GRADRING_GPU_STAGE_MIB", "12288", 0);
  if (!test::is_real()) setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);  // of the daemons
  std::printf("seed %lu\n%-38s  %-22s  %6s  %10s\n", static_cast<unsigned long>(orders.seed),
              "ranks on the GPU", "what", "ops", "took");
  bool right = true;
  for (const Layout& layout : kLayouts) {
    Check check(layout);
    if (!check.can_run()) continue;
    for (const Part& part : parts_for(orders, layout)) {
      right = check.run(part) && right;
    }
    right = check.tell_origin() && right;
    right = check.tell_traffic() && right;
  }
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  Orders orders;
  po::options_description known("Ops on a GPU's memory, compared with a plain reference");
  // clang-format off
  known.add_options()
    ("help", "show this")
    ("quick", po::bool_switch(&orders.quick), "a few of each, none of them large")
    ("seed", po::value(&orders.seed)->default_value(std::random_device()()), "of the values")
    ("max-mib", po::value(&orders.max_mib)->default_value(1024), "no larger ops");
  // clang-format on
  try {
    po::variables_map values;
    po::store(po::parse_command_line(argc, argv, known), values);
    if (values.count("help") > 0) {
      std::printf("usage: gradring-gpu-check [--quick] [--seed N] [--max-mib N]\n");
      return 0;
    }
    po::notify(values);
    return run(orders);
  } catch (const po::error& error) {
    std::fprintf(stderr, "gradring-gpu-check: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradring-gpu-check: %s\n", error.what());
    return 1;
  }
}
