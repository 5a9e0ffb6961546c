#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/key_set.h"
#include "daemon/core/op.h"
#include "daemon/core/report.h"
#include "daemon/core/staging.h"
#include "daemon/core/time.h"
#include "daemon/core/view.h"
#include "proto/verdict.h"

namespace gradring::core {

struct EngineRecord;

// A rank that is or was of this node.
struct LocalRecord {
  uint32_t rank = 0;
  std::optional<Failure> left;
  uint64_t submitted = 0;
  uint64_t join_points = 0;

  bool operator==(const LocalRecord&) const = default;
};

// Told of everything that an engine must not forget between two lives of its daemon (rule R1), at
// the moment that each call names. Calls come from inside the engine's events and must not call
// back into it.
class EngineJournal {
 public:
  virtual ~EngineJournal() = default;

  // This is the whole of it; what was told before means nothing any more.
  virtual void begin(const EngineRecord&) {}
  // `op` has this submission now, of the rank `by`.
  virtual void submitted(const Op&, const Submission&, const LocalRecord& /*by*/) {}
  // The slice is about to be delivered: from now on it is this final value, even if the copying is
  // interrupted.
  virtual void held(const Op&, uint32_t /*slice*/, const ValueId&, Staging /*from*/) {}
  // What the op's slice says of its copy, or that it is dropped, is true from now on.
  virtual void kept(const Op&, uint32_t /*slice*/) {}
  virtual void dropped(const Op&, uint32_t /*slice*/) {}
  // The slice, which is not wanted here, is final where it is, and everybody knows.
  virtual void elsewhere(const Op&, uint32_t /*slice*/, const ValueId&) {}
  // An op without slices has its outcome, and is not told yet.
  virtual void decided(const Op&) {}
  // The op has been told to its ranks, to good or bad end.
  virtual void ended(const Op&) {}
  virtual void forgotten(const OpKey&) {}
  virtual void local(const LocalRecord&) {}

  // Remembers nothing.
  static EngineJournal* none();
};

struct SliceRecord {
  SliceState state = SliceState::kUntouched;
  ValueId value;
  std::optional<uint32_t> kept;

  bool operator==(const SliceRecord&) const = default;
};

struct OpRecord {
  OpKey key;
  std::string name;
  OpState state = OpState::kGathering;  // open, kFailed or kCompleted
  std::optional<Signature> signature;   // of an open one its submissions tell it
  std::vector<Submission> locals;       // by rank
  std::optional<Time> since;
  uint32_t expected = 0;
  uint32_t slice_bytes = 0;
  std::string root_node;
  std::vector<RankPlace> seats;
  bool spared = false;
  std::vector<SliceRecord> slices;  // none: all untouched
  ValueId outcome;
  Failure failure;

  void add(const Submission& submission);
  bool operator==(const OpRecord&) const = default;
};

// What an engine must not forget, as a value. As a journal it keeps itself true.
struct EngineRecord final : EngineJournal {
  View view;
  std::vector<LocalRecord> locals;
  std::map<OpKey, OpRecord> ops;  // with a local submission
  KeySet ended_keys;
  std::deque<std::pair<OpKey, Failure>> failed;  // oldest first
  std::map<OpKey, OpFate> carried;

  void begin(const EngineRecord& whole) override { *this = whole; }
  void submitted(const Op& op, const Submission& submission, const LocalRecord& by) override;
  void held(const Op& op, uint32_t slice, const ValueId& value, Staging from) override;
  void kept(const Op& op, uint32_t slice) override;
  void dropped(const Op& op, uint32_t slice) override;
  void elsewhere(const Op& op, uint32_t slice, const ValueId& value) override;
  void decided(const Op& op) override;
  void ended(const Op& op) override;
  void forgotten(const OpKey& key) override;
  void local(const LocalRecord& record) override;

  // The same by values, for whoever reads a journal that was written down.
  void submitted(OpRecord head, const Submission& submission, const LocalRecord& by);
  void held(const OpKey& key, uint32_t slice, uint32_t slices, uint32_t slice_bytes,
            const ValueId& value);
  void kept(const OpKey& key, uint32_t slice, uint32_t number);
  void dropped(const OpKey& key, uint32_t slice);
  void decided(const OpKey& key, const ValueId& outcome);
  void ended(const OpRecord& head);

  bool operator==(const EngineRecord& other) const {
    return view == other.view && locals == other.locals && ops == other.ops &&
           ended_keys == other.ended_keys && failed == other.failed && carried == other.carried;
  }
};

// Without its submissions and slices.
OpRecord head_of(const Op& op);

}  // namespace gradring::core
