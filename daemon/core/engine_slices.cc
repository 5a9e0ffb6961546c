// The way of a slice: arrive in a slot, be folded, be handed out, go on. Rules D2 to D6.

#include <algorithm>

#include "daemon/core/job_engine.h"
#include "proto/check.h"

namespace gradring::core {
namespace {

bool fits(const Step& step, const SliceBody& body) {
  return step.receive && step.receive_phase == body.phase && step.receive_hop == body.hop;
}

}  // namespace

void JobEngine::on_frame(uint32_t from, const Frame& f, Time) {
  if (failure_ || f.epoch != view_.epoch) {
    ++counters_.frames_stale;
    return;
  }
  switch (f.type) {
    case FrameType::kReady:
      return on_ready(from, f);
    case FrameType::kCredit:
      return on_credit(from, f);
    case FrameType::kMismatch:
      if (f.mismatch.rank_a >= view_.size || f.mismatch.rank_b >= view_.size) {
        return protocol_fault(from, "MISMATCH between ranks outside the job");
      }
      return on_mismatch(f);
    case FrameType::kStable:     // have their place in the frame; nobody of this
    case FrameType::kNack:       // protocol version sends them
    case FrameType::kSlice:      // comes by on_slice
    case FrameType::kHeartbeat:  // is the failure detector's
      ++counters_.frames_stale;
      return;
  }
}

void JobEngine::on_credit(uint32_t from, const Frame& f) {
  if (from != successor() || members() == 1) {
    return protocol_fault(from, "CREDIT from a node that is not the successor");
  }
  if (!credits_.on_freed_total(f.credit.freed_total)) {
    protocol_fault(from, "CREDIT for more slots than slices were sent");
  }
}

std::optional<uint32_t> JobEngine::on_slice(uint32_t from, const Frame& f) {
  const auto refuse = [&](const std::string& what) {
    protocol_fault(
        from, "slice " + std::to_string(f.slice.slice) + " of " + describe(f.key) + " " + what);
    return std::nullopt;
  };
  if (failure_ || f.epoch != view_.epoch) {
    ++counters_.frames_stale;
    return std::nullopt;
  }
  if (from != predecessor() || members() == 1)
    return refuse("came from a node that is not the predecessor");
  if (ended_keys_.contains(f.key)) {
    ++counters_.frames_repeated;
    return std::nullopt;
  }
  const auto it = ops_.find(f.key);
  if (it == ops_.end() || !it->second->ready[me_])
    return refuse("came before this node was ready for it");
  Op& op = *it->second;
  if (f.slice.slice >= op.plan.slices) {
    return refuse("is outside the op's " + std::to_string(op.plan.slices) + " slices");
  }
  if (f.slice.length != op.plan.length_of(f.slice.slice)) {
    return refuse("has " + std::to_string(f.slice.length) + " bytes instead of " +
                  std::to_string(op.plan.length_of(f.slice.slice)));
  }
  SliceProgress& progress = op.slices[f.slice.slice];
  const std::span<const Step> steps = op.plan.steps_of(f.slice.slice);
  const auto seen_until =
      steps.begin() +
      std::min<size_t>(steps.size(), progress.next_step + (progress.arriving ? 1 : 0));
  if (std::any_of(steps.begin(), seen_until,
                  [&](const Step& step) { return fits(step, f.slice); })) {
    ++counters_.frames_repeated;
    return std::nullopt;
  }
  if (seen_until == steps.end() || progress.arriving || !fits(*seen_until, f.slice)) {
    return refuse("came out of turn");
  }
  if (f.slice.ranks != ranks_expected(op, f.slice)) {
    return refuse("claims " + std::to_string(f.slice.ranks) + " contributions instead of " +
                  std::to_string(ranks_expected(op, f.slice)));
  }
  const std::optional<uint32_t> slot = receive_slots_.take();
  if (!slot) return refuse("came without a free slot");
  progress.arriving = true;
  slots_[*slot] = {&op, f.slice.slice, f.slice.ranks, {}};
  ++counters_.slices_received;
  counters_.payload_bytes_received += f.slice.length;
  return slot;
}

// Contributions in a value that has travelled so far: known exactly, as long as a view does not
// shrink.
uint32_t JobEngine::ranks_expected(const Op& op, const SliceBody& body) const {
  if (op.signature->collective == Collective::kBroadcast) return 1;
  if (body.phase == Phase::kFinal) return view_.size;
  const uint32_t start = op.plan.start_of(body.slice);
  const uint32_t end = start + body.hop;  // one past the last contributor, perhaps round the ring
  if (end <= members()) return ranks_before_[end] - ranks_before_[start];
  return view_.size - ranks_before_[start] + ranks_before_[end - members()];
}

void JobEngine::on_slice_landed(uint32_t slot) {
  if (failure_) return release_slot(slot);
  landed_.push_back(slot);
}

void JobEngine::on_slice_aborted(uint32_t slot) { release_slot(slot); }

void JobEngine::on_sent(Staging from) {
  if (from.kind == Staging::Kind::kSlot) {
    release_slot(from.index);
  } else {
    free_starts_.push_back(from.index);
  }
}

void JobEngine::release_slot(uint32_t slot) {
  slots_[slot].op = nullptr;
  receive_slots_.give_back(slot);
}

uint32_t JobEngine::pump(uint32_t budget) {
  uint32_t done = 0;
  // What is nearest its end goes first: it frees slots for what is behind it.
  while (done < budget && !failure_ && (work_forward() || work_landed() || work_start())) ++done;
  tell_credits();
  return done;
}

bool JobEngine::work_forward() {
  if (forward_.empty() || credits_.free() == 0) return false;
  const uint32_t slot = forward_.front();
  forward_.pop_front();
  send_slice(slots_[slot].outgoing, {Staging::Kind::kSlot, slot});
  return true;
}

bool JobEngine::work_landed() {
  if (landed_.empty()) return false;
  const uint32_t index = landed_.front();
  landed_.pop_front();
  Slot& slot = slots_[index];
  Op& op = *slot.op;
  SliceProgress& progress = op.slices[slot.slice];
  const Step& step = op.plan.steps_of(slot.slice)[progress.next_step];
  slot.ranks = take_step(op, slot.slice, step, slot.ranks, {Staging::Kind::kSlot, index});
  if (step.send) {
    // D5: a final value goes on only after it was delivered here, which take_step has done.
    slot.outgoing = slice_frame(op, slot.slice, step, slot.ranks);
    forward_.push_back(index);
  } else {
    release_slot(index);
  }
  slot.op = nullptr;
  complete_if_final(op);
  return true;
}

// D2: a new slice is started only with two free slots at the successor, so that a ring full of
// slices always has one into which the first waiting slice can move.
bool JobEngine::work_start() {
  constexpr uint32_t kCreditsToStart = 2;
  while (!starting_.empty() && starting_.front()->next_start >= starting_.front()->plan.slices) {
    starting_.pop_front();
  }
  if (starting_.empty() || free_starts_.empty()) return false;
  if (members() > 1 && credits_.free() < kCreditsToStart) return false;
  Op& op = *starting_.front();
  const uint32_t buffer = free_starts_.back();
  free_starts_.pop_back();
  const uint32_t slice = op.next_start;
  op.next_start += op.plan.rotate ? members() : 1;
  start_slice(op, slice, buffer);
  complete_if_final(op);
  return true;
}

void JobEngine::start_slice(Op& op, uint32_t slice, uint32_t buffer) {
  const Step& step = op.plan.steps_of(slice)[0];
  GRADRING_CHECK(!step.receive && op.slices[slice].next_step == 0, "a slice starts once");
  const Staging at{Staging::Kind::kStart, buffer};
  const uint32_t ranks = take_step(op, slice, step, 0, at);
  if (step.send) {
    send_slice(slice_frame(op, slice, step, ranks), at);
  } else {
    on_sent(at);
  }
}

uint32_t JobEngine::take_step(Op& op, uint32_t slice, const Step& step, uint32_t ranks,
                              Staging at) {
  SliceProgress& progress = op.slices[slice];
  if (step.fold == Fold::kLocals) ranks += static_cast<uint32_t>(op.locals.size());
  if (step.fold == Fold::kRoot) ranks = 1;
  if (step.fold != Fold::kNone) {
    // D3: from untouched inputs only.
    GRADRING_CHECK(progress.state == SliceState::kUntouched,
                   "inputs are folded before they are overwritten");
    const bool divide = step.finish && op.signature->op == ReduceOp::kAverage;
    actions_->fold({&op, slice, step.fold, step.receive, divide ? ranks : 0, at});
  }
  if (step.deliver) {
    actions_->deliver(op, slice, at);
    progress.state = SliceState::kHeld;
    ++op.slices_held;
  }
  progress.arriving = false;
  ++progress.next_step;
  return ranks;
}

Frame JobEngine::slice_frame(const Op& op, uint32_t slice, const Step& step, uint32_t ranks) const {
  Frame f = frame(FrameType::kSlice, op.key);
  f.slice.slice = slice;
  f.slice.phase = step.send_phase;
  f.slice.hop = step.send_hop;
  f.slice.ranks = ranks;
  f.slice.length = op.plan.length_of(slice);
  f.slice.value_epoch = step.send_phase == Phase::kFinal ? view_.epoch : 0;
  return f;
}

void JobEngine::send_slice(const Frame& f, Staging from) {
  credits_.take();
  ++counters_.slices_sent;
  counters_.payload_bytes_sent += f.slice.length;
  actions_->send_slice(successor(), f, from);
}

void JobEngine::tell_credits() {
  if (failure_ || members() == 1 || receive_slots_.freed_total() == credits_told_) return;
  credits_told_ = receive_slots_.freed_total();
  Frame f = frame(FrameType::kCredit, {});
  f.credit.freed_total = credits_told_;
  actions_->send(predecessor(), f);
}

// D6: every slice is final here, and each one that must go on lies in a slot of ours until it has
// gone.
void JobEngine::complete_if_final(Op& op) {
  if (op.slices_held != op.plan.slices || !op.ready[me_]) return;
  if (op.plan.slices == 0 && !op.all_ready()) return;
  Outcome outcome;
  outcome.verdict = Verdict::kOk;
  outcome.epoch = view_.epoch;
  outcome.ranks_min = outcome.ranks_max =
      op.signature->collective == Collective::kBroadcast ? 1 : view_.size;
  tell_locals(op, outcome);
  ++counters_.ops_completed;
  forget(op);
}

}  // namespace gradring::core
