#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/frame.h"
#include "proto/types.h"
#include "proto/verdict.h"

namespace gradring::core {

// Whose buffers a step folds in.
enum class Fold : uint8_t { kNone, kLocals, kSource };

// What one member does with one slice at one moment, in this order: take the value that arrived (or
// begin with nothing), fold in local contributions, divide, hand the final value to the local
// trainers that want it, pass it on.
struct Step {
  bool receive = false;
  Phase receive_phase = Phase::kPartial;
  uint16_t receive_hop = 0;

  Fold fold = Fold::kNone;
  bool finish = false;   // the value becomes final here: an average is divided now, and never later
  bool deliver = false;  // requires a final value

  bool send = false;
  Phase send_phase = Phase::kPartial;
  uint16_t send_hop = 0;  // as the receiver counts

  bool last = false;  // after it, whoever wants the slice has it

  bool operator==(const Step&) const = default;
};

// Who contributes to a slice, who gets it, and by which way along the ring.
enum class Way : uint8_t {
  kSum,     // everybody, to everybody: round once to be summed, and once to be handed out
  kSumTo,   // everybody, to one: round once, ending there
  kSpread,  // one, to everybody
  kCarry,   // one, to one
};

// Whether contributions may go with READY, straight to who sums them; then a slice is never larger
// than what a unit of memory holds. If any member cannot send its own so, all go along the ring,
// in the same slices and with the same order of additions.
enum class Direct : uint8_t {
  kNo,
  kWhole,  // the one slice to everybody, and all sum it: one way
  kParts,  // slice s to member s, which sums it and hands it to all others: there and back
  // The one slice up the tree of a large job, summed at each member, and down again. Not with READY
  // but when all are ready, so that its order of additions is always the same.
  kTree,
};

// A rank of an op, and the member that has its buffers. Where that is lost nobody is its member: no
// slice of it starts, and none is wanted.
struct Seat {
  static constexpr uint32_t kNobody = 0xffffffff;
  uint32_t rank = 0;
  uint32_t member = 0;
};

// A part of the op whose slices all go between the same ranks. Offsets are bytes in the buffers of
// those who give and of those who get.
struct Block {
  uint64_t input = 0;
  uint64_t output = 0;
  uint32_t source = kNoRank;  // the rank that gives it, of kSpread and kCarry
  uint32_t target = kNoRank;  // the rank that gets it, of kSumTo and kCarry
  uint32_t start = 0;         // the member at which it starts; of kSum they take turns
  uint32_t end = 0;           // the member of `target`

  bool goes_to(uint32_t rank) const { return target == kNoRank || target == rank; }
};

class SharedStepLists;  // plan_steps.h
using SharedSteps = std::shared_ptr<const std::vector<std::vector<Step>>>;

// A collective as data. Every slice starts at one member and travels along the ring; what a member
// does with it depends only on its distance from there. The engine walks these steps and knows no
// algorithm.
struct Plan {
  uint32_t members = 1;
  uint32_t me = 0;
  Way way = Way::kSum;
  Collective collective = Collective::kBarrier;
  Direct direct = Direct::kNo;
  WireType wire = WireType::kNative;  // as which its values travel and lie in staging memory
  uint32_t slice_bytes = 0;           // of every slice but the last of a block
  uint32_t slices = 0;       // 0: complete as soon as all are ready (barrier, nothing to move)
  uint64_t block_bytes = 0;  // of all blocks; an op that is not in blocks is one
  uint32_t slices_of_block = 1;
  // Of blocks that differ, instead of these two.
  Blocks blocks;
  uint64_t element_bytes = 0;
  std::vector<uint32_t> first_slices;  // of each, and behind the last: an empty one has none
  uint32_t root = 0;                   // its index in `seats`
  std::vector<Seat> seats;             // as make_plan says

  SharedSteps steps_at;  // indexed by distance from the start
  SharedSteps ends_at;   // of kCarry at the end, likewise
  SharedSteps hand_at;   // of a slice that one member holds, by distance from it

  Block block_of(uint32_t slice) const;
  uint32_t start_of(uint32_t slice) const {
    return way == Way::kSum ? slice % members : block_of(slice).start;
  }
  bool starts_here(uint32_t slice) const { return start_of(slice) == me; }
  // The first slice from `slice` on that starts here; `slices` if there is none.
  uint32_t next_start(uint32_t slice) const;
  std::span<const Step> steps_of(uint32_t slice) const;
  std::span<const Step> steps_from(uint32_t holder) const {
    return (*hand_at)[(me + members - holder) % members];
  }
  // Of one that may go directly: whether `member` sums the slice.
  bool sums(uint32_t member, uint32_t slice) const {
    return direct == Direct::kWhole || slice == member;
  }
  // Whether it is delivered to one rank alone: nobody else ever holds it.
  bool to_one() const { return way == Way::kSumTo || way == Way::kCarry; }
  // Whether it is delivered on this member.
  bool wanted_here(uint32_t slice) const { return !to_one() || block_of(slice).end == me; }
  // Contributions in a final value, of as many as the op has.
  uint32_t contributions_of(uint32_t ranks) const {
    return way == Way::kSpread || way == Way::kCarry ? 1 : ranks;
  }
  // The member that a final value reaches last: when it has it, everybody who wants it has it.
  uint32_t last_of(uint32_t slice) const;
  uint32_t last_from(uint32_t holder) const { return (holder + members - 1) % members; }
  // Slices of one turn are for one lane, whichever their number is: those that start at one member
  // take turns, and so do those that start side by side.
  uint32_t turn_of(uint32_t slice) const {
    return way == Way::kSum ? slice % members + slice / members : slice;
  }
  // Blocks have numbers in the order in which their slices have.
  uint32_t block_number(uint32_t slice) const;
  uint32_t first_slice(uint32_t number) const {
    return blocks.uneven() ? first_slices[number] : number * slices_of_block;
  }
  uint64_t length_of_block(uint32_t number) const;
  uint64_t offset_in_block(uint32_t slice) const {
    return uint64_t{slice - first_slice(block_number(slice))} * slice_bytes;
  }
  uint64_t input_at(uint32_t slice) const { return block_of(slice).input + offset_in_block(slice); }
  uint64_t output_at(uint32_t slice) const {
    return block_of(slice).output + offset_in_block(slice);
  }
  uint32_t length_of(uint32_t slice) const {
    const uint64_t left = length_of_block(block_number(slice)) - offset_in_block(slice);
    return left < slice_bytes ? static_cast<uint32_t>(left) : slice_bytes;
  }
  // The same as it travels.
  uint32_t packed_length_of(uint32_t slice) const {
    const uint32_t length = length_of(slice);
    if (wire == WireType::kNative) return length;
    return static_cast<uint32_t>(packed_bytes(wire, length / sizeof(float)));
  }
};

struct PlanOptions {
  uint32_t slice_bytes_max = 256 << 10;  // at least 64
  // The same where the job has one member and its slices lie nowhere but in the trainers' buffers;
  // 0: no other.
  uint32_t slice_bytes_alone = 0;
  // Below this a message costs more than its bytes (measured on TCP: about 30 us against 4 KiB's 33
  // us at 1 Gbit/s), so smaller ops are cut into fewer slices.
  uint32_t slice_bytes_min = 4 << 10;
  uint32_t slice_bytes_tuned = 0;  // not 0: of all slices along the ring (daemon/core/tuning.h)
  // Members of a job whose ops may go directly; 0: none does. And of one where parts may, which
  // takes each member twice as many messages.
  uint32_t direct_members_max = 0;
  uint32_t parts_members_max = 8;
  // The largest op of which each member sends the whole to all others, and the largest part of one
  // of which each sends a part to each.
  uint32_t direct_whole_max = 8 << 10;
  uint32_t direct_part_max = 64 << 10;
  // The largest op that goes along the tree of a large job: as many bytes, and so many for each
  // member. The tree takes as many hops as it has levels, and the ring twice as many as members;
  // but a member of the tree takes in what eight send, and of the ring what one does. 0: none goes
  // so.
  uint32_t tree_max = 0;
  uint32_t tree_max_per_member = 1 << 10;
  // From here on an op travels as its wire type says, and along the ring. What is smaller is bound
  // by the number of messages, and goes as it is: at 1 Gbit/s and four nodes 256 KiB of float32 go
  // directly in the time of as many bfloat16 along the ring.
  uint32_t packed_bytes_min = 256 << 10;
};

// As what the op travels wherever it has several members. Follows from these arguments alone, so
// that it is the same in every epoch in which the op is open.
WireType wire_of(const Signature& signature, const PlanOptions& options);

// How an op goes that is begun anew, and how large its slices are then.
struct DirectLayout {
  Direct direct = Direct::kNo;
  uint32_t slice_bytes = 0;
};
DirectLayout direct_layout(const Signature& signature, uint32_t members,
                           const PlanOptions& options);

// Slices are whole elements and equal on all members; both follow from the arguments alone. Unequal
// blocks must be known for these three.
uint32_t slice_bytes_for(const Signature& signature, uint32_t members, const PlanOptions& options);
// How many slices of `slice_bytes` an op has.
uint64_t slices_for(const Signature& signature, uint64_t slice_bytes);

// `seats`: the ranks of an op that needs all of them, ascending; of a broadcast its root alone;
// else none. `slice_bytes`: 0, or that of an op that was begun among other members and stays cut as
// it is. `lists`: of the plans that are to share theirs with it, if any.
Plan make_plan(const Signature& signature, uint32_t members, uint32_t me, std::vector<Seat> seats,
               const PlanOptions& options, uint32_t slice_bytes = 0,
               SharedStepLists* lists = nullptr);

}  // namespace gradring::core
