#pragma once

#include <cstdint>
#include <optional>
#include <string>
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
  uint32_t rank = 0;
  uint64_t ticket = 0;
  OpKey key;
  std::string name;  // for people
  Signature signature;
  BufferRef input;
  BufferRef output;
};

// The life of an op on one node:
//
//   from        event                                  to          meaning
//   (nothing)   first submission or READY              kGathering  some rank or member is missing
//   kGathering  all local ranks and all members ready  kMoving     slices may start and arrive
//   kGathering  signatures differ                      kFailed     local ranks are yet to be told
//   kMoving     every slice final                      kDone       completed, forgotten
//   any         the job fails                          kDone
enum class OpState : uint8_t { kGathering, kMoving, kFailed, kDone };

// Rule T: a slice is U (untouched input), H (holds the final value) or D (completed and dropped),
// and only ever goes U -> H -> D.
enum class SliceState : uint8_t { kUntouched, kHeld, kDropped };

struct SliceProgress {
  SliceState state = SliceState::kUntouched;
  uint8_t next_step = 0;  // index into Plan::steps_of(slice)
  bool arriving = false;  // the value for next_step has a slot already
};

struct Op {
  OpKey key;
  std::string name;
  OpState state = OpState::kGathering;

  std::optional<Signature> signature;             // of whoever came first
  uint32_t signed_by = kNoRank;                   // that one's rank
  std::vector<std::optional<Submission>> locals;  // by local index, ascending rank
  uint32_t locals_here = 0;
  std::vector<bool> ready;  // by member
  uint32_t ready_count = 0;
  std::optional<Time> since;  // first local submission; else the tick after the first READY

  Plan plan;  // from the moment all locals are here
  std::vector<SliceProgress> slices;
  uint32_t slices_held = 0;
  uint32_t next_start = 0;  // first slice that starts here and has not

  Failure failure;  // when kFailed

  bool all_local() const { return locals_here == locals.size(); }
  bool all_ready() const { return ready_count == ready.size(); }
};

}  // namespace gradring::core
