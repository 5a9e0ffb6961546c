#include "daemon/core/plan.h"

#include <algorithm>
#include <utility>

#include "daemon/core/plan_steps.h"

namespace gradring::core {
namespace {

// Slices need a boundary that suits every element and vector load.
constexpr uint64_t kSliceAlign = 64;

// Rounds of slices per member that keep a ring busy: while one slice of mine is being summed,
// another is on the wire, and the last round's idle hops are a small part of the whole.
constexpr uint64_t kRoundsPerMember = 4;

// Of what is larger than a quarter of the largest slice as many quarters as are nearest: a
// transport chooses the largest so that quarters of it fill what the network takes at a time.
uint64_t in_quarters(uint64_t bytes, uint64_t most) {
  const uint64_t quarter = most / 4;
  return bytes < quarter ? bytes : std::min((bytes + quarter / 2) / quarter * quarter, most);
}

Way way_of(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kAllgather:
      return Way::kSpread;
    case Collective::kReduceScatter:
    case Collective::kReduce:
      return Way::kSumTo;
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAlltoall:
      return Way::kCarry;
    case Collective::kAllreduce:
    case Collective::kJoin:
    case Collective::kBarrier:
    case Collective::kJoinPoint:
      break;
  }
  return Way::kSum;
}

uint64_t bytes_of(const Signature& s) { return elements_of(s) * size_of(s.dtype); }

// The ranks of an alltoall's block, by their places. Nearest first at every rank, so that they do
// not all send to the same one.
struct Pair {
  uint32_t giver = 0;
  uint32_t taker = 0;
};
Pair pair_of(uint32_t number, uint32_t ranks) {
  return {number / ranks, (number / ranks + number % ranks) % ranks};
}

uint64_t count_of_block(const Blocks& blocks, uint32_t number) {
  if (!blocks.pairs()) return blocks.count(number);
  const Pair pair = pair_of(number, blocks.ranks());
  return blocks.count(pair.giver, pair.taker);
}

uint64_t slices_in(uint64_t bytes, uint64_t slice_bytes) {
  return bytes / slice_bytes + (bytes % slice_bytes != 0 ? 1 : 0);
}

void number_slices(Plan* plan, const Signature& s) {
  plan->blocks = s.blocks;
  plan->element_bytes = size_of(s.dtype);
  uint64_t slices = 0;
  for (uint32_t number = 0; number < s.blocks.counts().size(); ++number) {
    plan->first_slices.push_back(static_cast<uint32_t>(slices));
    slices += slices_in(count_of_block(s.blocks, number) * plan->element_bytes, plan->slice_bytes);
  }
  plan->first_slices.push_back(static_cast<uint32_t>(slices));
}

}  // namespace

uint32_t Plan::next_start(uint32_t slice) const {
  if (way == Way::kSum) {
    const uint32_t ahead = (me + members - slice % members) % members;
    return slices - slice > ahead ? slice + ahead : slices;
  }
  while (slice < slices && !starts_here(slice)) {
    slice = first_slice(block_number(slice) + 1);  // those of one block start together
  }
  return slice;
}

uint32_t Plan::block_number(uint32_t slice) const {
  if (!blocks.uneven()) return slice / slices_of_block;
  const auto behind = std::upper_bound(first_slices.begin(), first_slices.end(), slice);
  return static_cast<uint32_t>(behind - first_slices.begin()) - 1;
}

uint64_t Plan::length_of_block(uint32_t number) const {
  return blocks.uneven() ? count_of_block(blocks, number) * element_bytes : block_bytes;
}

std::span<const Step> Plan::steps_of(uint32_t slice) const {
  if (way == Way::kSum) return (*steps_at)[(me + members - slice % members) % members];
  const Block block = block_of(slice);
  if (block.start == Seat::kNobody || (to_one() && block.end == Seat::kNobody)) return {};
  const uint32_t distance = (me + members - block.start) % members;
  if (way != Way::kCarry) return (*steps_at)[distance];
  const uint32_t end = (block.end + members - block.start) % members;
  if (distance > end) return {};
  return distance == end ? (*ends_at)[distance] : (*steps_at)[distance];
}

uint32_t Plan::last_of(uint32_t slice) const {
  if (to_one()) return block_of(slice).end;
  const uint32_t before = way == Way::kSum && members > 1 ? 2 : 1;
  return (start_of(slice) + members - before) % members;
}

Block Plan::block_of(uint32_t slice) const {
  const auto ranks = static_cast<uint32_t>(seats.size());
  const uint32_t number = block_number(slice);
  const bool uneven = blocks.uneven();
  const bool pairs = collective == Collective::kAlltoall;
  // Where it lies in a buffer that has all of them.
  const uint64_t at = pairs    ? 0
                      : uneven ? blocks.before(number) * element_bytes
                               : number * block_bytes;
  Block block;
  const auto from = [&](uint32_t index) {
    block.source = seats[index].rank;
    block.start = seats[index].member;
  };
  const auto to = [&](uint32_t index) {
    block.target = seats[index].rank;
    block.end = seats[index].member;
    const bool lost = block.end == Seat::kNobody;
    if (way == Way::kSumTo) block.start = lost ? Seat::kNobody : (block.end + 1) % members;
  };
  switch (collective) {
    case Collective::kAllreduce:
    case Collective::kJoin:
    case Collective::kBarrier:
    case Collective::kJoinPoint:
      break;
    case Collective::kBroadcast:
      from(root);
      break;
    case Collective::kAllgather:
      from(number);
      block.output = at;
      break;
    case Collective::kReduceScatter:
      to(number);
      block.input = at;
      break;
    case Collective::kReduce:
      to(root);
      break;
    case Collective::kGather:
      from(number);
      to(root);
      block.output = at;
      break;
    case Collective::kScatter:
      from(root);
      to(number);
      block.input = at;
      break;
    case Collective::kAlltoall: {
      const auto [giver, taker] = pair_of(number, ranks);
      from(giver);
      to(taker);
      block.input = uneven ? blocks.before(giver, taker) * element_bytes : taker * block_bytes;
      block.output =
          uneven ? blocks.taken_before(giver, taker) * element_bytes : giver * block_bytes;
      break;
    }
  }
  return block;
}

WireType wire_of(const Signature& signature, const PlanOptions& options) {
  return bytes_of(signature) < options.packed_bytes_min ? WireType::kNative : signature.wire;
}

DirectLayout direct_layout(const Signature& signature, uint32_t members,
                           const PlanOptions& options) {
  if (signature.collective != Collective::kAllreduce || signature.count == 0) return {};
  if (members < 2 || wire_of(signature, options) != WireType::kNative) return {};
  const auto aligned = [](uint64_t bytes) {
    return (bytes + kSliceAlign - 1) / kSliceAlign * kSliceAlign;
  };
  const uint64_t whole = aligned(signature.bytes());
  if (members > options.direct_members_max) {
    const uint64_t most = std::min<uint64_t>({options.tree_max, options.slice_bytes_max,
                                              uint64_t{members} * options.tree_max_per_member});
    if (whole > most) return {};
    return {Direct::kTree, static_cast<uint32_t>(whole)};
  }
  const uint64_t part = aligned((signature.bytes() + members - 1) / members);
  if (whole <= std::min(options.direct_whole_max, options.slice_bytes_max)) {
    return {Direct::kWhole, static_cast<uint32_t>(whole)};
  }
  const bool parts = members <= options.parts_members_max;
  if (parts && part <= std::min(options.direct_part_max, options.slice_bytes_max)) {
    return {Direct::kParts, static_cast<uint32_t>(part)};
  }
  return {};
}

uint32_t slice_bytes_for(const Signature& signature, uint32_t members, const PlanOptions& options) {
  const uint64_t wanted = bytes_of(signature) / (uint64_t{members} * kRoundsPerMember);
  const bool alone = members == 1 && options.slice_bytes_alone != 0;
  const uint64_t most = alone ? options.slice_bytes_alone : options.slice_bytes_max;
  const uint64_t least = std::min<uint64_t>(options.slice_bytes_min, most);
  const uint64_t tuned = options.slice_bytes_tuned;
  const uint64_t bounded =
      tuned != 0 ? std::min<uint64_t>(tuned, most) : std::max(in_quarters(wanted, most), least);
  return static_cast<uint32_t>(std::max(kSliceAlign, bounded / kSliceAlign * kSliceAlign));
}

uint64_t slices_for(const Signature& signature, uint64_t slice_bytes) {
  if (!moves_data(signature.collective)) return 0;
  if (!signature.blocks.uneven()) {
    return slices_in(signature.bytes(), slice_bytes) * blocks_of(signature);
  }
  uint64_t slices = 0;
  for (const uint64_t count : signature.blocks.counts()) {
    slices += slices_in(count * size_of(signature.dtype), slice_bytes);
  }
  return slices;
}

Plan make_plan(const Signature& signature, uint32_t members, uint32_t me, std::vector<Seat> seats,
               const PlanOptions& options, uint32_t slice_bytes, SharedStepLists* lists) {
  SharedStepLists own;
  if (lists == nullptr) lists = &own;
  Plan plan;
  plan.members = members;
  plan.me = me;
  plan.collective = signature.collective;
  plan.way = way_of(signature.collective);
  plan.seats = std::move(seats);
  const auto root = std::find_if(plan.seats.begin(), plan.seats.end(),
                                 [&](const Seat& seat) { return seat.rank == signature.root; });
  if (root != plan.seats.end()) plan.root = static_cast<uint32_t>(root - plan.seats.begin());
  if (!moves_data(signature.collective) || signature.count == 0) return plan;
  plan.block_bytes = signature.bytes();
  if (members > 1) plan.wire = wire_of(signature, options);
  const DirectLayout layout = direct_layout(signature, members, options);
  if (slice_bytes != 0) {
    plan.slice_bytes = slice_bytes;
  } else if (layout.direct != Direct::kNo) {
    plan.direct = layout.direct;
    plan.slice_bytes = layout.slice_bytes;
  } else {
    plan.slice_bytes = slice_bytes_for(signature, members, options);
  }
  plan.slices = static_cast<uint32_t>(slices_for(signature, plan.slice_bytes));
  plan.slices_of_block = plan.slices / static_cast<uint32_t>(blocks_of(signature));
  if (signature.blocks.uneven()) number_slices(&plan, signature);
  switch (plan.way) {
    case Way::kSum:
      plan.steps_at = lists->of(Course::kSum, members);
      break;
    case Way::kSumTo:
      plan.steps_at = lists->of(Course::kSumTo, members);
      break;
    case Way::kSpread:
      plan.steps_at = lists->of(Course::kSpread, members);
      break;
    case Way::kCarry:
      plan.steps_at = lists->of(Course::kCarry, members);
      plan.ends_at = lists->of(Course::kCarried, members);
      break;
  }
  if (!plan.to_one()) plan.hand_at = lists->of(Course::kHand, members);
  return plan;
}

}  // namespace gradring::core
