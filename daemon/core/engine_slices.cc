// The way of a slice: arrive in a slot, be folded, be handed out, go on. Rules D2 to D6.

#include <algorithm>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"
#include "proto/check.h"

namespace gradring::core {
namespace {

bool fits(const Step& step, const SliceBody& body) {
  return step.receive && step.receive_phase == body.phase && step.receive_hop == body.hop;
}

}  // namespace

// Rule D8: what is of another epoch, or comes after the report, changes nothing here.
bool JobEngine::stale(const Frame& f) {
  bool stale = failure_ || f.epoch != view_.epoch || frozen_;
  if (planted(Bug::kDataAfterReport)) stale = failure_ || f.epoch != view_.epoch;
  if (planted(Bug::kOldEpochData)) stale = failure_ || f.epoch > view_.epoch || frozen_;
  if (planted(Bug::kFailedAfterReport) && f.type == FrameType::kMismatch) {
    stale = failure_ || f.epoch != view_.epoch;
  }
  if (stale) ++counters_.frames_stale;
  return stale;
}

void JobEngine::on_frame(uint32_t from, const Frame& f, Time now) {
  now_ = now;
  if (stale(f)) return;
  heard_[from] = true;
  switch (f.type) {
    case FrameType::kReady:
      if (is_direct(f)) break;  // comes by on_parcel
      if (f.ready.eager && !eager_begins(from, f)) return;
      return on_ready(from, f, std::nullopt);
    case FrameType::kCredit:
      return on_credit(from, f);
    case FrameType::kStable:
      return on_stable(from, f);
    case FrameType::kMismatch:
      return on_mismatch(from, f);
    case FrameType::kNack:
      return on_nack(from, f);
    case FrameType::kDigest:
      return on_digest(from, f);
    case FrameType::kDone:
      return on_done(from, f.done);
    case FrameType::kAllReady:
      return on_all_ready(from, f);
    case FrameType::kWanted:
      return on_wanted(from, f);
    case FrameType::kSlice:      // comes by on_slice
    case FrameType::kHeartbeat:  // is the failure detector's
    case FrameType::kProbe:      // is of no job
      break;
  }
  ++counters_.frames_stale;
}

void JobEngine::on_credit(uint32_t from, const Frame& f) {
  if (from != successor() || members() == 1) {
    return protocol_fault(from, "CREDIT from a node that is not the successor");
  }
  if (!credits_.on_freed_total(f.credit.freed_total)) {
    return protocol_fault(from, "CREDIT for more slots than it has");
  }
  const bool sent = sent_.confirm(f.credit.confirmed_total, [this](Staging at) {
    if (!planted(Bug::kFreedBeforeConfirmed)) release(at);
  });
  if (!sent) protocol_fault(from, "CREDIT for slices that were never sent");
}

std::span<const Step> JobEngine::steps_of(const Op& op, uint32_t slice) const {
  switch (op.slices[slice].route) {
    case Route::kCompute:
      return op.plan.steps_of(slice);
    case Route::kHand:
      return op.plan.steps_from(op.slices[slice].holder);
    case Route::kDirect:
    case Route::kNone:
      break;
  }
  return {};
}

std::optional<uint32_t> JobEngine::on_slice(uint32_t from, const Frame& f) {
  const auto refuse = [&](const std::string& what) {
    protocol_fault(
        from, "slice " + std::to_string(f.slice.slice) + " of " + describe(f.key) + " " + what);
    return std::nullopt;
  };
  if (stale(f)) return std::nullopt;
  heard_[from] = true;
  if (from != predecessor() || members() == 1)
    return refuse("came from a node that is not the predecessor");
  if (f.slice.checked) {
    if (received_.has(f.slice.serial)) {
      ++counters_.frames_repeated;
      return std::nullopt;
    }
    if (received_.beyond(f.slice.serial)) return refuse("is numbered far ahead of all others");
    if (received_.awaited(f.slice.serial) != nullptr) return on_slice_again(from, f);
  }
  const auto it = ops_.find(f.key);
  if (it == ops_.end() && ended_keys_.contains(f.key)) {
    ++counters_.frames_repeated;
    return std::nullopt;
  }
  const bool planned = it != ops_.end() && it->second->plan.slices > 0;
  if (!planned) return refuse("came before this node was ready for it");
  Op& op = *it->second;
  if (f.slice.slice >= op.plan.slices) {
    return refuse("is outside the op's " + std::to_string(op.plan.slices) + " slices");
  }
  SliceProgress& progress = op.slices[f.slice.slice];
  if (progress.route == Route::kCompute && op.open() && !op.ready_here())
    return refuse("came before this node was ready for it");
  if (f.slice.length != op.plan.packed_length_of(f.slice.slice)) {
    return refuse("has " + std::to_string(f.slice.length) + " bytes instead of " +
                  std::to_string(op.plan.packed_length_of(f.slice.slice)));
  }
  const std::span<const Step> steps = steps_of(op, f.slice.slice);
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
  const uint32_t expected = ranks_expected(op, f.slice);
  if (expected != 0 && f.slice.ranks != expected) {
    return refuse("claims " + std::to_string(f.slice.ranks) + " contributions instead of " +
                  std::to_string(expected));
  }
  const std::optional<uint32_t> slot = receive_slots_.take();
  if (!slot) return refuse("came without a free slot");
  progress.arriving = true;
  slots_[*slot] = {&op, f.slice.slice, {f.slice.value_epoch, f.slice.ranks}, {}, f.key, f.slice};
  ++counters_.slices_received;
  counters_.payload_bytes_received += f.slice.length;
  return slot;
}

// Contributions in a value that has travelled so far, as far as it can be known; else 0.
uint32_t JobEngine::ranks_expected(const Op& op, const SliceBody& body) const {
  const SliceProgress& progress = op.slices[body.slice];
  if (progress.route == Route::kHand) return progress.value.ranks;
  if (op.plan.way == Way::kSpread || op.plan.way == Way::kCarry) return 1;
  if (body.phase == Phase::kFinal || !op.all_ready()) return op.contributed_all;
  // In a large view nobody knows of whom the contributions are, unless they are all of its ranks.
  if (tree_ && op.contributed_all != view_.size) return 0;
  const std::vector<uint32_t>& before = tree_ ? ranks_before_ : op.contributed_before;
  const uint32_t start = op.plan.start_of(body.slice);
  const uint32_t end = start + body.hop;  // one past the last contributor, perhaps round the ring
  if (end <= members()) return before[end] - before[start];
  return before.back() - before[start] + before[end - members()];
}

// A slot whose epoch ended while it was being filled holds nothing.
void JobEngine::on_slice_landed(uint32_t slot) {
  if (slots_[slot].body.checked) received_.accept(slots_[slot].body.serial);
  if (slots_[slot].op == nullptr) return release_slot(slot);
  landed_.push_back(slot);
}

void JobEngine::on_slice_aborted(uint32_t slot) { release_slot(slot); }

void JobEngine::on_sent(Staging from) {
  if (from.kind == Staging::Kind::kUnit) return units_.release(from.index);
  if (planted(Bug::kDroppedAtSuccessorsAck) && from.kind == Staging::Kind::kSlot) {
    const Frame& sent = slots_[from.index].outgoing;
    const auto it = ops_.find(sent.key);
    if (it != ops_.end() && sent.epoch == view_.epoch && sent.slice.phase == Phase::kFinal) {
      set_dropped(*it->second, sent.slice.slice);
    }
  }
  switch (sent_.on_sent(from)) {
    case SentSlices::Next::kFree:
      return release(from);
    case SentSlices::Next::kAgain:
      return send_again(from);
    case SentSlices::Next::kWait:
      if (planted(Bug::kFreedBeforeConfirmed)) release(from);
      return;
  }
}

void JobEngine::release_slot(uint32_t slot) {
  slots_[slot].op = nullptr;
  receive_slots_.give_back(slot);
}

uint32_t JobEngine::pump(uint32_t budget) {
  constexpr uint32_t kStableBatch = 16;  // one frame for so many slices, unless nothing else is due
  uint32_t done = 0;
  if (frozen_ && !planted(Bug::kDataAfterReport)) return 0;
  // What is nearest its end goes first: it frees slots for what is behind it.
  while (done < budget && !failure_ &&
         (work_forward() || work_landed() || work_parcel() || work_sum() || work_hand() ||
          work_start())) {
    ++done;
  }
  check_alone();
  if (planted(Bug::kSlotsPerGrant)) {  // a grant may be free again
    std::vector<OpKey> keys;
    for (const auto& [key, op] : ops_) keys.push_back(key);
    for (const OpKey& key : keys) {
      const auto it = ops_.find(key);
      if (it == ops_.end() || !it->second->open() || !it->second->signature) continue;
      Op& op = *it->second;
      if (all_local(op) && locals_here(op) > 0 && !op.ready_here()) say_ready(op);
    }
  }
  if (done < budget || stable_.size() >= kStableBatch) tell_stable();
  tell_credits();
  tell_done(all_left() || !waiting_.empty());
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
  const auto next = std::find_if(landed_.begin(), landed_.end(), [this](uint32_t index) {
    const Slot& slot = slots_[index];
    if (slot.op == nullptr) return true;
    const uint8_t step = slot.op->slices[slot.slice].next_step;
    return can_fold(*slot.op, slot.slice, steps_of(*slot.op, slot.slice)[step]);
  });
  if (next == landed_.end()) return false;
  const uint32_t index = *next;
  landed_.erase(next);
  Slot& slot = slots_[index];
  if (slot.op == nullptr) {
    release_slot(index);
    return true;
  }
  Op& op = *slot.op;
  const OpKey key = op.key;  // outlives it
  const uint32_t slice = slot.slice;
  const Step& step = steps_of(op, slice)[op.slices[slice].next_step];
  slot.value = take_step(op, slice, step, slot.value, {Staging::Kind::kSlot, index});
  slot.op = nullptr;
  if (step.send) {
    // D5: a final value goes on only after it was delivered here, which take_step has done.
    slot.outgoing = slice_frame(op, slice, step, slot.value);
    forward_.push_back(index);
  } else {
    release_slot(index);
    if (step.last) say_stable(op, slice);
  }
  complete_if_final(op);
  forget_if_dropped(key);  // completed long ago, and the last to be handed what others lacked
  return true;
}

// A final that we hold and others lack, after a view change.
bool JobEngine::work_hand() {
  constexpr uint32_t kCreditsToStart = 2;
  const auto due = [this](const Op& op) {
    const SliceProgress& progress = op.slices[op.next_hand];
    return progress.route == Route::kHand && progress.holder == me_ && progress.next_step == 0;
  };
  while (!handing_.empty()) {
    Op& op = *handing_.front();
    while (op.next_hand < op.plan.slices && !due(op)) ++op.next_hand;
    if (op.next_hand < op.plan.slices) break;
    handing_.pop_front();
  }
  if (handing_.empty() || free_starts_.empty()) return false;
  if (credits_.free_to_start() < kCreditsToStart) return false;
  Op& op = *handing_.front();
  const uint32_t slice = op.next_hand++;
  const Staging at{Staging::Kind::kStart, free_starts_.back()};
  free_starts_.pop_back();
  SliceProgress& progress = op.slices[slice];
  const Step& step = op.plan.steps_from(me_)[0];
  ++progress.next_step;
  actions_->fetch(op, slice, at);
  ++counters_.slices_handed;
  send_slice(slice_frame(op, slice, step, progress.value), at);
  return true;
}

// D2: a new slice is started only with two free slots at the successor, so that a ring full of
// slices always has one into which the first waiting slice can move.
bool JobEngine::work_start() {
  const uint32_t credits_to_start = planted(Bug::kStartWithOneSlot) ? 1 : 2;
  if (starting_.empty() || free_starts_.empty()) return false;
  if (members() > 1 && credits_.free_to_start() < credits_to_start) return false;
  Op* const next = next_to_start();
  if (next == nullptr) return false;
  Op& op = *next;
  const uint32_t buffer = free_starts_.back();
  free_starts_.pop_back();
  const uint32_t slice = op.next_start;
  op.next_start = op.plan.next_start(slice + 1);
  start_slice(op, slice, buffer);
  complete_if_final(op);
  return true;
}

void JobEngine::start_slice(Op& op, uint32_t slice, uint32_t buffer) {
  const Step& step = steps_of(op, slice)[0];
  GRADRING_CHECK(!step.receive && op.slices[slice].next_step == 0, "a slice starts once");
  const Staging at{Staging::Kind::kStart, buffer};
  const ValueId value = take_step(op, slice, step, {}, at);
  if (step.send) {
    send_slice(slice_frame(op, slice, step, value), at);
  } else {
    on_sent(at);
    say_stable(op, slice);  // nobody else wants it
  }
}

ValueId JobEngine::take_step(Op& op, uint32_t slice, const Step& step, ValueId value, Staging at) {
  SliceProgress& progress = op.slices[slice];
  // Whoever has it already passes it on without writing.
  const bool delivers = step.deliver && progress.state == SliceState::kUntouched;
  // A copy that may be interrupted, and finished in the next life, needs the whole value first.
  const bool in_one_pass =
      delivers && step.fold != Fold::kNone && journal_ == EngineJournal::none();
  if (step.fold == Fold::kLocals) value.ranks += op.contributed;
  if (step.fold == Fold::kSource) value.ranks = 1;
  if (step.fold != Fold::kNone) {
    // D3: from untouched inputs only.
    GRADRING_CHECK(progress.state == SliceState::kUntouched || planted(Bug::kDataAfterReport) ||
                       planted(Bug::kOldEpochData) || planted(Bug::kHeldIgnored),
                   "inputs are folded before they are overwritten");
    const bool divide = step.finish && op.signature->op == ReduceOp::kAverage;
    const double factor = step.finish ? op.signature->postscale : 1;
    actions_->fold({&op, slice, step.fold, step.receive, divide ? value.ranks : 0, factor, at,
                    in_one_pass, step.send, op.eager.looked_at});
  }
  if (step.finish) value.epoch = view_.epoch;
  if (delivers) {
    journal_->held(op, slice, value, at);
    progress.value = value;
    if (!in_one_pass) actions_->deliver(op, slice, at);
    progress.state = SliceState::kHeld;
    ++op.slices_held;
  }
  progress.arriving = false;
  ++progress.next_step;
  return value;
}

Frame JobEngine::slice_frame(const Op& op, uint32_t slice, const Step& step, ValueId value) const {
  Frame f = frame(FrameType::kSlice, op.key);
  f.slice.slice = slice;
  f.slice.phase = step.send_phase;
  f.slice.hop = step.send_hop;
  f.slice.ranks = value.ranks;
  f.slice.length = op.plan.packed_length_of(slice);
  // Small ops take turns as well.
  f.slice.lane = static_cast<uint8_t>(op.key.sequence + op.plan.turn_of(slice));
  f.slice.value_epoch = step.send_phase == Phase::kFinal ? value.epoch : 0;
  return f;
}

void JobEngine::send_slice(Frame f, Staging from) {
  credits_.take();
  f.slice.checked = options_.checksum;
  sent_.add(&f, from);
  ++counters_.slices_sent;
  counters_.payload_bytes_sent += f.slice.length;
  actions_->send_slice(successor(), f, from);
}

void JobEngine::tell_credits() {
  if (failure_ || members() == 1) return;
  if (receive_slots_.freed_total() == credits_told_ && received_.confirmed() == confirmed_told_) {
    return;
  }
  credits_told_ = receive_slots_.freed_total();
  confirmed_told_ = received_.confirmed();
  Frame f = frame(FrameType::kCredit, {});
  f.credit.freed_total = credits_told_;
  f.credit.confirmed_total = confirmed_told_;
  actions_->send(predecessor(), f);
}

}  // namespace gradring::core
