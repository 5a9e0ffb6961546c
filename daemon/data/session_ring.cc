#include "daemon/data/session_ring.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

namespace gradring::daemon {
namespace {

RingPair* pair_in(const OpenRing& open) {
  return reinterpret_cast<RingPair*>(open.shared->memory.memory().data());
}

// Neither waits, whatever the trainer has done with its end: it can take O_NONBLOCK from an
// eventfd, and read what we were about to.
void ring_bell(int socket) {
  const eventfd_t one = 1;
  (void)send(socket, &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);  // full: it has enough to hear
}

void quiet(int bell) {
  eventfd_t count = 0;
  const iovec to{&count, sizeof count};
  if (preadv2(bell, &to, 1, -1, RWF_NOWAIT) >= 0 || errno != EOPNOTSUPP) return;
  eventfd_read(bell, &count);  // before Linux 5.8
}

}  // namespace

SessionRing::SessionRing(OpenRing open)
    : open_(std::move(open)),
      submissions_(&pair_in(open_)->submissions),
      ends_(&pair_in(open_)->ends) {
  for (const LendSegment& segment : std::exchange(open_.segments, {})) lend(segment);
}

core::Time SessionRing::input_wait() const {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<core::Time>::max());
  const uint64_t told = pair_in(open_)->words.input_wait_ns.load(std::memory_order_relaxed);
  return static_cast<core::Time>(std::min(told, kMost));
}

void SessionRing::lend(const LendSegment& lend) {
  Lent& lent = segments_[lend.segment];
  lent.memory = lend.memory;
  lent.gpu = lend.gpu;
}

void SessionRing::let_go_of(const SharedGpuMemory* gpu) {
  for (auto& [segment, lent] : segments_) {
    if (lent.gpu.get() == gpu && lent.uses == 0) lent.gpu.reset();
  }
}

bool SessionRing::take_back(uint64_t segment) {
  const auto it = segments_.find(segment);
  if (it == segments_.end()) return true;
  if (it->second.uses > 0) return false;
  segments_.erase(it);
  return true;
}

const wire::Operation& SessionRing::take() {
  again_ = std::exchange(postponed_, false);
  if (again_) return taken_;
  const RingSubmission entry = submissions_.take();
  taken_.set_ticket(entry.ticket);
  gradring::to_wire(entry.key, taken_.mutable_key());
  wire::Signature* signature = taken_.mutable_signature();
  signature->set_collective(entry.collective);
  signature->set_dtype(entry.dtype);
  signature->set_op(entry.op);
  signature->set_root(entry.root);
  signature->set_count(entry.count);
  signature->set_ranks(entry.ranks);
  signature->set_wire(entry.wire);
  signature->set_postscale(factor_to_wire(entry.postscale));
  taken_.mutable_input()->set_segment(entry.input_segment);
  taken_.mutable_input()->set_offset(entry.input_offset);
  taken_.mutable_output()->set_segment(entry.output_segment);
  taken_.mutable_output()->set_offset(entry.output_offset);
  taken_.set_priority(entry.priority);
  taken_.set_position(entry.position);
  taken_.set_prescale(factor_to_wire(entry.prescale));
  taken_.mutable_reached()->set_segment(entry.reached_segment);
  taken_.mutable_reached()->set_offset(entry.reached_offset);
  taken_.mutable_reached()->set_value(entry.reached_value);
  taken_.mutable_ended()->set_segment(entry.output_segment);
  taken_.mutable_ended()->set_offset(entry.ended_offset);
  taken_.mutable_ended()->set_value(entry.ended_value);
  taken_.set_part_bytes(uint64_t{entry.part_kib} << 10);
  taken_.set_on_gpu((entry.on_gpu & kOnGpu) != 0);
  taken_.set_stays_on_gpu((entry.on_gpu & kStaysOnGpu) != 0);
  return taken_;
}

tl::expected<Submit, std::string> SessionRing::check() {
  auto checked = check_operation(taken_, open_.rank, *this);
  if (!checked) return tl::unexpected(checked.error());
  use(segments_of(checked->submission), 1);
  Submit submit{open_.session, open_.job, std::move(checked->submission), checked->input,
                checked->output};
  submit.ring = this;
  submit.reached = checked->reached;
  submit.ended = checked->ended;
  submit.part_bytes = checked->part_bytes;
  submit.gpu_input = checked->gpu_input;
  submit.gpu_output = checked->gpu_output;
  return submit;
}

void SessionRing::use(const OpenTicket& segments, int64_t change) {
  open_ops_ += static_cast<uint64_t>(change);
  for (const uint64_t segment : {segments.input_segment, segments.output_segment}) {
    if (segment != 0) segments_.at(segment).uses += static_cast<uint64_t>(change);
  }
}

bool SessionRing::end(uint64_t ticket, const OpenTicket& segments, const core::Outcome& outcome) {
  use(segments, -1);
  if (outcome.verdict == Verdict::kFailed) return false;
  if (closed_) return true;
  RingEnd entry;
  entry.ticket = ticket;
  entry.epoch = outcome.epoch;
  entry.ranks_min = outcome.ranks_min;
  entry.ranks_max = outcome.ranks_max;
  entry.verdict = static_cast<uint32_t>(outcome.verdict);
  waiting_.push_back(entry);
  flush();
  return true;
}

int SessionRing::flush() {
  int sent = 0;
  while (!waiting_.empty() && ends_.put(waiting_.front())) {
    waiting_.pop_front();
    ++sent;
  }
  if (sent > 0 && ends_.must_wake()) ring_bell(open_.shared->ended.get());
  return sent;
}

void SessionRing::rise(bool rung) {
  submissions_.rise();
  if (rung) quiet(bell());
}

std::optional<std::span<std::byte>> SessionRing::find(uint64_t segment) const {
  const auto it = segments_.find(segment);
  if (it == segments_.end()) return std::nullopt;
  return it->second.memory;
}

const transport::OpenGpuMemory* SessionRing::gpu(uint64_t segment) const {
  const auto it = segments_.find(segment);
  if (it == segments_.end() || it->second.gpu == nullptr) return nullptr;
  return it->second.gpu->open.get();
}

}  // namespace gradring::daemon
