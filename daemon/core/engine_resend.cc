// Slices that came damaged: asked for again, and given up after the third attempt. Rule D9.

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"

namespace gradring::core {

// The slot is kept for it, so that the ring has neither more nor fewer free slots than if the slice
// were still on its way.
void JobEngine::on_slice_damaged(uint32_t slot) {
  if (planted(Bug::kDamagedIsTaken)) return on_slice_landed(slot);
  ++counters_.slices_damaged;
  const SliceBody& body = slots_[slot].body;
  if (!body.checked) return release_slot(slot);  // its epoch is over
  received_.await(body.serial, {slot, static_cast<uint8_t>(body.attempt + 1)});
  Frame f = frame(FrameType::kNack, slots_[slot].key);
  f.nack = {body.slice, body.phase, body.lane, body.hop, body.attempt, body.serial};
  actions_->send(predecessor(), f);
}

std::optional<uint32_t> JobEngine::on_slice_again(uint32_t from, const Frame& f) {
  const ReceivedSlices::Awaited awaited = *received_.awaited(f.slice.serial);
  if (f.slice.attempt < awaited.attempt) {
    ++counters_.frames_repeated;
    return std::nullopt;
  }
  Slot& slot = slots_[awaited.slot];
  SliceBody same = slot.body;
  same.attempt = f.slice.attempt;
  if (slot.key != f.key || same != f.slice) {
    protocol_fault(from, "slice " + std::to_string(f.slice.slice) + " of " + describe(f.key) +
                             " came in place of another that was asked for again");
    return std::nullopt;
  }
  received_.arrives(f.slice.serial);
  slot.body = f.slice;
  ++counters_.slices_received;
  counters_.payload_bytes_received += f.slice.length;
  return awaited.slot;
}

void JobEngine::on_nack(uint32_t from, const Frame& f) {
  if (from != successor() || members() == 1) {
    return protocol_fault(from, "NACK from a node that is not the successor");
  }
  const std::optional<Staging> at = sent_.damaged(f.nack);
  if (!at) {
    ++counters_.frames_repeated;
    return;
  }
  if (f.nack.attempt >= kAttempts) return condemn(sent_.frame_of(*at), f.nack.lane);
  send_again(*at);
}

void JobEngine::send_again(Staging from) {
  const std::optional<Frame> f = sent_.again(from);
  if (!f) return;  // on_sent() comes back here
  ++counters_.slices_resent;
  actions_->send_slice(successor(), *f, from);
}

// FAILED is not told here: a view must say so to all members at once, unless one of them has
// completed the op (rule V9).
void JobEngine::condemn(const Frame& f, uint8_t lane) {
  if (condemned_.count(f.key) > 0) return;
  const auto it = ops_.find(f.key);
  const std::string& to = view_.members[successor()].node;
  Failure failure{Cause::kCorrupted, {}};
  failure.blame.node = view_.members[me_].node;
  failure.blame.evidence = "slice " + std::to_string(f.slice.slice) + " of " +
                           (it == ops_.end() ? describe(f.key) : title(*it->second)) +
                           " came damaged " + std::to_string(kAttempts) +
                           " times on its way to node " + to + ", lane " + std::to_string(lane) +
                           "; check the network card, the cable and the memory of both nodes";
  condemned_[f.key] = {failure, to};
  if (planted(Bug::kCondemnedAlone) && it != ops_.end() && it->second->open()) {
    return fail_op(*it->second, failure);
  }
  actions_->condemned(failure);
}

void JobEngine::release(Staging staging) {
  if (staging.kind == Staging::Kind::kSlot) return release_slot(staging.index);
  free_starts_.push_back(staging.index);
}

// The epoch is over, or the job: nothing is confirmed or asked for any more.
void JobEngine::end_sending() {
  sent_.clear([this](Staging at) {
    if (!planted(Bug::kFreedBeforeConfirmed)) release(at);
  });
  received_.clear([this](uint32_t slot) { release_slot(slot); });
  for (Slot& slot : slots_) slot.body = {};
}

}  // namespace gradring::core
