#include "daemon/data/prober.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "daemon/clock.h"
#include "daemon/data/seal.h"

namespace gradring::daemon {
namespace {

constexpr int kProbesPerTurn = 16;  // jobs have their turn as well

std::string words_of(ProbeRefusal refusal, const std::string& node) {
  switch (refusal) {
    case ProbeRefusal::kJobs:
      return fmt::format(
          "jobs run on node {}: a probe takes bandwidth from them (--force probes a "
          "tenth of the time)",
          node);
    case ProbeRefusal::kDraining:
      return fmt::format("the daemon of node {} is draining", node);
    default:
      return fmt::format("node {} takes part in another probe; try again when that has ended",
                         node);
  }
}

}  // namespace

Status Prober::objection_to(const StartProbe& order, bool jobs_here) const {
  if (draining_) return {Code::kAborted, words_of(ProbeRefusal::kDraining, order.node)};
  if (sender_ || receiver_.busy(monotonic_now())) {
    return {Code::kResourceExhausted, words_of(ProbeRefusal::kBusy, order.node)};
  }
  if (lends()) {
    return {Code::kResourceExhausted, "messages of the last probe have not left yet; try again"};
  }
  const std::optional<PeerId> peer = shared_->peers.by_node(order.to);
  if (!peer) {
    return {Code::kNotFound,
            fmt::format("there is no data connection to a node {}: gradringctl peers says whether "
                        "it is up; to one that is reached over others there is a connection only "
                        "while a job has both",
                        order.to)};
  }
  const DataPeer& to = shared_->peers.at(*peer);
  if (!to.probes) {
    return {Code::kIncompatible,
            fmt::format("the gradringd of node {} is of a release that knows no probes", order.to)};
  }
  if (order.lane >= to.lanes.size()) {
    return {Code::kNotFound, fmt::format("there are {} lanes to node {}, and no lane {}",
                                         to.lanes.size(), order.to, order.lane)};
  }
  if (!to.lanes[order.lane].carries) {
    return {Code::kUnavailable, fmt::format("lane {} to node {} is broken", order.lane, order.to)};
  }
  if (jobs_here && !order.forced) {
    return {Code::kAborted, words_of(ProbeRefusal::kJobs, order.node)};
  }
  return {};
}

void Prober::start(const StartProbe& order, uint32_t slice_bytes, bool jobs_here) {
  if (Status status = objection_to(order, jobs_here); !status.ok()) {
    ProbeEnded refused;
    refused.query = order.query;
    refused.status = std::move(status);
    shared_->events->post(std::move(refused));
    return;
  }
  uint32_t bytes = order.bytes;
  if (bytes == 0 && !order.latency) bytes = std::min(slice_bytes, kProbeBytesMax);
  order_ = {order.query,   *shared_->peers.by_node(order.to),
            order.lane,    order.forced,
            order.to,      core::probe_plan(order.latency, bytes, order.measure, order.forced),
            Code::kAborted};
  ++number_;
  if (bytes > 0) going_ = std::make_unique<std::byte[]>(bytes);
  sender_.emplace(order_.plan, monotonic_now());
  if (!send(frame_of(ProbeKind::kAsk))) sender_->fail("the connection is broken");
}

Frame Prober::frame_of(ProbeKind kind) const {
  Frame frame;
  frame.type = FrameType::kProbe;
  frame.token = shared_->peers.at(order_.to).token_to_send;
  frame.probe.kind = kind;
  frame.probe.probe = number_;
  frame.probe.forced = order_.forced;
  return frame;
}

bool Prober::send(const Frame& frame) {
  const uint32_t bytes = frame.probe.length;
  const std::span<const std::byte> payload(going_.get(), bytes);
  const auto sent = shared_->outbox.send(order_.lane, order_.to, sealed(frame), payload,
                                         bytes == 0 ? 0 : kNumber);
  if (sent == Outbox::Sent::kLent && bytes > 0) ++lent_;
  return sent != Outbox::Sent::kNowhere;
}

int Prober::pump(core::Time now) {
  if (!sender_) {
    if (!lends() && !receiver_.busy(now)) free_memory();
    return 0;
  }
  sender_->tick(now);
  int sent = 0;
  while (sent < kProbesPerTurn && sender_->may_send(now)) {
    Frame frame = frame_of(ProbeKind::kData);
    frame.probe.length = order_.plan.bytes;
    frame.probe.count = sender_->sent(monotonic_now());
    if (!send(frame)) sender_->fail("the connection broke");
    ++sent;
  }
  if (sender_->over()) {
    const std::string& fault = sender_->fault();
    end(fault.empty() ? Status()
                      : Status(order_.fault, fmt::format("the probe to node {} by lane {}: {}",
                                                         order_.node, order_.lane, fault)));
  }
  return sent;
}

void Prober::end(const Status& status) {
  (void)send(frame_of(ProbeKind::kEnd));  // a broken one is told by the transport
  shared_->events->post(
      ProbeEnded{order_.query, status, order_.lane, order_.plan.bytes, sender_->figures()});
  sender_.reset();
}

void Prober::free_memory() {
  going_.reset();
  coming_.reset();
}

core::Time Prober::next_deadline() const {
  return sender_ ? sender_->next_deadline() : std::numeric_limits<core::Time>::max();
}

transport::Events::Landing Prober::on_payload(PeerId from, const Frame& frame) {
  if (!receiver_.takes(from, frame.probe.probe)) return {};
  if (!coming_) coming_ = std::make_unique_for_overwrite<std::byte[]>(kProbeBytesMax);
  ++landing_;
  return {coming_.get(), kNumber | receiver_.serial()};
}

void Prober::on_landed(uint8_t lane, uint64_t number) {
  --landing_;
  if (receiver_.peer() && number == (kNumber | receiver_.serial())) echo(*receiver_.peer(), lane);
}

void Prober::echo(PeerId to, uint8_t lane) {
  const core::Time now = monotonic_now();
  Frame reply;
  reply.probe.probe = receiver_.probe();
  reply.probe.count = receiver_.arrived(now);
  reply.probe.at = static_cast<uint64_t>(now);
  const std::vector<DataLane>& lanes = shared_->peers.at(to).lanes;
  if (lane < lanes.size()) reply.probe.jobs_bytes = lanes[lane].received_bytes;
  answer(to, lane, reply, ProbeKind::kEcho);
}

void Prober::on_frame(PeerId from, uint8_t lane, const Frame& frame, bool jobs_here) {
  const ProbeBody& body = frame.probe;
  const core::Time now = monotonic_now();
  switch (body.kind) {
    case ProbeKind::kAsk: {
      Frame reply;
      reply.probe.probe = body.probe;
      reply.probe.refusal =
          receiver_.asked(from, body, jobs_here, draining_, sender_.has_value(), now);
      const bool granted = reply.probe.refusal == ProbeRefusal::kNone;
      return answer(from, lane, reply, granted ? ProbeKind::kGranted : ProbeKind::kRefused);
    }
    case ProbeKind::kData:
      if (receiver_.takes(from, body.probe)) echo(from, lane);
      return;
    case ProbeKind::kEnd:
      return receiver_.ended(from, body.probe);
    case ProbeKind::kGranted:
    case ProbeKind::kRefused:
    case ProbeKind::kEcho:
      if (sender_ && from == order_.to && body.probe == number_) hear_of_ours(body, now);
      return;
  }
}

void Prober::hear_of_ours(const ProbeBody& body, core::Time now) {
  if (body.kind == ProbeKind::kGranted) return sender_->granted(now);
  if (body.kind == ProbeKind::kEcho) return sender_->echoed(body, now);
  if (body.refusal == ProbeRefusal::kBusy) order_.fault = Code::kResourceExhausted;
  sender_->refused(words_of(body.refusal, order_.node));
}

// By the lane it came by; a peer that has more lanes than we know of is answered by another.
void Prober::answer(PeerId to, uint8_t lane, Frame frame, ProbeKind kind) {
  const DataPeer& peer = shared_->peers.at(to);
  const bool same = lane < peer.lanes.size() && peer.lanes[lane].carries;
  const std::optional<uint8_t> by = same ? lane : peer.lane_for(0);
  if (!by) return;  // who waits for it stops by itself
  frame.type = FrameType::kProbe;
  frame.token = peer.token_to_send;
  frame.probe.kind = kind;
  (void)shared_->outbox.send(*by, to, sealed(frame), {}, 0);
}

void Prober::on_lost(PeerId peer, uint8_t lane, const std::string& why) {
  receiver_.lost(peer);
  if (sender_ && peer == order_.to && lane == order_.lane) sender_->fail(why);
}

}  // namespace gradring::daemon
