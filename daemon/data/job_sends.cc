// What the engine sends: at once, or when GPUs have made it.

#include <span>

#include "daemon/clock.h"
#include "daemon/data/job_executor.h"
#include "daemon/data/seal.h"

namespace gradring::daemon {

void JobExecutor::send(uint32_t member, const Frame& frame) {
  if (!peer_of_[member]) return;
  flight_->frame_sent(member, frame);
  const DataPeer& peer = shared_->peers.at(*peer_of_[member]);
  Frame stamped = frame;
  stamped.token = peer.token_to_send;
  // If there is no connection, that is being told to the control thread, and ends the epoch.
  const std::optional<uint8_t> lane = peer.lane_for(0);
  if (lane) shared_->outbox.send(*lane, *peer_of_[member], sealed(stamped), {}, 0);
}

void JobExecutor::send_slice(uint32_t member, const Frame& frame, core::Staging from) {
  const bool on_gpu = gpu_ring_ != nullptr && gpu_ring_->has(from);
  if (from.kind == core::Staging::Kind::kSlot && frame.slice.phase == Phase::kFinal) {
    const SlotBuffers::Value value{frame.key, frame.slice.slice, frame.slice.value_epoch};
    on_gpu ? gpu_ring_->holds(from.index, value) : staging_.slots().holds(from.index, value);
  }
  if (on_gpu && gpu_ring_->waits({member, frame, from})) {
    ++loans_;
    return;
  }
  send_now(member, frame, from);
}

// From a GPU by a card that is near to it.
std::optional<uint8_t> JobExecutor::lane_to(const DataPeer& peer, uint32_t turn,
                                            core::Staging from) const {
  const auto gpu = gpu_ring_ == nullptr ? std::nullopt : gpu_ring_->gpu_of(from);
  if (!gpu || *gpu >= shared_->lanes_near_gpu.size()) return peer.lane_for(turn);
  const auto near = peer.lane_for(turn, shared_->lanes_near_gpu[*gpu]);
  return near ? near : peer.lane_for(turn);
}

// What GPUs have finished.
void JobExecutor::send_ready() {
  for (const GpuRing::Parcel& parcel : gpu_ring_->take_ready()) {
    --loans_;
    // Nobody knows what lies there, or whoever was to get it may have another place in the view.
    if (gpu_ring_->failed() || parcel.frame.epoch != engine_.view().epoch) {
      done_with_.push_back(parcel.from);
    } else {
      send_now(parcel.member, parcel.frame, parcel.from);
    }
  }
}

void JobExecutor::send_now(uint32_t member, const Frame& frame, core::Staging from) {
  const bool forwarded = from.kind == core::Staging::Kind::kSlot;
  DataPeer* const peer = peer_of_[member] ? &shared_->peers.at(*peer_of_[member]) : nullptr;
  // A damaged one comes by another lane.
  const uint32_t turn = frame.slice.lane + frame.slice.attempt;
  const auto lane = peer == nullptr ? std::nullopt : lane_to(*peer, turn, from);
  if (!lane) {
    done_with_.push_back(from);
    return;
  }
  Frame stamped = frame;
  stamped.slice.lane = *lane;
  if (frame.slice.checked) {
    // A final value from a node that makes no checksums has none yet.
    std::optional<uint32_t>& known = checksums_.of(from);
    if (!known) known = checksum_of(from, frame.slice.length);
    stamped.slice.crc32c = *known;
    if (frame.slice.attempt > 1) flight_->slice_resent(stamped);
  }
  if (lend(*lane, *peer_of_[member], stamped, from) && forwarded) flight_->slice_forwarded(stamped);
}

void JobExecutor::send_direct(uint32_t member, const Frame& frame, core::Staging from) {
  DataPeer* const peer = peer_of_[member] ? &shared_->peers.at(*peer_of_[member]) : nullptr;
  const bool ready = frame.type == FrameType::kReady;
  const auto turn = ready ? static_cast<uint32_t>(frame.ready.serial) : frame.slice.lane;
  const auto lane = peer == nullptr ? std::nullopt : peer->lane_for(turn);
  if (!lane) {
    done_with_.push_back(from);
    return;
  }
  flight_->frame_sent(member, frame);
  Frame stamped = frame;
  if (!ready) stamped.slice.lane = *lane;
  lend(*lane, *peer_of_[member], stamped, from);
}

// False when there is no connection.
bool JobExecutor::lend(uint8_t lane, PeerId to, const Frame& frame, core::Staging from) {
  DataPeer& peer = shared_->peers.at(to);
  Frame stamped = frame;
  stamped.token = peer.token_to_send;
  const auto bytes = static_cast<uint32_t>(payload_of(frame));
  const std::byte* const there =
      gpu_ring_ == nullptr ? nullptr : gpu_ring_->payload_at(from, bytes);
  const std::span<const std::byte> payload(there == nullptr ? memory_at(from) : there, bytes);
  const bool timed = shared_->time_sends && payload.size() > Outbox::kGatheredPayloadMax;
  const core::Time since = timed ? monotonic_now() : 0;
  const uint64_t loan = shared_->ledger.lend({this, from, to, lane, since});
  const Outbox::Sent sent = shared_->outbox.send(lane, to, sealed(stamped), payload, loan);
  if (sent == Outbox::Sent::kLent) {
    ++loans_;
  } else {
    shared_->ledger.take_back(loan);
    done_with_.push_back(from);
  }
  if (sent == Outbox::Sent::kNowhere) return false;
  peer.lanes[lane].sent_bytes += payload.size();
  shared_->gradients_sent += payload.size();
  if (there != nullptr) shared_->gpus.count_sent(bytes);
  return true;
}

}  // namespace gradring::daemon
