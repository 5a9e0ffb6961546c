// Whether ops on memory of this machine's first GPU come to what they should, to the bit: with real
// daemons, values that are other ones each time, and a plain reference (tests/differential).
// usage: gradring-gpu-check [--quick] [--one-user] [--seed N] [--max-mib N]
//   --quick      a few of each, none of them large: whether it runs
//   --one-user   no ranks of another user, who see no process but their own: nor does a tool that
//                looks into all of them
//   --seed N     those values once more
//   --max-mib N  no larger ops: of 1024, ranks take some 30 GiB of the host and 20 of the GPU
// Exit: 0 all is right, 1 something is not, 2 nonsense was asked.
#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/device/check_layout.h"
#include "tests/device/check_programs.h"
#include "tests/differential/runner.h"

namespace {

using namespace gradring;
using device::Check;
using device::Layout;
using device::Orders;
using device::RankOrders;
using differential::Program;

constexpr auto kPatience = std::chrono::minutes(2);  // with one op

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
    const Communicator world = device::join("check", what.runtime_dir,
                                            static_cast<size_t>(what.rank), layout.node_of.size());
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
    std::printf("%s%lu\n", device::kOps, static_cast<unsigned long>(runner.ops()));
  } catch (const std::exception& error) {
    std::printf("rank %d %s: %s\n", what.rank, device::kGaveUp, error.what());
  }
  return 0;
}

bool run_layout(size_t number, const Orders& orders) {
  const Layout& layout = layouts()[number];
  const Check check(layout, number);
  if (!check.can_run()) return true;
  const std::vector<Part> parts = parts_for(orders, layout);
  bool right = true;
  for (size_t part = 0; part < parts.size(); ++part) {
    const Check::Result result = check.run(parts[part].words, part, orders);
    // The others would get no further, and take minutes for it.
    if (result == Check::Result::kStuck) return false;
    right = right && result == Check::Result::kRight;
  }
  right = check.tell_origin() && right;
  return check.tell_traffic() && right;
}

int run(const Orders& orders) {
  setenv("GRADRING_GPU_STAGE_MIB", "4096", 0);
  if (!test::is_real()) setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);  // of the daemons
  std::printf("seed %lu\n%-38s  %-22s  %6s  %10s\n", static_cast<unsigned long>(orders.seed),
              "ranks on the GPU", "what", "ops", "took");
  bool right = true;
  for (size_t i = 0; i < layouts().size(); ++i) {
    if (layouts()[i].apart && orders.one_user) continue;
    try {
      right = run_layout(i, orders) && right;
    } catch (const std::exception& error) {
      std::printf("%-38s  WRONG: %s\n", layouts()[i].words, error.what());
      right = false;
    }
    std::fflush(stdout);
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
    ("one-user", po::bool_switch(&orders.one_user), "no ranks of another user")
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
      std::printf("usage: gradring-gpu-check [--quick] [--one-user] [--seed N] [--max-mib N]\n");
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
