// What one op of a program means, for each of its ranks.
#include <algorithm>
#include <array>

#include "daemon/core/random.h"
#include "proto/reduction.h"
#include "tests/differential/program.h"

namespace gradring::differential {
namespace {

bool in_pairs(const Op& op) { return op.collective == GRADRING_ALLTOALL; }

// Another one of which the op is one as well.
Dtype other_dtype(const Op& op) {
  for (uint8_t step = 1; step < kDtypeLast; ++step) {
    const auto other =
        static_cast<Dtype>((static_cast<uint8_t>(op.dtype) - 1 + step) % kDtypeLast + 1);
    if (!is_reduction(op.collective)) return other;
    const bool fits = can_reduce(other, op.op).ok() && (!op.scaled || is_float(other)) &&
                      op.wire == WireType::kNative;
    if (fits) return other;
  }
  return op.dtype;
}

ReduceOp other_reduce_op(const Op& op) {
  for (uint8_t step = 1;; ++step) {
    const auto other =
        static_cast<ReduceOp>((static_cast<uint8_t>(op.op) - 1 + step) % kReduceOpLast + 1);
    if (can_reduce(op.dtype, other).ok()) return other;
  }
}

std::string reduction_in_words(const Op& op) {
  std::string words = std::string(name_of(op.op)) + " ";
  if (op.wire != WireType::kNative) words += "by " + std::string(name_of(op.wire)) + " ";
  if (op.scaled) words += "scaled ";
  return words;
}

}  // namespace

bool is_reduction(gradring_collective collective) {
  return collective == GRADRING_ALLREDUCE || collective == GRADRING_REDUCE ||
         collective == GRADRING_REDUCE_SCATTER;
}

bool in_blocks(gradring_collective collective) {
  return collective == GRADRING_ALLGATHER || collective == GRADRING_REDUCE_SCATTER ||
         collective == GRADRING_GATHER || collective == GRADRING_SCATTER ||
         collective == GRADRING_ALLTOALL;
}

bool has_root(gradring_collective collective) {
  return collective == GRADRING_BROADCAST || collective == GRADRING_REDUCE ||
         collective == GRADRING_GATHER || collective == GRADRING_SCATTER;
}

bool takes_part(const Op& op, uint32_t rank) {
  return op.collective != GRADRING_SEND || rank == op.root || rank == op.to;
}

uint64_t Op::block(uint32_t giver, uint32_t taker) const {
  if (counts.empty()) return count;
  if (in_pairs(*this)) return counts[giver * size + taker];
  // The other end is everybody, or the root.
  const bool of_giver = collective == GRADRING_ALLGATHER || collective == GRADRING_GATHER;
  return counts[of_giver ? giver : taker];
}

uint64_t Op::given_before(uint32_t giver, uint32_t taker) const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < taker; ++i) sum += block(giver, i);
  return sum;
}

uint64_t Op::taken_before(uint32_t giver, uint32_t taker) const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < giver; ++i) sum += block(i, taker);
  return sum;
}

Extents extents_of(const Op& op, uint32_t rank) {
  const uint32_t n = std::max(op.ranks, op.size);
  const auto given = [&] { return op.given_before(rank, n); };
  const auto taken = [&] { return op.taken_before(n, rank); };
  const bool root = rank == op.root;
  switch (op.collective) {
    case GRADRING_ALLREDUCE:
      return {op.count, op.count};
    case GRADRING_BROADCAST:
      return {root ? op.count : 0, op.count};
    case GRADRING_REDUCE:
      return {op.count, root ? op.count : 0};
    case GRADRING_ALLGATHER:
      return {op.block(rank, 0), taken()};
    case GRADRING_REDUCE_SCATTER:
      return {given(), op.block(0, rank)};
    case GRADRING_GATHER:
      return {op.block(rank, 0), root ? taken() : 0};
    case GRADRING_SCATTER:
      return {root ? given() : 0, op.block(0, rank)};
    case GRADRING_ALLTOALL:
      return {given(), taken()};
    case GRADRING_SEND:
      return {root ? op.count : 0, root ? 0 : op.count};
    default:
      return {};
  }
}

uint64_t own_block(const Op& op, uint32_t rank) {
  if (op.collective == GRADRING_ALLGATHER || op.collective == GRADRING_GATHER) {
    return op.taken_before(rank, rank);
  }
  return in_blocks(op.collective) ? op.given_before(rank, rank) : 0;
}

Op said_by(const Op& op, uint32_t rank) {
  Op said = op;
  if (rank != op.odd_rank) return said;
  switch (op.oddity) {
    case Oddity::kNone:
      break;
    case Oddity::kCount:
      ++(op.counts.empty() ? said.count : said.counts[rank]);
      break;
    case Oddity::kDtype:
      said.dtype = other_dtype(op);
      break;
    case Oddity::kReduceOp:
      said.op = other_reduce_op(op);
      break;
    case Oddity::kRoot:
      said.root = (op.root + 1) % op.size;
      break;
    case Oddity::kPostscale:
      said.scaled = true;
      said.postscale = op.postscale * 2;
      break;
    case Oddity::kWire:
      said.wire = op.wire == WireType::kBfloat16 ? WireType::kFloat16 : WireType::kBfloat16;
      break;
    case Oddity::kCollective:
      said = {};
      said.number = op.number;
      said.group = op.group;
      said.size = op.size;
      said.name = op.name;
      if (op.collective != GRADRING_BARRIER) break;
      said.collective = GRADRING_BROADCAST;
      said.count = 3;
      break;
    case Oddity::kRanks:
      said.ranks = op.size + 1;
      break;
  }
  return said;
}

Manner manner_of(uint64_t seed, const Op& op, uint32_t rank) {
  static constexpr std::array<double, 6> kFactors = {1, 0.5, -2, 0.75, 3, 0.1};
  core::Random random(core::Random(seed).next() ^ (uint64_t{op.number} << 32 | rank));
  Manner manner;
  manner.in_place = random.below(3) == 0 && op.collective != GRADRING_ALLTOALL;
  manner.input_registered = random.below(4) == 0;
  manner.output_registered = random.below(4) == 0;
  manner.shift = random.below(2) == 0 ? 0 : static_cast<uint32_t>(random.below(17));
  manner.priority = random.below(2) == 0 ? 0 : static_cast<int32_t>(random.below(9)) - 4;
  manner.says_counts = random.below(3) == 0;
  manner.says_ranks = random.below(2) == 0;
  manner.says_wire = random.below(2) == 0;
  manner.polls = random.below(4) == 0;
  if (op.scaled) manner.prescale = kFactors[random.below(kFactors.size())];
  manner.input_on_gpu = random.below(4) != 0;
  manner.output_on_gpu = random.below(4) != 0;
  manner.waits_by_stream = random.below(2) == 0;
  manner.input_pooled = random.below(2) == 0;
  manner.output_pooled = random.below(2) == 0;
  return manner;
}

std::string describe(const Program& program, const Op& op) {
  std::string words = "op " + std::to_string(op.number) + ", ";
  if (op.collective == GRADRING_SEND) {
    words += "send from " + std::to_string(op.root) + " to " + std::to_string(op.to) + " ";
  } else {
    words += std::string(name_of(static_cast<Collective>(op.collective))) + " ";
  }
  if (is_reduction(op.collective)) words += reduction_in_words(op);
  if (op.collective != GRADRING_BARRIER) {
    words += "of ";
    if (op.counts.empty()) words += std::to_string(op.count) + " ";
    for (const uint64_t count : op.counts) words += std::to_string(count) + " ";
    words += std::string(name_of(op.dtype));
  }
  if (has_root(op.collective)) words += ", root " + std::to_string(op.root);
  if (!op.name.empty()) words += ", named " + op.name;
  if (op.oddity != Oddity::kNone) words += ", odd on rank " + std::to_string(op.odd_rank);
  words += ", among ranks";
  for (const uint32_t rank : program.groups[op.group].ranks) words += " " + std::to_string(rank);
  return words;
}

}  // namespace gradring::differential
