#include "tests/differential/runner.h"

#include <algorithm>
#include <set>
#include <span>
#include <stdexcept>

#include "proto/hash.h"
#include "tests/differential/run.h"

namespace gradring::differential {
namespace {

// With the small ops, the margins and all that is not used for the alignment.
constexpr uint64_t kMore = 3 << 20;

}  // namespace

Runner::Runner(const Communicator& world, const RunnerOptions& options)
    : world_(world),
      options_(options),
      arenas_(world.handle(),
              (options.bytes != 0 ? options.bytes : program_bytes_max(options.choice)) + kMore,
              options.gpu, options.device, options.all_on_gpu) {
  learn_nodes();
}

void Runner::learn_nodes() {
  const auto size = static_cast<size_t>(world_.size());
  auto mine = world_.allocate<uint64_t>(1), all = world_.allocate<uint64_t>(size);
  const std::string node = world_.node();
  mine[0] = fnv1a(std::as_bytes(std::span(node)));
  world_.allgather(mine.data(), all.data(), 1);
  for (const uint64_t name : all) {
    const auto first = std::ranges::find(all, name);
    nodes_.push_back(static_cast<uint32_t>(first - all.begin()));
  }
  // The reference adds in the order of a ring; on more nodes small sums go along a tree.
  constexpr size_t kNodesMost = 16;
  if (std::set<uint32_t>(nodes_.begin(), nodes_.end()).size() > kNodesMost) {
    throw std::invalid_argument("on more than 16 nodes the reference does not know the sums");
  }
}

std::vector<std::string> Runner::run(uint64_t seed) {
  return run(make_program(seed, static_cast<uint32_t>(nodes_.size()), options_.choice));
}

std::vector<std::string> Runner::run(const Program& program) {
  const auto me = static_cast<uint32_t>(world_.rank());
  if (std::ranges::find(program.groups[0].ranks, me) == program.groups[0].ranks.end()) return {};
  arenas_.take_back_all();
  Run run(program, world_, nodes_, options_.node_sums, options_.patience, arenas_);
  std::vector<std::string> faults = run.finish();
  ops_ += run.ops();
  return faults;
}

}  // namespace gradring::differential
