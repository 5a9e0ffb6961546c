#include "daemon/flight/job_flight.h"

#include <string>

namespace gradring::daemon {
namespace {

// Summed or copied within a microsecond or two.
constexpr uint32_t kShortSlice = 8 << 10;

constexpr size_t kToldMost = 65536;

}  // namespace

JobFlight::JobFlight(FlightRing* ring, const core::JobEngine& engine)
    : ring_(ring),
      names_(engine.names()),
      job_(prefix_of(engine.view().incarnation)),
      epoch_(engine.view().epoch),
      arriving_(engine.slots()) {}

FlightEvent JobFlight::event(FlightKind kind, const OpKey& key) const {
  FlightEvent event;
  event.kind = kind;
  event.job = job_;
  event.key = key;
  event.epoch = epoch_;
  return event;
}

void JobFlight::submitted(const core::Submission& submission, core::Time at) {
  FlightEvent e = event(FlightKind::kOpSubmitted, submission.key);
  e.rank = submission.rank;
  e.code = static_cast<uint8_t>(submission.signature.collective);
  e.value = submission.signature.bytes();
  ring_->record_at(e, at, name_to_tell(submission));
}

// A trainer tells it with the first use alone, which a ring that goes round soon has no more, and a
// trace that is begun later never has.
std::string_view JobFlight::name_to_tell(const core::Submission& submission) {
  const uint64_t space = submission.key.space;
  // The key of an op without a name says it all.
  if (space == 0 || !ring_->on()) return {};
  if (told_.size() >= kToldMost) told_.clear();  // of a script that has another name for each op
  uint64_t& told = told_[space];
  if (submission.name.empty() && told == ring_->lap()) return {};
  told = ring_->lap();
  return submission.name.empty() ? names_.of(space) : submission.name;
}

void JobFlight::moves(const core::Op& op) {
  FlightEvent e = event(FlightKind::kOpMoves, op.key);
  e.value = op.signature->bytes();
  ring_->record_at(e, ring_->now());
}

void JobFlight::frame_sent(uint32_t member, const Frame& frame) {
  if (frame.type != FrameType::kReady && frame.type != FrameType::kMismatch) return;
  const bool ready = frame.type == FrameType::kReady;
  FlightEvent e = event(ready ? FlightKind::kReadySent : FlightKind::kMismatchSent, frame.key);
  e.index = member;
  ring_->record_at(e, ring_->now());
}

void JobFlight::frame_received(uint32_t member, const Frame& frame) {
  if (frame.type != FrameType::kReady && frame.type != FrameType::kMismatch) return;
  const bool ready = frame.type == FrameType::kReady;
  FlightEvent e =
      event(ready ? FlightKind::kReadyReceived : FlightKind::kMismatchReceived, frame.key);
  e.index = member;
  if (ready) e.rank = frame.ready.rank;
  ring_->record_at(e, ring_->now());
}

core::Time JobFlight::time_of(uint32_t bytes) const {
  return bytes > kShortSlice && ring_->on() ? monotonic_now() : ring_->now();
}

void JobFlight::slice_started(const OpKey& key, uint32_t slice, uint32_t bytes) {
  FlightEvent e = event(FlightKind::kSliceStarted, key);
  e.index = slice;
  ring_->record_at(e, time_of(bytes));
}

void JobFlight::slice_delivered(const OpKey& key, uint32_t slice, uint32_t bytes) {
  FlightEvent e = event(FlightKind::kSliceDelivered, key);
  e.index = slice;
  ring_->record_at(e, time_of(bytes));
}

void JobFlight::slice_arrives(uint32_t slot, const Frame& frame) {
  arriving_[slot] = {frame.key, frame.slice};
}

void JobFlight::slice_landed(uint32_t slot) {
  record_slice(FlightKind::kSliceLanded, arriving_[slot].key, arriving_[slot].slice);
}

void JobFlight::slice_aborted(uint32_t slot) {
  record_slice(FlightKind::kSliceAborted, arriving_[slot].key, arriving_[slot].slice);
}

void JobFlight::slice_damaged(uint32_t slot) {
  record_slice(FlightKind::kSliceDamaged, arriving_[slot].key, arriving_[slot].slice);
}

void JobFlight::slice_resent(const Frame& frame) {
  record_slice(FlightKind::kSliceResent, frame.key, frame.slice);
}

void JobFlight::slice_forwarded(const Frame& frame) {
  record_slice(FlightKind::kSliceForwarded, frame.key, frame.slice);
}

void JobFlight::record_slice(FlightKind kind, const OpKey& key, const SliceBody& slice) {
  FlightEvent e = event(kind, key);
  e.index = slice.slice;
  e.rank = slice.lane;
  e.code = static_cast<uint8_t>(slice.phase);
  e.value = slice.hop;
  ring_->record_at(e, time_of(slice.length));
}

void JobFlight::gpu_began(const OpKey& key, uint32_t number, GpuTask task, uint64_t bytes) {
  FlightEvent e = event(FlightKind::kGpuBegan, key);
  e.index = number;
  e.code = static_cast<uint8_t>(task);
  e.value = bytes;
  ring_->record_at(e, ring_->on() ? monotonic_now() : ring_->now());
}

void JobFlight::gpu_ended(const OpKey& key, uint32_t number, bool good) {
  FlightEvent e = event(FlightKind::kGpuEnded, key);
  e.index = number;
  e.code = good ? 0 : 1;
  ring_->record_at(e, ring_->on() ? monotonic_now() : ring_->now());
}

void JobFlight::completed(uint32_t rank, const OpKey& key, const core::Outcome& outcome,
                          core::Time at) {
  const bool good = outcome.verdict != Verdict::kFailed;
  FlightEvent e = event(good ? FlightKind::kOpDone : FlightKind::kOpFailed, key);
  e.rank = rank;
  if (good) {
    e.code = static_cast<uint8_t>(outcome.verdict);
    return ring_->record_at(e, at);
  }
  const Failure& failure = outcome.failure;
  e.code = static_cast<uint8_t>(failure.cause);
  e.index = failure.blame.rank;
  // When a job ends, thousands of ops may fail for one reason: it is told once, with the job's end.
  const bool own = failure.cause == Cause::kMismatch || failure.cause == Cause::kRefused ||
                   failure.cause == Cause::kCorrupted;
  ring_->record_at(e, at, {}, own ? std::string_view(failure.blame.evidence) : std::string_view());
}

void JobFlight::condemned(const Failure& failure) {
  FlightEvent e = event(FlightKind::kOpCondemned, {});
  e.code = static_cast<uint8_t>(failure.cause);
  ring_->record(e, failure.blame.node, failure.blame.evidence);
}

void JobFlight::failed(const Failure& failure) {
  FlightEvent e = event(FlightKind::kEngineFailed, {});
  e.code = static_cast<uint8_t>(failure.cause);
  e.rank = failure.blame.rank;
  e.value = static_cast<uint64_t>(failure.blame.pid);
  ring_->record(e, failure.blame.node, failure.blame.evidence);
}

}  // namespace gradring::daemon
