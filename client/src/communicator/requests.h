#pragma once

#include <gradring/gradring.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "client/src/communicator/view.h"
#include "client/src/memory/segments.h"
#include "proto/types.h"
#include "proto/verdict.h"

namespace gradring::client {

// How a request ended.
struct Outcome {
  Verdict verdict = Verdict::kNone;  // kNone: it has not ended yet
  Failure failure;
  uint64_t epoch = 0;
  uint32_t ranks_min = 0;
  uint32_t ranks_max = 0;
  uint32_t size = 0;    // ranks of the view in which it ended
  std::string message;  // the failure as one sentence

  bool ended() const { return verdict != Verdict::kNone; }
  bool good() const { return verdict == Verdict::kOk || verdict == Verdict::kOkShrunk; }
};

Outcome failed(Failure failure, std::string message);

// Writes as much of the result as the caller's structure has room for; a null result is allowed.
void write_result(const Outcome& outcome, gradring_result* result);

// Whether a result is brought from where the daemon left it to its place. Those who bring it, or
// wait for whoever does, keep that too: another thread may take the request meanwhile.
struct Bringing {
  // It begins when somebody is about to put it on a stream, or copies it here; it is done when a
  // stream brings it, or it is there.
  enum class State : uint8_t { kNotYet, kBegins, kDone };
  State state = State::kNotYet;
  uint32_t awaited_by = 0;  // threads, while it begins
};

// One submission, from submit until wait has told its end. There are as many as the user submitted
// and has not waited for.
struct Request {
  Signature signature;
  OpKey key;
  std::optional<OpKey> given_key;  // instead of the next one of its name
  std::string name;
  uint32_t position = 0;  // ours among the ranks of an op that needs all of them
  Extent extent;
  Loan input;  // none where nothing is read, or written
  Loan output;
  int32_t priority = 0;
  uint64_t step = 0;  // of the NeedOrder that waits for its being asked for; 0: none does
  double prescale = 1;
  // Of buffers on a GPU whose streams are in an order with the daemon's work: it counts when
  // `reached` has come, and `ended` is set when it has ended.
  HeldWord reached;
  HeldWord ended;
  uint64_t part_bytes = 0;             // in which they tell of the buffers
  bool stays = false;                  // on GPUs from end to end, if they have a part in it at all
  bool on_gpu = false;                 // the daemon's GPUs have a part in it
  std::shared_ptr<Bringing> bringing;  // none: no stream has been asked to wait for it
  Outcome outcome;

  bool left_to_others() const {  // to bring the result
    return bringing != nullptr && bringing->state != Bringing::State::kNotYet;
  }
  bool is_join_point() const { return signature.collective == Collective::kJoinPoint; }
  // Whether the daemon's GPUs can have a part in it, if they reach its memory; and which then.
  bool suits_gpus() const;
  bool gives_to_gpus() const { return stays || signature.collective != Collective::kAllgather; }
  bool takes_from_gpus() const {
    return stays || signature.collective != Collective::kReduceScatter;
  }
  // The daemon has no other place on the host for a sum of such inputs than that of one.
  bool is_summed_in_place() const {
    return suits_gpus() && !stays && signature.collective == Collective::kReduceScatter;
  }
  // How its result passes.
  Passage result() const { return {extent.output, part_bytes, on_gpu && takes_from_gpus(), false}; }
  bool is_join() const { return given_key && given_key->space == OpKey::kNoMoreSpace; }
};

// Whether no byte of it needs to come to the host's memory: no other node is there, and none comes
// while it is under way; or the network reaches GPUs (`direct`).
bool may_stay(const Request& request, const View& view, bool direct);

// "allreduce sum of 1024 float32 (op 3)"
std::string describe(const Request& request);

// By ticket, which is the public request number as well; in the order of submission.
using Requests = std::map<uint64_t, Request>;

}  // namespace gradring::client
