// What comes from other daemons. Nothing here is believed before its token has been looked up.

#include <utility>

#include "daemon/clock.h"
#include "daemon/data/data_thread.h"
#include "daemon/data/seal.h"
#include "proto/bundle.h"

namespace gradring::daemon {

std::optional<PeerId> DataThread::sender_of(uint8_t lane, const Frame& frame) {
  const std::optional<PeerId> peer = shared_.peers.by_token(frame.token);
  if (!peer) {
    count_strange(frame.token);
    return std::nullopt;
  }
  hear(*peer, lane);
  return peer;
}

// After a connection has broken, frames of it are still on their way: nobody has forged them.
void DataThread::count_strange(uint64_t token) {
  ++(shared_.peers.was_expected(token) ? frames_stale_ : frames_forged_);
}

// A peer that has more lanes than we were told of, or fewer, is heard on those that both have.
void DataThread::hear(PeerId peer, uint8_t lane) {
  std::vector<DataLane>& lanes = shared_.peers.at(peer).lanes;
  if (lane < lanes.size()) lanes[lane].heard = true;
}

DataThread::Landing DataThread::on_header(uint8_t lane, std::span<const std::byte> header,
                                          size_t payload_bytes) {
  if (payload_bytes == 0) return {};  // on_message will have it
  if (!is_sound(header)) {
    lose_damaged(lane, header);
    return {};
  }
  if (is_bundle(header)) return on_bundle(lane, header, payload_bytes);
  const auto frame = decode(header, payload_bytes);
  if (!frame) {
    ++frames_malformed_;
    return {};
  }
  const std::optional<PeerId> from = sender_of(lane, *frame);
  if (!from) return {};
  if (frame->type == FrameType::kProbe) return prober_.on_payload(*from, *frame);
  DataPeer& peer = shared_.peers.at(*from);
  JobExecutor* job = find(frame->job);
  if (job == nullptr) {
    // These come only after this node has spoken in that epoch, so the job was here and is gone.
    ++frames_stale_;
    ++peer.dropped_frames;
    return {};
  }
  const auto landing = job->on_payload(*from, *frame);
  if (!landing) {
    ++peer.dropped_frames;
    return {};
  }
  if (lane < peer.lanes.size()) peer.lanes[lane].received_bytes += payload_bytes;
  shared_.gradients_received += payload_bytes;
  return {landing->to, landing->loan, landing->on_host};
}

void DataThread::on_landed_on_host(uint64_t cookie) {
  const Loan& loan = shared_.ledger.look_up(cookie);
  loan.job->on_landed_on_host(loan.at);
}

void DataThread::on_message(uint8_t lane, std::span<const std::byte> header, uint64_t cookie) {
  if (BundleMemory::is_number(cookie)) return take_apart(lane, header, cookie);
  if (Prober::is_number(cookie)) return prober_.on_landed(lane, cookie);
  if (cookie != 0) {
    const Loan loan = shared_.ledger.take_back(cookie);
    loan.job->on_landed(loan.at);
    return;
  }
  if (!is_sound(header)) return lose_damaged(lane, header);
  const auto frame = decode(header, 0);
  if (!frame || frame->type == FrameType::kSlice) {
    ++frames_malformed_;
    return;
  }
  const std::optional<PeerId> from = shared_.peers.by_token(frame->token);
  JobExecutor* const job = from ? find(frame->job) : nullptr;
  const bool of_no_job = frame->type == FrameType::kHeartbeat || frame->type == FrameType::kProbe;
  if (job != nullptr || (from && of_no_job)) {
    hear(*from, lane);
    return deliver_frame(*from, lane, job, *frame);
  }

  // The control thread posted ExpectPeer before it told the peer its token, and InstallJob before
  // it accepted the view; but a fast peer's first frames can overtake both on their way through our
  // mailbox. More than these are not credible, and strangers take no room from peers.
  constexpr size_t kEarlyFramesMax = 4096;
  auto& waiting = from ? early_ : strange_;
  if (waiting.size() < kEarlyFramesMax) {
    waiting.emplace_back(lane, *frame);
  } else {
    deliver_early_frame(lane, *frame);  // in vain, and counted
  }
}

// Nobody knows what it was, so it cannot be asked for again: as if its connection had broken. Whose
// token does not stand in it, of whom nobody knows.
void DataThread::lose_damaged(uint8_t lane, std::span<const std::byte> header) {
  ++frames_damaged_;
  const std::optional<PeerId> from = shared_.peers.by_token(token_in(header));
  if (!from) return;
  ++shared_.peers.at(*from).damaged;
  on_lost(lane, *from, "the header of a frame from it came damaged");
}

void DataThread::deliver_frame(PeerId from, uint8_t lane, JobExecutor* job, const Frame& frame) {
  if (frame.type == FrameType::kHeartbeat) return;
  if (frame.type == FrameType::kProbe) return prober_.on_frame(from, lane, frame, !jobs_.empty());
  if (job != nullptr && job->on_frame(from, frame, now_)) return;
  // The last CREDIT or STABLE of a job that ended well often comes after its end, and nobody needs
  // it.
  if (frame.type == FrameType::kCredit || frame.type == FrameType::kStable) return;
  ++frames_stale_;
  ++shared_.peers.at(from).dropped_frames;
}

void DataThread::deliver_early_frame(uint8_t lane, const Frame& frame) {
  const std::optional<PeerId> from = sender_of(lane, frame);
  if (from) deliver_frame(*from, lane, find(frame.job), frame);
}

int DataThread::deliver_early_frames() {
  int delivered = 0;
  for (auto* waiting : {&strange_, &early_}) {
    const auto frames = std::exchange(*waiting, {});
    for (const auto& [lane, frame] : frames) deliver_early_frame(lane, frame);
    delivered += static_cast<int>(frames.size());
  }
  return delivered;
}

void DataThread::on_aborted(uint64_t cookie) {
  if (Prober::is_number(cookie)) return prober_.on_aborted();
  if (BundleMemory::is_number(cookie)) return bundles_.give_back(cookie);
  const Loan loan = shared_.ledger.take_back(cookie);
  loan.job->on_aborted(loan.at);
}

void DataThread::on_sent(uint64_t token) {
  if (Prober::is_number(token)) return prober_.on_sent();
  if (BundleMemory::is_number(token)) return shared_.outbox.on_bundle_sent(token);
  const Loan loan = shared_.ledger.take_back(token);
  std::vector<DataLane>& lanes = shared_.peers.at(loan.to).lanes;
  if (loan.since != 0 && loan.lane < lanes.size()) {
    ++lanes[loan.lane].sends;
    lanes[loan.lane].send_time += monotonic_now() - loan.since;
  }
  loan.job->on_sent(loan.at);
}

void DataThread::on_lost(uint8_t lane, PeerId peer, const std::string& why) {
  DataPeer& of = shared_.peers.at(peer);
  if (lane >= of.lanes.size() || !std::exchange(of.lanes[lane].connected, false)) return;
  of.lanes[lane].carries = false;
  prober_.on_lost(peer, lane, why);
  events_->post(PeerDataLost{peer, of.link, lane, why});
}

}  // namespace gradring::daemon
