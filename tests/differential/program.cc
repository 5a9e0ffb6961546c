#include "tests/differential/program.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "daemon/core/random.h"
#include "tests/transport/fold_kinds.h"

namespace gradring::differential {
namespace {

using core::Random;

// Of each op, however much the others take.
constexpr uint64_t kOpBytesAlways = 64 << 10;

bool one_in(Random& random, uint64_t n) { return random.below(n) == 0; }

template <typename T>
const T& any_of(Random& random, const std::vector<T>& all) {
  return all[random.below(all.size())];
}

std::vector<uint32_t> some_of(Random& random, std::vector<uint32_t> ranks) {
  const std::vector<uint32_t> order = ranks;
  for (size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[random.below(i)]);
  ranks.resize(1 + random.below(ranks.size()));
  if (one_in(random, 2)) return ranks;
  std::ranges::sort(ranks, {}, [&](uint32_t rank) { return std::ranges::find(order, rank); });
  return ranks;
}

// Nothing, one, few, many, and one more or less than what fits into a slice, a part of a small sum
// or the wire's least, of which there may be as many as there are ranks.
uint64_t make_count(Random& random, uint64_t element, uint64_t ranks, bool large) {
  static constexpr std::array<uint64_t, 6> kEdges = {64,       4096,      8192,
                                                     64 << 10, 128 << 10, 256 << 10};
  if (large && one_in(random, 4)) return 1 + random.below((12 << 20) / element);
  const uint64_t kind = random.below(40);
  if (kind < 4) return 0;
  if (kind < 8) return 1;
  if (kind < 18) return 1 + random.below(67);
  if (kind < 28) return 1 + random.below(5000);
  if (kind == 39) return 1 + random.below((3 << 20) / element);
  const uint64_t edge = kEdges[random.below(kEdges.size())] * (kind < 36 ? 1 : ranks);
  return edge / element + random.below(3) - 1;
}

class Maker {
 public:
  Maker(uint64_t seed, uint32_t world_size, const Choice& choice)
      : random_(seed), world_size_(world_size), choice_(choice) {
    program_.seed = seed;
  }

  Program make() {
    make_groups();
    program_.ends_by_join = one_in(random_, 4);
    program_.in_order = one_in(random_, 4);
    program_.tries_refused = one_in(random_, 4);
    for (uint32_t phase = 0; phase < program_.phases; ++phase) {
      for (uint64_t left = 1 + random_.below(9); left > 0; --left) add_op(phase);
    }
    return std::move(program_);
  }

 private:
  void make_groups() {
    program_.phases = 1 + static_cast<uint32_t>(random_.below(3));
    std::vector<uint32_t> world(world_size_);
    std::iota(world.begin(), world.end(), 0u);
    program_.in_world = choice_.formed || one_in(random_, 3);
    program_.groups.push_back({program_.in_world ? world : some_of(random_, world), 0});
    for (uint64_t left = choice_.formed ? 0 : random_.below(3); left > 0; --left) {
      const auto phase = static_cast<uint32_t>(random_.below(program_.phases));
      program_.groups.push_back({some_of(random_, program_.groups[0].ranks), phase});
    }
  }

  void add_op(uint32_t phase) {
    Op op;
    op.number = static_cast<uint32_t>(program_.ops.size());
    op.phase = phase;
    do {
      op.group = static_cast<uint32_t>(random_.below(program_.groups.size()));
    } while (program_.groups[op.group].phase > phase);
    op.size = static_cast<uint32_t>(program_.groups[op.group].ranks.size());
    choose_collective(op);
    choose_counts(op);
    if (is_reduction(op.collective) && op.dtype == Dtype::kFloat32) choose_wire(op);
    if (one_in(random_, 3)) op.name = "layer " + std::to_string(random_.below(4));
    op.late = one_in(random_, 6);
    if (op.size > 1 && one_in(random_, 12)) choose_oddity(op);
    fit(op);
    program_.ops.push_back(std::move(op));
  }

  void choose_collective(Op& op) {
    static constexpr std::array<gradring_collective, 13> kAll = {
        GRADRING_ALLREDUCE, GRADRING_ALLREDUCE, GRADRING_ALLREDUCE,      GRADRING_BROADCAST,
        GRADRING_BARRIER,   GRADRING_ALLGATHER, GRADRING_REDUCE_SCATTER, GRADRING_REDUCE,
        GRADRING_GATHER,    GRADRING_SCATTER,   GRADRING_ALLTOALL,       GRADRING_SEND,
        GRADRING_SEND};
    do {
      op.collective = kAll[random_.below(kAll.size())];
    } while (op.collective == GRADRING_SEND && (choice_.formed || op.size == 1));
    if (op.collective == GRADRING_BARRIER) return;
    op.dtype = static_cast<Dtype>(1 + random_.below(kDtypeLast));
    if (has_root(op.collective) || op.collective == GRADRING_SEND) {
      op.root = static_cast<uint32_t>(random_.below(op.size));
    }
    if (op.collective == GRADRING_SEND) {
      op.to = (op.root + 1 + static_cast<uint32_t>(random_.below(op.size - 1))) % op.size;
    }
    if (!is_reduction(op.collective)) return;
    static const std::vector<fold_kinds::Kind> kKinds = fold_kinds::all_kinds();
    const fold_kinds::Kind kind = any_of(random_, kKinds);
    op.dtype = kind.dtype;
    op.op = kind.op;
    if (one_in(random_, 5)) {
      op.dtype = Dtype::kFloat32;
      op.op = ReduceOp::kSum;
    }
    if (!is_float(op.dtype)) return;
    op.values = static_cast<Values>(random_.below(3));
    if (one_in(random_, 4)) {
      op.scaled = true;
      op.postscale = std::array{1., 0.25, -3., 0.3}[random_.below(4)];
    }
  }

  void choose_counts(Op& op) {
    if (op.collective == GRADRING_BARRIER) return;
    const uint64_t element = size_of(op.dtype);
    op.count = make_count(random_, element, op.size, choice_.large);
    if (!in_blocks(op.collective) || !one_in(random_, 3)) return;
    const bool pairs = op.collective == GRADRING_ALLTOALL;
    const size_t blocks = pairs ? size_t{op.size} * op.size : op.size;
    for (size_t i = 0; i < blocks; ++i) op.counts.push_back(make_count(random_, element, 1, false));
  }

  // What is rounded to int8 is compared with a tolerance, which is known for fractions.
  void choose_wire(Op& op) {
    if (!one_in(random_, 4)) return;
    op.wire = static_cast<WireType>(1 + random_.below(kWireTypeLast));
    const bool adds = op.op == ReduceOp::kSum || op.op == ReduceOp::kAverage;
    if (op.wire == WireType::kInt8) {
      if (!adds) op.op = ReduceOp::kSum;
      op.scaled = false;
      op.postscale = 1;
    }
    op.values = Values::kFractions;
    if (!op.counts.empty() || !one_in(random_, 2)) return;
    const uint64_t blocks = in_blocks(op.collective) ? op.size : 1;
    op.count = ((256 << 10) / sizeof(float) + random_.below(5000)) / blocks + 1;
  }

  void choose_oddity(Op& op) {
    op.odd_rank = static_cast<uint32_t>(random_.below(op.size));
    if (op.collective == GRADRING_SEND) op.odd_rank = one_in(random_, 2) ? op.root : op.to;
    do {
      op.oddity = static_cast<Oddity>(1 + random_.below(kOddityLast));
    } while (!may_be(op, op.oddity));
  }

  static bool may_be(const Op& op, Oddity oddity) {
    if (op.collective == GRADRING_BARRIER) return oddity == Oddity::kCollective;
    const bool reduces = is_reduction(op.collective);
    switch (oddity) {
      case Oddity::kDtype:
        return !reduces || op.wire == WireType::kNative;
      case Oddity::kReduceOp:
        return reduces;
      case Oddity::kRoot:
        return has_root(op.collective);
      case Oddity::kPostscale:
        return reduces && is_float(op.dtype);
      case Oddity::kWire:
        return reduces && op.dtype == Dtype::kFloat32;
      case Oddity::kCollective:
        return op.collective != GRADRING_SEND;
      case Oddity::kRanks:
        return (in_blocks(op.collective) || op.collective == GRADRING_REDUCE) && op.counts.empty();
      default:
        return true;
    }
  }

  // Whoever has most must have room for it, whatever the odd one says.
  void fit(Op& op) {
    const auto most = [&] {
      uint64_t bytes = 0;
      for (uint32_t rank = 0; rank < op.size; ++rank) {
        const Op said = said_by(op, rank);
        const Extents extents = extents_of(said, rank);
        bytes = std::max(bytes, (extents.input + extents.output) * size_of(said.dtype));
      }
      return bytes;
    };
    const uint64_t all = program_bytes_max(choice_), left = all - std::min(bytes_, all);
    while (most() > std::max(left, kOpBytesAlways)) {
      op.count /= 2;
      for (uint64_t& count : op.counts) count /= 2;
    }
    bytes_ += most();
  }

  Random random_;
  const uint32_t world_size_;
  const Choice choice_;
  uint64_t bytes_ = 0;
  Program program_;
};

}  // namespace

Program make_program(uint64_t seed, uint32_t world_size, const Choice& choice) {
  return Maker(seed, world_size, choice).make();
}

}  // namespace gradring::differential
