#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/core/plan.h"
#include "daemon/core/time.h"
#include "proto/types.h"
#include "proto/verdict.h"

namespace gradring::core {

// Where a trainer's buffer lies; only the executor can turn it into an address.
struct BufferRef {
  uint64_t segment = 0;
  uint64_t offset = 0;

  bool operator==(const BufferRef&) const = default;
};

// One rank's part in an op, as it was submitted.
struct Submission {
  static constexpr uint64_t kAllHere = UINT64_MAX;

  uint32_t rank = 0;
  uint64_t ticket = 0;
  OpKey key;
  std::string name;  // for people
  Signature signature;
  BufferRef input;
  BufferRef output;
  uint32_t position = 0;  // of an op that needs all of its ranks: which of them this one is
  double prescale = 1;    // the input is multiplied by it
  int32_t priority = 0;   // of ops that are ready, the highest starts first
  // Bytes of the input, from its beginning, that are there; the rest is on its way.
  uint64_t input_here = kAllHere;
  // All of it was here once, and comes again from where it still lies.
  bool comes_again = false;
  // Else the rest of the input never came. Its rank is gone, nothing of it is folded, and its
  // output is where what is final of the op is kept for others.
  bool counts = true;

  // Whether all of it is here or comes again, although its rank has left.
  bool input_stays(const Failure& why_left) const {
    const bool gpu_lost = !why_left.blame.device.empty();
    return input_here == kAllHere || (comes_again && !gpu_lost);
  }

  bool operator==(const Submission&) const = default;
};

// A rank of an op that needs all of them, and the node that has its buffers.
struct RankPlace {
  uint32_t rank = 0;
  std::string node;

  bool operator==(const RankPlace&) const = default;
};

// The life of an op on one node:
//
//   from        event                                  to          meaning
//   (nothing)   first submission or READY              kGathering  some rank or member is missing
//   kGathering  all local ranks and all members ready  kMoving     slices may start and arrive
//   kGathering  signatures differ, or a view says so   kFailed     local ranks are yet to be told
//   kMoving     every slice final                      kCompleted  told; some finals are kept yet
//   kCompleted  every member has every slice           (nothing)   its key is remembered
//   kMoving     a new view recomputes slices           kGathering  until all of its members are
//   ready any         the job fails, or leaves this node out (nothing)
enum class OpState : uint8_t { kGathering, kMoving, kFailed, kCompleted };

// Rule T: a slice is U (untouched input), H (holds the final value) or D (every member that wants
// it has it, so nobody will ask), and only ever goes U -> H -> D, or where it is not wanted U -> D.
enum class SliceState : uint8_t { kUntouched, kHeld, kDropped };

// Which of several possible sums a final value is.
struct ValueId {
  uint64_t epoch = 0;  // in which it was computed
  uint32_t ranks = 0;  // contributions in it

  bool operator==(const ValueId&) const = default;
};

// What becomes of a slice in this epoch.
enum class Route : uint8_t {
  kCompute,  // along the op's plan, from its inputs
  kHand,     // `holder` gives the final value out
  kNone,     // every member has it
  kDirect,   // from all members to who sums it, straight or along a tree, and on to all; no view
             // says so
};

struct SliceProgress {
  SliceState state = SliceState::kUntouched;
  Route route = Route::kCompute;
  uint8_t next_step = 0;         // index into the slice's steps
  bool arriving = false;         // the value for next_step has a slot already
  uint32_t holder = 0;           // member, when handed
  ValueId value;                 // when held or dropped, or about to be handed
  std::optional<uint32_t> kept;  // the copy we hold of it after completion
};

// Of an op that may go directly: what went with READY, ours and theirs.
struct Eager {
  uint32_t ready = 0;                            // members whose READY had its data
  bool mine = false;                             // and ours is one of them
  bool looked_at = false;                        // our inputs were folded once
  bool direct = false;                           // all had: so it goes
  bool everywhere = false;                       // all other members have all of its slices
  std::vector<uint32_t> own;                     // units of our contributions, by slice
  std::vector<std::optional<uint32_t>> parcels;  // units of theirs, by member
  std::vector<uint64_t> serials;                 // of their READYs, by member: 0 when done with
};

// Of an op in a view where READY goes along a tree.
struct TreeReady {
  uint8_t below = 0;           // children whose subtrees are ready, a bit each
  uint32_t contributions = 0;  // in those
  bool said = false;           // our own subtree is ready, and whoever is above knows
  bool wanted = false;         // our neighbours know that somebody waits for it
  bool rises = true;           // all that are ready can sum it along the tree; at last, all do
  uint8_t risen = 0;           // children whose sums are on their way here, a bit each
  bool passed_on = false;      // our own has gone up
};

// When ranks came to an op, in this epoch.
struct Arrivals {
  std::optional<Time> first;  // submission here, or READY of another member
  std::vector<Time> locals;   // submissions, by local index; 0: in an earlier epoch, or none
  uint32_t latest_us = 0;     // by how much whoever came last is behind the first, as far as told
};

struct Op {
  OpKey key;
  std::string name;
  OpState state = OpState::kGathering;

  std::optional<Signature> signature;             // of whoever came first
  uint32_t signed_by = kNoRank;                   // that one's rank
  std::vector<std::optional<Submission>> locals;  // by local index
  uint32_t contributed = 0;                       // by this node's ranks, when it is ready; else 0
  uint32_t contributed_all = 0;  // by all members, when they are known to be ready; else 0
  // In a small view, by member, from its READY; 0: not ready. In a large one there is `tree`.
  std::vector<uint32_t> contributions;
  std::vector<uint32_t> contributed_before;  // by members 0 .. i-1, once all are ready
  uint32_t ready_count = 0;
  TreeReady tree;
  int32_t priority = 0;       // once it is lined up: the highest of our ranks'
  uint64_t turn = 0;          // likewise: which one in the StartLine it is
  std::optional<Time> since;  // first local submission; else the tick after the first READY
  Arrivals arrivals;

  uint32_t expected = 0;         // ranks of the view in which it was first seen anywhere
  uint32_t slice_bytes = 0;      // not 0: some slice is final somewhere, so it stays cut as it was
  std::string root_node;         // broadcast: where the root's input is; empty: where the root is
  std::vector<RankPlace> seats;  // of one that needs all of its ranks: as it began, ascending
  bool spared = false;           // of a view that is closed, or lacks ranks of it: it may go on
  bool grows = false;            // join point: some member wants to take in new ranks
  std::set<uint32_t> asked;      // of our ranks that have joined: to stand in
  Time stood_in = 0;             // of a join: when one of these last did so for an op
  bool confirmed = false;  // it has nothing that goes round: all members before us know its end
  bool passed_confirm = false;  // and the next one was told that we have

  bool keeps_to_ring = false;  // however else it may be planned

  Plan plan;  // from the moment all locals are here
  std::vector<SliceProgress> slices;
  uint32_t slices_held = 0;  // or dropped
  uint32_t slices_dropped = 0;
  bool everywhere = false;  // it has nothing that goes round: all are known to know its end
  uint32_t next_start = 0;  // first slice that starts here and has not
  uint32_t next_hand = 0;   // first slice not looked at for handing out
  // When there was no room to keep its finals: for how many there was, and how many copies of this
  // job had ever been dropped by then.
  struct NoRoom {
    uint64_t found = 0;
    uint64_t dropped = 0;
  };
  std::optional<NoRoom> no_room;
  ValueId outcome;  // of an op without slices, once decided: all were ready
  Eager eager;

  Failure failure;  // when kFailed

  bool ready_here() const { return contributed > 0; }
  bool all_ready() const { return contributed_all > 0; }
  // Every slice is final somewhere, so that nobody is asked once more whether it is ready: some
  // have completed it long ago.
  bool computed() const {
    return slice_bytes != 0 && std::ranges::none_of(slices, [](const SliceProgress& slice) {
             return slice.route == Route::kCompute;
           });
  }
  bool open() const { return state == OpState::kGathering || state == OpState::kMoving; }
};

// A trainer tells a name with its first use alone; people are told it with each.
class OpNames {
 public:
  // `told`, by whoever submits the op, may be empty. No more than `most` are kept.
  void give(const std::string& told, size_t most, Op* op) {
    if (!told.empty() && names_.size() < most) names_.try_emplace(op->key.space, told);
    if (op->name.empty()) op->name = told;
    if (!op->name.empty() || op->key.space == 0) return;
    op->name = of(op->key.space);
  }
  // Empty: not known.
  std::string_view of(uint64_t space) const {
    const auto known = names_.find(space);
    return known == names_.end() ? std::string_view() : known->second;
  }

 private:
  std::unordered_map<uint64_t, std::string> names_;  // by key space
};

}  // namespace gradring::core
