// Plans of collectives in blocks: walked by all members, every byte comes from where it should and
// ends where it should, once.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/core/plan.h"

namespace gradring::core {
namespace {

constexpr Collective kAll[] = {Collective::kAllgather, Collective::kReduceScatter,
                               Collective::kReduce,    Collective::kGather,
                               Collective::kScatter,   Collective::kAlltoall};

Signature signature_of(Collective collective, uint64_t count, uint32_t ranks, uint32_t root) {
  Signature s{collective, Dtype::kUint8, ReduceOp::kNone, 0, count, ranks};
  if (reduces(collective)) s.op = ReduceOp::kSum;
  if (has_root(collective)) s.root = root;
  return s;
}

// With blocks of all lengths up to that, some empty.
Signature unevenly(Signature s) {
  if (!in_blocks(s.collective)) return s;
  const bool pairs = s.collective == Collective::kAlltoall;
  std::vector<uint64_t> counts(blocks_of(s));
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = (i * 17 + 4) % 7 * s.count / 6;
  counts[counts.size() / 2] = s.count;
  s.blocks = *(pairs ? Blocks::of_pairs(counts, s.ranks) : Blocks::of_ranks(counts));
  return s;
}

// Ranks dealt out to members in turn, so that neighbours in rank are not neighbours in the ring.
std::vector<Seat> seats_of(uint32_t ranks, uint32_t members) {
  std::vector<Seat> seats;
  for (uint32_t rank = 0; rank < ranks; ++rank) seats.push_back({rank, rank % members});
  return seats;
}

// Which bytes of whose inputs lie where: (rank, offset in its output) -> (rank, offset in its
// input), as often as it was written.
using Bytes = std::map<std::tuple<uint32_t, uint64_t>, std::vector<std::tuple<uint32_t, uint64_t>>>;

struct Town {
  Town(const Signature& signature, uint32_t members, const std::vector<Seat>& seats)
      : s(signature), ranks(seats) {
    PlanOptions options;
    options.slice_bytes_max = options.slice_bytes_min = 64;
    for (uint32_t me = 0; me < members; ++me) {
      plans.push_back(make_plan(s, members, me, seats, options));
    }
  }

  // Sends one slice round; empty, or what is wrong with its way.
  std::string walk(uint32_t slice) {
    const auto n = static_cast<uint32_t>(plans.size());
    const Block block = plans[0].block_of(slice);
    std::vector<size_t> next(n, 0);
    std::vector<std::tuple<uint32_t, uint64_t>> value;
    uint32_t lasts = 0;
    uint32_t at = plans[0].start_of(slice);
    for (const Step* sent = nullptr;; at = (at + 1) % n) {
      const auto steps = plans[at].steps_of(slice);
      if (next[at] == steps.size()) return "nobody waits for it at " + std::to_string(at);
      const Step& step = steps[next[at]++];
      const bool fits = sent == nullptr ? !step.receive
                                        : step.receive && step.receive_phase == sent->send_phase &&
                                              step.receive_hop == sent->send_hop;
      if (!fits) return "another step is expected at " + std::to_string(at);
      for (const Seat& seat : ranks) {
        if (seat.member != at) continue;
        const bool gives =
            step.fold == Fold::kLocals || (step.fold == Fold::kSource && seat.rank == block.source);
        if (gives) value.emplace_back(seat.rank, plans[at].input_at(slice));
      }
      for (const Seat& seat : ranks) {
        if (seat.member != at) continue;
        if (step.deliver && block.goes_to(seat.rank)) {
          for (uint32_t i = 0; i < plans[at].length_of(slice); ++i) {
            auto& to = written[{seat.rank, plans[at].output_at(slice) + i}];
            for (const auto& [rank, from] : value) to.emplace_back(rank, from + i);
          }
        }
      }
      if (step.deliver != (step.deliver && plans[at].wanted_here(slice))) return "not wanted";
      lasts += step.last ? 1 : 0;
      if (step.last && at != plans[0].last_of(slice)) return "last at another member";
      if (!step.send) break;
      sent = &step;
    }
    for (uint32_t member = 0; member < n; ++member) {
      if (next[member] != plans[member].steps_of(slice).size()) return "somebody waits for ever";
    }
    return lasts == 1 ? "" : "the last one does not know that it is";
  }

  const Signature s;
  const std::vector<Seat> ranks;
  std::vector<Plan> plans;
  Bytes written;
};

// From the definition of the collective.
Bytes definition(const Signature& s, const std::vector<Seat>& seats) {
  Bytes bytes;
  const auto n = static_cast<uint32_t>(seats.size());
  const auto everybody = [&](uint64_t at) {
    std::vector<std::tuple<uint32_t, uint64_t>> from;
    for (const Seat& seat : seats) from.emplace_back(seat.rank, at);
    return from;
  };
  const auto length = [&](uint32_t giver, uint32_t taker) {
    if (!s.blocks.uneven()) return s.count;
    if (s.blocks.pairs()) return s.blocks.counts()[giver * n + taker];
    const bool of_giver =
        s.collective == Collective::kAllgather || s.collective == Collective::kGather;
    return s.blocks.counts()[of_giver ? giver : taker];
  };
  for (uint32_t to = 0; to < n; ++to) {
    const bool root =
        !has_root(s.collective) || s.collective == Collective::kScatter || s.root == to;
    uint64_t at = 0;  // in the output
    for (uint32_t from = 0; root && from < n; ++from) {
      const bool pairs = s.collective == Collective::kAlltoall;
      const bool one =
          s.collective != Collective::kAllgather && s.collective != Collective::kGather && !pairs;
      if (one && from > 0) break;
      const uint32_t giver = s.collective == Collective::kScatter ? s.root : from;
      const bool takes_part = s.collective == Collective::kReduceScatter ||
                              s.collective == Collective::kScatter || pairs;
      uint64_t begins = 0;  // in the input
      for (uint32_t other = 0; takes_part && other < to; ++other) begins += length(giver, other);
      for (uint64_t i = 0; i < length(giver, to); ++i, ++at) {
        auto& sources = bytes[{to, at}];
        if (reduces(s.collective)) {
          sources = everybody(begins + i);
        } else {
          sources = {{giver, begins + i}};
        }
      }
    }
  }
  return bytes;
}

TEST(PlanBlocks, EveryByteComesFromWhereItShouldAndEndsWhereItShould) {
  for (const Collective collective : kAll) {
    for (uint32_t members = 1; members <= 5; ++members) {
      for (const uint32_t ranks : {members, members + 1, 2 * members}) {
        for (const uint64_t count : {1u, 64u, 150u}) {
          const auto seats = seats_of(ranks, members);
          const Signature even = signature_of(collective, count, ranks, ranks - 1);
          for (const Signature& s : {even, unevenly(even)}) {
            SCOPED_TRACE(describe(s) + " on " + std::to_string(members) + " members");
            Town town(s, members, seats);
            for (uint32_t slice = 0; slice < town.plans[0].slices; ++slice) {
              ASSERT_EQ(town.walk(slice), "") << "slice " << slice;
            }
            for (auto& [place, from] : town.written) std::sort(from.begin(), from.end());
            ASSERT_EQ(town.written, definition(s, seats));
          }
        }
      }
    }
  }
}

TEST(PlanBlocks, EachMemberFindsAllSlicesThatStartThere) {
  for (const Collective collective : kAll) {
    const Signature even = signature_of(collective, 150, 6, 2);
    for (const Signature& s : {even, unevenly(even)}) {
      Town town(s, 3, seats_of(6, 3));
      const uint32_t slices = town.plans[0].slices;
      std::vector<uint32_t> found(slices, 0);
      for (const Plan& plan : town.plans) {
        for (uint32_t i = plan.next_start(0); i < slices; i = plan.next_start(i + 1)) ++found[i];
      }
      EXPECT_EQ(found, std::vector<uint32_t>(slices, 1)) << describe(s);
    }
  }
}

TEST(PlanBlocks, SlicesNeverReachOverTheEndOfABlock) {
  for (const Collective collective : kAll) {
    const Signature even = signature_of(collective, 1000, 4, 0);
    for (const Signature& s : {even, unevenly(even)}) {
      const Plan plan = make_plan(s, 2, 0, seats_of(4, 2), {});
      EXPECT_EQ(plan.slices, slices_for(s, plan.slice_bytes));
      for (uint32_t slice = 0; slice < plan.slices; ++slice) {
        const uint64_t block = plan.length_of_block(plan.block_number(slice));
        EXPECT_LE(plan.offset_in_block(slice) + plan.length_of(slice), block);
        EXPECT_GT(plan.length_of(slice), 0u);
      }
    }
  }
}

TEST(PlanBlocks, NothingToMoveHasNoSlices) {
  for (const Collective collective : kAll) {
    EXPECT_EQ(make_plan(signature_of(collective, 0, 3, 0), 3, 1, seats_of(3, 3), {}).slices, 0u);
  }
}

}  // namespace
}  // namespace gradring::core
