#include "tests/device/check_programs.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "tests/transport/fold_kinds.h"

namespace gradring::device {
namespace {

using differential::Op;
using differential::Program;
using differential::Values;

class Maker {
 public:
  Maker(uint64_t seed, uint32_t ranks) {
    program_.seed = seed;
    program_.in_world = true;
    program_.groups.emplace_back().ranks.resize(ranks);
    std::iota(program_.groups[0].ranks.begin(), program_.groups[0].ranks.end(), 0u);
  }
  Op& add(gradring_collective collective, Dtype dtype, uint64_t count) {
    Op& op = program_.ops.emplace_back();
    op.number = static_cast<uint32_t>(program_.ops.size() - 1);
    op.size = static_cast<uint32_t>(program_.groups[0].ranks.size());
    op.collective = collective;
    op.dtype = dtype;
    op.count = count;
    return op;
  }
  void reduce(const fold_kinds::Kind& kind, uint64_t count, Values values, bool scaled = false) {
    Op& op = add(GRADRING_ALLREDUCE, kind.dtype, count);
    op.op = kind.op;
    op.values = values;
    op.scaled = scaled;  // each rank's input by a factor of its own
    if (scaled) op.postscale = 0.3;
  }
  Program take() { return std::move(program_); }

 private:
  Program program_;
};

// An odd number of elements more, so that no part is as the others.
uint64_t elements(uint64_t bytes, Dtype dtype) { return bytes / size_of(dtype) + 3; }

constexpr std::array<uint64_t, 3> kBytes = {1, 4096, 5 << 20};

}  // namespace

std::vector<Program> all_kinds(uint64_t seed, uint32_t ranks, const Extent& extent) {
  std::vector<Program> programs;
  const std::vector<fold_kinds::Kind> kinds = fold_kinds::all_kinds();
  for (size_t i = 0; i < kinds.size(); i += extent.every) {
    Maker maker(seed + i, ranks);
    for (const uint64_t bytes : kBytes) {
      const uint64_t count = elements(std::min(bytes, extent.bytes_max), kinds[i].dtype);
      maker.reduce(kinds[i], count, Values::kBits);
      if (!is_float(kinds[i].dtype)) continue;
      for (const bool scaled : {false, true}) {
        maker.reduce(kinds[i], count, Values::kFractions, scaled);
      }
    }
    programs.push_back(maker.take());
  }
  return programs;
}

std::vector<Program> all_collectives(uint64_t seed, uint32_t ranks, const Extent& extent) {
  constexpr std::array kAll = {GRADRING_BROADCAST, GRADRING_ALLGATHER, GRADRING_REDUCE_SCATTER,
                               GRADRING_REDUCE,    GRADRING_GATHER,    GRADRING_SCATTER,
                               GRADRING_ALLTOALL};
  std::vector<Program> programs;
  for (const gradring_collective collective : kAll) {
    Maker maker(seed + programs.size(), ranks);
    for (const uint64_t bytes : kBytes) {
      for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
        const uint64_t count = elements(std::min(bytes, extent.bytes_max) / ranks, dtype);
        for (const bool equal : {true, false}) {
          if (!equal && !differential::in_blocks(collective)) continue;
          Op& op = maker.add(collective, dtype, count);
          op.op = differential::is_reduction(collective) ? ReduceOp::kSum : ReduceOp::kNone;
          op.values = Values::kFractions;
          op.scaled = collective == GRADRING_REDUCE_SCATTER && equal;
          op.root = differential::has_root(collective) ? ranks - 1 : 0;
          const uint32_t blocks = collective == GRADRING_ALLTOALL ? ranks * ranks : ranks;
          for (uint32_t i = 0; i < blocks && !equal; ++i) op.counts.push_back(count + i % 2);
        }
      }
    }
    programs.push_back(maker.take());
  }
  return programs;
}

std::vector<Program> all_sizes(uint64_t seed, uint32_t ranks, const Extent& extent) {
  std::vector<Program> programs;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
    for (uint64_t bytes = size_of(dtype); bytes <= extent.bytes_max; bytes *= 4) {
      Maker maker(seed + programs.size(), ranks);
      const uint64_t count = bytes / size_of(dtype);
      maker.reduce({dtype, ReduceOp::kSum}, count, Values::kFractions);
      if (bytes < extent.bytes_max) {
        maker.reduce({dtype, ReduceOp::kAverage}, count + 1, Values::kFractions);
      }
      programs.push_back(maker.take());
    }
  }
  return programs;
}

uint64_t bytes_of(const std::vector<Program>& programs) {
  uint64_t most = 0;
  for (const Program& program : programs) {
    for (uint32_t rank = 0; rank < program.groups[0].ranks.size(); ++rank) {
      uint64_t bytes = 0;
      for (const Op& op : program.ops) {
        const differential::Extents extents = differential::extents_of(op, rank);
        bytes += (extents.input + extents.output) * size_of(op.dtype);
      }
      most = std::max(most, bytes);
    }
  }
  return most;
}

}  // namespace gradring::device
