#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/key_set.h"
#include "daemon/core/op.h"
#include "daemon/core/view.h"
#include "proto/verdict.h"

namespace gradring::core {

// Neighbouring slices of one op that are in the same state.
struct SliceRun {
  uint32_t count = 0;
  SliceState state = SliceState::kUntouched;
  ValueId value;

  bool operator==(const SliceRun&) const = default;
};

struct OpReport {
  OpKey key;
  std::string name;
  std::optional<Signature> signature;
  bool completed = false;
  uint32_t contributions = 0;  // 0: some rank of this node has not submitted it
  bool root_here = false;      // the root's input is on this node
  uint32_t expected = 0;
  uint32_t slice_bytes = 0;  // 0: it has no slices
  std::vector<SliceRun> slices;
  ValueId outcome;  // of an op without slices that is decided

  bool operator==(const OpReport&) const = default;
};

struct LostRank {
  uint32_t rank = 0;
  Failure failure;

  bool operator==(const LostRank&) const = default;
};

// An op of which a slice came damaged each time, on its way from the node that reports it.
struct Condemned {
  Failure failure;
  std::string receiver;

  bool operator==(const Condemned&) const = default;
};

// What a node knows at the moment it stops taking part in an epoch (protocol rule V2): of every op
// that it has not forgotten, and which it has ended. Frozen: made once per epoch.
struct Report {
  std::string node;
  std::vector<OpReport> ops;
  KeySet ended;                     // completed, or failed
  std::map<OpKey, Failure> failed;  // as the trainers were told, or will be
  std::map<OpKey, Condemned> condemned;

  // From the control thread.
  std::vector<RankInfo> ranks;         // alive, ascending
  std::vector<LostRank> lost;          // of the view's, no longer alive
  std::vector<std::string> reachable;  // other nodes, by whichever plane
  bool wants_out = false;              // nothing of the job is left here

  bool operator==(const Report&) const = default;
};

// What becomes of neighbouring slices of an op in the next epoch.
struct SliceFate {
  uint32_t count = 0;
  Route route = Route::kCompute;
  uint32_t holder = 0;  // member of the next view
  ValueId value;        // unless computed

  bool operator==(const SliceFate&) const = default;
};

struct OpFate {
  enum class Kind : uint8_t {
    kFresh,     // no slice is final anywhere: it begins anew among the members
    kRecover,   // slice by slice
    kComplete,  // an op without slices that some member has decided
    kFail,
  };
  OpKey key;
  Kind kind = Kind::kFresh;
  uint32_t expected = 0;
  uint32_t slice_bytes = 0;
  std::string root_node;
  bool spared = false;
  std::vector<SliceFate> slices;
  ValueId outcome;
  Failure failure;

  bool operator==(const OpFate&) const = default;
};

// Nobody changes what was decided, and there may be very many: copies share them. Any thread.
class Fates {
 public:
  Fates() = default;
  Fates(std::vector<OpFate> all)  // NOLINT(google-explicit-constructor): it is these
      : all_(std::make_shared<const std::vector<OpFate>>(std::move(all))) {}

  const std::vector<OpFate>& all() const { return *all_; }
  bool operator==(const Fates& other) const { return all() == other.all(); }

 private:
  std::shared_ptr<const std::vector<OpFate>> all_ = std::make_shared<const std::vector<OpFate>>();
};

// What a view change decides: the next view, and the fate of every op that a member of it reported.
struct Proposal {
  View view;
  Fates ops;

  bool operator==(const Proposal&) const = default;
};

}  // namespace gradring::core
