// Whether ops on memory of this machine's first GPU come to what they should, to the bit: with real
// daemons, values that are other ones each time, and a plain reference (tests/differential).
// usage: gradring-gpu-check [--quick] [--seed N] [--max-mib N]
//   --quick      a few of each, none of them large: whether it runs
//   --seed N     those values once more
//   --max-mib N  no larger ops: of 1024, ranks take some 30 GiB of the host and 20 of the GPU
// Exit: 0 all is right, 1 something is not, 2 nonsense was asked.
#include <algorithm>
#include <array>
#include <bit>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <limits>
#include <memory>
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
constexpr const char* kOps = "ops ";  // so a rank says how many it did; all else is a fault

struct Layout {
  const char* words;
  std::vector<size_t> node_of;  // by rank
  bool sums;                    // gpu-sums
  bool nccl = false;            // gpu-engine
  bool apart = false;           // ranks are another user's, and each sees no process but its own
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

// Of a process that is one rank, and what it is to do.
struct RankOrders {
  size_t layout = 0;
  size_t part = 0;
  int rank = -1;  // this process is none
  std::string runtime_dir;
};

Communicator join(const char* job, const std::string& runtime_dir, size_t rank, size_t size) {
  gradring_options options{};
  options.struct_size = sizeof options;
  options.runtime_dir = runtime_dir.c_str();
  options.job = job;
  options.rank = static_cast<int>(rank);
  options.size = static_cast<int>(size);
  options.local_rank = options.local_size = -1;
  return Communicator(options);
}

class Check {
 public:
  Check(const Layout& layout, size_t number) : layout_(layout), number_(number) {
    // On a GPU something is wrong long before.
    std::vector<std::string> flags = {"--op-deadline", test::is_real() ? "30s" : "100s"};
    if (layout.sums) flags.insert(flags.end(), {"--gpu-sums", "on"});
    if (layout.nccl) flags.insert(flags.end(), {"--gpu-engine", "nccl"});
    nodes_ = daemon::live_nodes(*std::ranges::max_element(layout.node_of) + 1, flags);
    if (layout.apart) let_all_reach(*nodes_[0]);
  }

  // What was asked for may not be there.
  bool can_run() const {
    const char* why = nullptr;
    if (layout_.nccl && nodes_[0]->log().find("by NCCL ") == std::string::npos) {
      why = "the daemon finds no NCCL (LD_LIBRARY_PATH)";
    }
    if (layout_.apart && !can_be_apart()) {
      why = "that takes root, unshare, setpriv, and programs that all may run";
    }
    if (why != nullptr) std::printf("%-38s  left out: %s\n", layout_.words, why);
    return why == nullptr;
  }

  // A line; true: all was right. Each rank is a process of its own, as trainers are: a driver that
  // gives memory back may wait for all streams of a process, and of ranks in one some wait for
  // others' next op.
  bool run(const char* words, size_t part, const Orders& orders) {
    const auto start = Clock::now();
    std::vector<std::FILE*> ranks;
    for (size_t rank = 0; rank < layout_.node_of.size(); ++rank) {
      const std::string& runtime_dir = nodes_[layout_.node_of[rank]]->runtime_dir();
      ranks.push_back(start_rank({number_, part, static_cast<int>(rank), runtime_dir}, orders));
    }
    Found found;
    for (size_t rank = 0; rank < ranks.size(); ++rank) found.take_in(rank, ranks[rank]);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::printf("%-38s  %-22s  %6lu  %8.1f s  %s\n", layout_.words, words,
                static_cast<unsigned long>(found.ops), seconds,
                found.faults.empty() ? "right" : "WRONG");
    for (size_t i = 0; i < std::min(found.faults.size(), kFaultsShown); ++i) {
      std::printf("    %s\n", found.faults[i].c_str());
    }
    std::fflush(stdout);
    return found.faults.empty();
  }

  // A line; true: the daemon says whose a NaN was that went into a sum on the GPU.
  bool tell_origin() {
    if (!layout_.sums || layout_.apart) return true;
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
  // Nobody's files are this user's.
  static constexpr const char* kApart =
      "exec unshare --pid --mount-proc --fork --kill-child setpriv --reuid 65533 --regid 65533 "
      "--clear-groups ";
  static bool can_be_apart() {
    const std::string words = kApart + ("test -x '" + own_path()) + "' 2>/dev/null";
    return std::system(words.c_str()) == 0;  // NOLINT(bugprone-command-processor): as below
  }
  static void let_all_reach(const LiveDaemon& node) {
    using std::filesystem::perms;
    const std::filesystem::path folder = node.runtime_dir();
    for (const auto& at : {folder, folder.parent_path()}) {
      std::filesystem::permissions(at, perms::group_exec | perms::others_exec,
                                   std::filesystem::perm_options::add);
    }
  }
  static constexpr size_t kNanAt = 1'000'001;
  static constexpr auto kToldWithin = std::chrono::seconds(5);

  void sum_with_nan(size_t rank, bool has_it) const {
    const test::TestGpu& gpu = test::test_gpu();
    const std::string& runtime_dir = nodes_[layout_.node_of[rank]]->runtime_dir();
    const Communicator world = join("origin", runtime_dir, rank, layout_.node_of.size());
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

  // What ranks have told.
  struct Found {
    std::vector<std::string> faults;
    uint64_t ops = 0;

    void take_in(size_t rank, std::FILE* from) {
      if (from == nullptr)
        return faults.push_back("rank " + std::to_string(rank) + " did not start");
      std::array<char, 4096> line{};
      while (std::fgets(line.data(), static_cast<int>(line.size()), from) != nullptr) {
        std::string words(line.data());
        if (!words.empty() && words.back() == '\n') words.pop_back();
        if (words.starts_with(kOps)) {
          ops =
              std::max<uint64_t>(ops, std::strtoul(words.c_str() + std::strlen(kOps), nullptr, 10));
        } else {
          faults.push_back(std::move(words));
        }
      }
      const int status = pclose(from);
      if (status == 0) return;
      faults.push_back("rank " + std::to_string(rank) + " ended with status " +
                       std::to_string(status));
    }
  };

  static std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe"); }
  std::FILE* start_rank(const RankOrders& rank, const Orders& orders) const {
    std::ostringstream words;
    words << (layout_.apart ? kApart : "exec ") << "'" << own_path() << "' --layout " << rank.layout
          << " --part " << rank.part << " --rank " << rank.rank << " --runtime-dir '"
          << rank.runtime_dir << "' --seed " << orders.seed << " --max-mib " << orders.max_mib
          << (orders.quick ? " --quick" : "");
    // NOLINTNEXTLINE(bugprone-command-processor): the words are this program's own
    return popen(words.str().c_str(), "r");
  }

  const Layout& layout_;
  const size_t number_;
  std::vector<std::unique_ptr<LiveDaemon>> nodes_;
};

std::vector<Part> parts_for(const Orders& orders, const Layout& layout) {
  const auto ranks = static_cast<uint32_t>(layout.node_of.size());
  const device::Extent kinds = {uint64_t{16} << 20, orders.quick ? 9u : 1u};
  if (layout.apart) {  // whether it is reached, not what is done with it
    return {chosen("collectives", device::all_collectives(orders.seed, ranks, kinds))};
  }
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

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts = {
      {"one node, 3 ranks, by way of the host", {0, 0, 0}, false},
      {"one node, 3 ranks, summed on the GPU", {0, 0, 0}, true},
      {"one node, 3 ranks, summed by NCCL", {0, 0, 0}, true, true},
      {"two nodes, 2 ranks on each, by the host", {0, 1, 0, 1}, false},
      {"two nodes, 2 ranks on each, on the GPU", {0, 1, 0, 1}, true},
      {"one node, 2 ranks of another user", {0, 0}, true, false, true}};
  return kLayouts;
}

// Says how many ops there were, and a line for each fault.
int run_rank(const RankOrders& what, const Orders& orders) {
  const Layout& layout = layouts().at(what.layout);
  const Part part = std::move(parts_for(orders, layout).at(what.part));
  try {
    const Communicator world =
        join("check", what.runtime_dir, static_cast<size_t>(what.rank), layout.node_of.size());
    differential::RunnerOptions how;
    how.patience = kPatience;
    how.gpu = &test::test_gpu();
    how.all_on_gpu = part.all_on_gpu;
    how.node_sums.may_be = layout.sums;
    how.bytes = part.bytes;
    differential::Runner runner(world, how);
    for (const Program& program : part.programs) {
      for (const std::string& fault : runner.run(program)) std::printf("%s\n", fault.c_str());
    }
    world.barrier();  // nobody leaves while another is at work
    std::printf("%s%lu\n", kOps, static_cast<unsigned long>(runner.ops()));
  } catch (const std::exception& error) {
    std::printf("rank %d gave up: %s\n", what.rank, error.what());
  }
  return 0;
}

int run(const Orders& orders) {
  setenv("GRADRING_GPU_STAGE_MIB", "4096", 0);
  if (!test::is_real()) setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);  // of the daemons
  std::printf("seed %lu\n%-38s  %-22s  %6s  %10s\n", static_cast<unsigned long>(orders.seed),
              "ranks on the GPU", "what", "ops", "took");
  bool right = true;
  for (size_t i = 0; i < layouts().size(); ++i) {
    Check check(layouts()[i], i);
    if (!check.can_run()) continue;
    const std::vector<Part> parts = parts_for(orders, layouts()[i]);
    for (size_t part = 0; part < parts.size(); ++part) {
      right = check.run(parts[part].words, part, orders) && right;
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
  RankOrders rank;
  po::options_description known("Ops on a GPU's memory, compared with a plain reference");
  // clang-format off
  known.add_options()
    ("help", "show this")
    ("quick", po::bool_switch(&orders.quick), "a few of each, none of them large")
    ("seed", po::value(&orders.seed)->default_value(std::random_device()()), "of the values")
    ("max-mib", po::value(&orders.max_mib)->default_value(1024), "no larger ops");
  // What this program tells itself.
  po::options_description all;
  all.add(known).add_options()
    ("layout", po::value(&rank.layout))
    ("part", po::value(&rank.part))
    ("rank", po::value(&rank.rank))
    ("runtime-dir", po::value(&rank.runtime_dir));
  // clang-format on
  try {
    po::variables_map values;
    po::store(po::parse_command_line(argc, argv, all), values);
    if (values.count("help") > 0) {
      std::printf("usage: gradring-gpu-check [--quick] [--seed N] [--max-mib N]\n");
      return 0;
    }
    po::notify(values);
    return rank.rank >= 0 ? run_rank(rank, orders) : run(orders);
  } catch (const po::error& error) {
    std::fprintf(stderr, "gradring-gpu-check: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradring-gpu-check: %s\n", error.what());
    return 1;
  }
}
