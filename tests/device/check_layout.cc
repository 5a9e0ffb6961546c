#include "tests/device/check_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <limits>
#include <sstream>
#include <thread>
#include <utility>

#include "tests/client/cuda_twin.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::device {
namespace {

using daemon::LiveDaemon;
using Clock = std::chrono::steady_clock;

constexpr size_t kFaultsShown = 5;
constexpr size_t kLogLinesShown = 20;
constexpr size_t kNanAt = 1'000'001;
constexpr auto kToldWithin = std::chrono::seconds(5);
// Nobody's files are this user's.
constexpr const char* kApart =
    "exec unshare --pid --mount-proc --fork --kill-child setpriv --reuid 65533 --regid 65533 "
    "--clear-groups ";

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

bool can_be_apart() {
  const std::string words = kApart + ("test -x '" + own_path()) + "' 2>/dev/null";
  return std::system(words.c_str()) == 0;  // NOLINT(bugprone-command-processor): as below
}

void let_all_reach(const LiveDaemon& node) {
  using std::filesystem::perms;
  const std::filesystem::path folder = node.runtime_dir();
  for (const auto& at : {folder, folder.parent_path()}) {
    std::filesystem::permissions(at, perms::group_exec | perms::others_exec,
                                 std::filesystem::perm_options::add);
  }
}

// What ranks have told.
struct Found {
  std::vector<std::string> faults;
  uint64_t ops = 0;
  bool stuck = false;

  void take_in(size_t rank, std::FILE* from) {
    if (from == nullptr) return faults.push_back("rank " + std::to_string(rank) + " did not start");
    std::array<char, 4096> line{};
    while (std::fgets(line.data(), static_cast<int>(line.size()), from) != nullptr) {
      std::string words(line.data());
      if (!words.empty() && words.back() == '\n') words.pop_back();
      if (words.starts_with(kOps)) {
        ops = std::max<uint64_t>(ops, std::strtoul(words.c_str() + std::strlen(kOps), nullptr, 10));
      } else {
        stuck = stuck || words.find(kGaveUp) != std::string::npos;
        faults.push_back(std::move(words));
      }
    }
    const int status = pclose(from);
    if (status == 0) return;
    faults.push_back("rank " + std::to_string(rank) + " ended with status " +
                     std::to_string(status));
  }
};

}  // namespace

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

Check::Check(const Layout& layout, size_t number) : layout_(layout), number_(number) {
  // On a GPU something is wrong long before. A machine's memory may grow with what is used of it,
  // and half of what it has now be too little.
  std::vector<std::string> flags = {"--op-deadline", test::is_real() ? "30s" : "100s",
                                    "--segment-limit", "64G"};
  if (layout.sums) flags.insert(flags.end(), {"--gpu-sums", "on"});
  if (layout.nccl) flags.insert(flags.end(), {"--gpu-engine", "nccl"});
  nodes_ = daemon::live_nodes(*std::ranges::max_element(layout.node_of) + 1, flags);
  if (layout.apart) let_all_reach(*nodes_[0]);
}

bool Check::can_run() const {
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

// Each rank is a process of its own, as trainers are: a driver that gives memory back may wait for
// all streams of a process, and of ranks in one some wait for others' next op.
Check::Result Check::run(const char* words, size_t part, const Orders& orders) const {
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
  if (!found.faults.empty()) tell_logs();
  std::fflush(stdout);
  if (found.faults.empty()) return Result::kRight;
  return found.stuck ? Result::kStuck : Result::kWrong;
}

void Check::tell_logs() const {
  for (size_t node = 0; node < nodes_.size(); ++node) {
    std::vector<std::string> lines;
    std::istringstream log(nodes_[node]->log());
    for (std::string line; std::getline(log, line);) lines.push_back(line);
    const size_t first = lines.size() - std::min(lines.size(), kLogLinesShown);
    std::printf("    the log of node %zu ends:\n", node);
    for (size_t i = first; i < lines.size(); ++i) std::printf("      %s\n", lines[i].c_str());
  }
}

bool Check::tell_origin() const {
  if (!layout_.sums || layout_.apart) return true;
  const size_t guilty = layout_.node_of.size() - 1;
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank <= guilty; ++rank) {
    ranks.emplace_back([this, guilty, rank] {
      try {
        sum_with_nan(rank, rank == guilty);
      } catch (const std::exception& error) {
        std::printf("    rank %zu: %s\n", rank, error.what());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const std::string words = "rank " + std::to_string(guilty) + " ";
  const std::string place = "element " + std::to_string(kNanAt);
  const LiveDaemon& node = *nodes_[layout_.node_of[guilty]];
  bool told = false;
  for (const auto start = Clock::now(); !told && Clock::now() < start + kToldWithin;) {
    std::istringstream lines(node.log());
    for (std::string line; std::getline(lines, line);) {
      told = told || (line.find("job origin") != std::string::npos &&
                      line.find("first NaN of this node's ranks: " + words) != std::string::npos &&
                      line.find(place) != std::string::npos);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::printf("%-38s  %-22s  %6d  %10s  %s\n", layout_.words, "whose a NaN was", 1, "",
              told ? "right" : "WRONG");
  return told;
}

bool Check::tell_traffic() const {
  if (!layout_.sums) return true;
  uint64_t bytes = 0;
  for (const auto& node : nodes_) {
    bytes += daemon::RawTrainer(node->runtime_dir()).counter("gpu_input_bytes");
  }
  std::printf("%-38s  GPUs took %.2f GiB of inputs\n", layout_.words,
              static_cast<double>(bytes) / (1 << 30));
  return bytes > 0;
}

void Check::sum_with_nan(size_t rank, bool has_it) const {
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
  world.start(op).wait();
  gpu.wait_for(stream);
  gpu.end_stream(stream);
  gpu.free(memory);
}

std::FILE* Check::start_rank(const RankOrders& rank, const Orders& orders) const {
  std::ostringstream words;
  words << (layout_.apart ? kApart : "exec ") << "'" << own_path() << "' --layout " << rank.layout
        << " --part " << rank.part << " --rank " << rank.rank << " --runtime-dir '"
        << rank.runtime_dir << "' --seed " << orders.seed << " --max-mib " << orders.max_mib
        << (orders.quick ? " --quick" : "");
  // NOLINTNEXTLINE(bugprone-command-processor): the words are this program's own
  return popen(words.str().c_str(), "r");
}

}  // namespace gradring::device
