#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/frame.h"
#include "proto/types.h"

namespace gradring::core {

// Whose buffers a step folds in.
enum class Fold : uint8_t { kNone, kLocals, kRoot };

// What one member does with one slice at one moment, in this order: take the value that arrived (or
// begin with nothing), fold in local contributions, divide, hand the final value to the local
// trainers, pass it on.
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

  bool operator==(const Step&) const = default;
};

// A collective as data. Every slice starts at one member and travels along the ring; what a member
// does with it depends only on its distance from there. The engine walks these steps and knows no
// algorithm.
struct Plan {
  uint32_t members = 1;
  uint32_t me = 0;
  uint64_t bytes = 0;
  uint32_t slice_bytes = 0;  // of every slice but the last
  uint32_t slices = 0;       // 0: complete as soon as all are ready (barrier, nothing to move)

  bool rotate = true;        // slice s starts at member s mod n (allreduce)
  uint32_t fixed_start = 0;  // else all start here (broadcast: the root's node)

  std::vector<std::vector<Step>> steps_at;  // indexed by distance from the start
  std::vector<std::vector<Step>> hand_at;   // of a slice that one member holds, by distance from it

  uint32_t start_of(uint32_t slice) const { return rotate ? slice % members : fixed_start; }
  std::span<const Step> steps_of(uint32_t slice) const {
    return steps_at[(me + members - start_of(slice)) % members];
  }
  std::span<const Step> steps_from(uint32_t holder) const {
    return hand_at[(me + members - holder) % members];
  }
  // The member that a final value reaches last: when it has it, every member has it.
  uint32_t last_of(uint32_t slice) const {
    return (start_of(slice) + members - (rotate && members > 1 ? 2 : 1)) % members;
  }
  uint32_t last_from(uint32_t holder) const { return (holder + members - 1) % members; }
  bool starts_here(uint32_t slice) const { return start_of(slice) == me; }
  // Slices of one turn are for one lane, whichever their number is: those that start at one member
  // take turns, and so do those that start side by side.
  uint32_t turn_of(uint32_t slice) const {
    return rotate ? slice % members + slice / members : slice;
  }
  uint64_t offset_of(uint32_t slice) const { return uint64_t{slice} * slice_bytes; }
  uint32_t length_of(uint32_t slice) const {
    const uint64_t left = bytes - offset_of(slice);
    return left < slice_bytes ? static_cast<uint32_t>(left) : slice_bytes;
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
};

// Slices are whole elements and equal on all members; both follow from the arguments alone.
uint32_t slice_bytes_for(const Signature& signature, uint32_t members, const PlanOptions& options);

// `root_member`: index of the member that hosts the root, for broadcast. `slice_bytes`: 0, or that
// of an op that was begun among other members and stays cut as it is.
Plan make_plan(const Signature& signature, uint32_t members, uint32_t me, uint32_t root_member,
               const PlanOptions& options, uint32_t slice_bytes = 0);

}  // namespace gradring::core
