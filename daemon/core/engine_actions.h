#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "daemon/core/op.h"
#include "daemon/core/staging.h"
#include "proto/frame.h"
#include "proto/verdict.h"

namespace gradring::core {

struct Outcome {
  Verdict verdict = Verdict::kOk;
  Failure failure;
  uint64_t epoch = 0;
  uint32_t ranks_min = 0;
  uint32_t ranks_max = 0;
};

// Of a submission that makes no sense, or comes too late. `why`: a sentence for its trainer.
inline Outcome refused(uint32_t rank, const std::string& why) {
  Outcome outcome;
  outcome.verdict = Verdict::kFailed;
  outcome.failure.cause = Cause::kRefused;
  outcome.failure.blame.rank = rank;
  outcome.failure.blame.evidence = why;
  return outcome;
}

// The contributions of one pass over a slice.
struct FoldOrder {
  const Op* op = nullptr;
  uint32_t slice = 0;
  Fold source = Fold::kLocals;
  bool onto_arrived =
      false;             // the staging memory holds the predecessor's value: it is the first input
  uint32_t divisor = 0;  // not 0: divide the result
  double factor = 1;     // then multiply it
  Staging at;            // where the result goes
  // It is final, and goes to the outputs of all local contributions as well, in the same pass.
  bool deliver = false;
  // It goes on from `at`; else, where it is delivered, it need not be there afterwards.
  bool leaves = false;
  bool again = false;  // the inputs were folded before, for nothing
};

// Contributions that came straight from all members, to be added in this order.
struct SumOrder {
  const Op* op = nullptr;
  uint32_t slice = 0;
  std::span<const Staging> parts;  // one may be `at`
  uint32_t divisor = 0;            // not 0: divide the result
  double factor = 1;               // then multiply it
  // The result goes to the outputs of all local contributions, and there if it goes on.
  std::optional<Staging> at;
  bool partial = false;  // contributions are missing still: it goes to no output
};

struct ResultDigest {
  uint32_t crc32c = 0;               // of the first output
  uint32_t rank = 0;                 // whose that is
  std::optional<uint32_t> odd_rank;  // another one, whose output differs
};

// An op waits for a rank or a member that will never submit it, or never bring the rest of its
// input: only another view can end it.
struct Absence {
  std::optional<uint32_t> rank;  // of this node
  std::string node;
  Failure failure;
  bool unfinished = false;  // it has submitted the op, which is open here until that view
};

// What the engine wants done. Calls come from inside the engine's events, in an order that must be
// kept: fold, deliver, keep, fetch and complete are finished when they return, so that a later send
// may carry their result. None may call back into the engine.
class EngineActions {
 public:
  virtual ~EngineActions() = default;

  virtual void fold(const FoldOrder& order) = 0;
  virtual void sum(const SumOrder& order) = 0;
  // Copies the final value of a slice to the outputs of all local contributions, where no fold has;
  // which value that is, `op` says already.
  virtual void deliver(const Op& op, uint32_t slice, Staging from) = 0;
  // Copies a final slice out of the first local output, before that goes back to its trainer; a
  // number for it, or nothing when there is no room (rule T3).
  virtual std::optional<uint32_t> keep(const Op& op, uint32_t slice) = 0;
  virtual void drop(uint32_t kept) = 0;
  // Copies a slice that is held, from its kept copy if there is one, else from the first local
  // output.
  virtual void fetch(const Op& op, uint32_t slice, Staging to) = 0;
  // What lies in the outputs of the local contributions, before they go back to their trainers;
  // nothing if there are none.
  virtual std::optional<ResultDigest> digest(const Op& op) = 0;
  // A frame without payload to one member.
  virtual void send(uint32_t member, const Frame& frame) = 0;
  // A SLICE to the successor; `from` is lent until on_sent(from). A checked one gets its checksum
  // from whoever sends it: the same for each attempt.
  virtual void send_slice(uint32_t member, const Frame& frame, Staging from) = 0;
  // A READY with its data, or the final value of a slice straight to who lacks it; `from` is lent
  // until on_sent(from), which comes once for each call.
  virtual void send_direct(uint32_t member, const Frame& frame, Staging from) = 0;
  // All ranks and members are ready for it; once in each epoch.
  virtual void moves(const Op& op) = 0;
  // A submission has ended; exactly once each. Its buffers are the trainer's again.
  virtual void complete(uint32_t rank, uint64_t ticket, const Outcome& outcome) = 0;
  // The job must be failed everywhere. The engine has not closed itself: fail() does, and comes
  // back to it with the cause that won.
  virtual void fail_job(const Failure& failure) = 0;
  // The view must change, or nothing ends any more. Once for each rank and member.
  virtual void absent(const Absence& absence) = 0;
  // An op cannot go on, since a slice of it came damaged each time: only another view can say what
  // becomes of it. Once for each op and epoch.
  virtual void condemned(const Failure& failure) = 0;
  // This rank of ours has joined, and lacks an op of the others: it is to submit that, with values
  // that change nothing; without a signature the op has failed. Once for each rank and op.
  virtual void stand_in(uint32_t rank, const OpKey& key,
                        const std::optional<Signature>& signature) = 0;
  // Every member stands at the join point, and one of them knows of ranks that want to come in.
  virtual void at_join_point() = 0;
};

}  // namespace gradring::core
