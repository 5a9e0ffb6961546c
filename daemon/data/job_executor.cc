#include "daemon/data/job_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/clock.h"
#include "daemon/data/seal.h"
#include "daemon/data/session_ring.h"
#include "proto/check.h"
#include "transport/checksum.h"

namespace gradring::daemon {

// Who is in the view now, and by which connection.
void JobExecutor::meet_members() {
  const core::View& view = engine_.view();
  for (const core::RankInfo& info : view.members[engine_.me()].ranks) {
    const bool known = std::any_of(locals_.begin(), locals_.end(),
                                   [&](const LocalRank& l) { return l.rank == info.rank; });
    if (!known) locals_.push_back({info.rank, 0, 0, {}});
  }
  peer_of_.clear();
  for (const core::Member& member : view.members) {
    peer_of_.push_back(shared_->peers.by_node(member.node));
  }
  flight_.emplace(shared_->flight, engine_);
  steps_.begin_epoch();
  const bool first = engine_.me() == 0 && view.members.size() > 1;
  times_.begin(view, shared_->time_sums && first && !view.tuning.fixed);
}

// A rank that came in is another process, whose keys and tickets may be those of its predecessor.
bool JobExecutor::may_begin(const Submit& command) const {
  const bool awaits = awaits_memory_ || (awaits_ride_ && command.on_gpu());
  if (awaits && !engine_.failed()) return false;
  if (!gpu_ops_.empty() && !engine_.failed()) {
    const core::Submission& s = command.submission;
    const bool in_use = std::any_of(locals_.begin(), locals_.end(), [&](const LocalRank& local) {
      const auto lent = local.lent.find(s.ticket);
      return local.rank == s.rank && lent != local.lent.end() &&
             lent->second.session != command.session;
    });
    if (in_use || gpu_ops_.holds(s.key)) return false;
  }
  if (!command.reached) return true;
  return log_ ? command.reached.has_come() : command.reached.parts_come() > 0;
}

void JobExecutor::submit(const Submit& command, core::Time now) {
  LocalRank& rank = local(command.submission.rank);
  const uint64_t ticket = command.submission.ticket;
  const OpKey key = command.submission.key;
  rank.session = command.session;
  if (const auto it = rank.lent.find(ticket); it != rank.lent.end()) {
    // What is submitted once more after a restart is the same.
    const Lent& open = it->second;
    const bool again = command.ring == nullptr && open.ring == nullptr && open.key == key &&
                       open.input == command.input && open.output == command.output;
    const std::string why = "ticket " + std::to_string(ticket) + " is in use by an open op";
    if (!again) return end_unopened(command, refusal(rank.rank, why));
  }
  if (const auto told = told_.find(command.session); told != told_.end()) {
    for (const uint64_t seen : command.seen) told->second.erase(seen);
    const auto end = told->second.find(ticket);
    if (end != told->second.end()) return end_unopened(command, end->second);  // once more
  }
  const Signature& signature = command.submission.signature;
  const core::Time at = monotonic_now();  // `now` is as old as the turn
  rank.lent[ticket] = {command.session,
                       key,
                       command.input,
                       command.output,
                       command.ring,
                       command.ended,
                       segments_of(command.submission),
                       signature.collective,
                       signature.bytes(),
                       at};
  flight_->submitted(command.submission, at);
  times_.submitted(key, command.submission.signature);
  steps_.submitted(rank.rank, now);
  uint64_t input_here = core::Submission::kAllHere;
  if (!command.given_on_gpu()) input_here = PassingParts::input_here(command);
  parts_.add(command, input_here, at);
  if (command.given_on_gpu()) input_here = 0;
  if (command.on_gpu()) gpu_ops_.add(command);
  Status refused;
  if (input_here == core::Submission::kAllHere) {
    refused = engine_.submit(command.submission, now);
  } else {
    core::Submission coming = command.submission;
    coming.input_here = input_here;
    refused = engine_.submit(coming, now);
  }
  if (refused.ok()) {
    rank.last_submission = now;
    rank.gone = false;
    if (command.on_gpu()) gpu_ops_.look(&engine_);  // where results lie, before there are any
    return;
  }
  if (command.on_gpu()) gpu_ops_.drop(key, rank.rank, ticket);
  complete(rank.rank, ticket, refusal(rank.rank, refused.message()));
}

// Of a ring's op the control thread knows nothing: what it has open under this ticket is another.
void JobExecutor::end_unopened(const Submit& command, const core::Outcome& outcome) {
  const uint64_t ticket = command.submission.ticket;
  const bool by_ring = command.ring != nullptr;
  if (by_ring && command.ring->end(ticket, segments_of(command.submission), outcome)) return;
  shared_->events->post(Completed{command.session, ticket, outcome, by_ring});
}

core::Outcome JobExecutor::refusal(uint32_t rank, const std::string& why) const {
  core::Outcome outcome = core::refused(rank, why);
  outcome.epoch = engine_.view().epoch;
  return outcome;
}

std::optional<uint32_t> JobExecutor::member_of(PeerId peer) const {
  const auto it = std::find(peer_of_.begin(), peer_of_.end(), std::optional<PeerId>(peer));
  if (it == peer_of_.end()) return std::nullopt;
  return static_cast<uint32_t>(it - peer_of_.begin());
}

// D8: what is of another epoch is not for the engine.
bool JobExecutor::of_this_epoch(PeerId from, const Frame& frame) {
  using Gate = core::EpochGate<PeerId>;
  const uint64_t epoch = engine_.view().epoch;
  if (frame.epoch == epoch) return true;
  const bool later = frame.epoch > epoch;
  if (later && payload_of(frame) > 0) return false;
  const Gate::Verdict verdict = gate_.sort(from, frame, epoch);
  if (verdict == Gate::Verdict::kTooMuch) {
    fail_job(core::too_far_ahead(shared_->peers.at(from).node, frame.epoch, epoch));
    return false;
  }
  if (verdict == Gate::Verdict::kLater && !gate_.ask()) return false;
  // The end of a job that failed was told already.
  if (engine_.failed() || (verdict == Gate::Verdict::kPast && !gate_.tell(from, frame.epoch))) {
    return false;
  }
  shared_->events->post(EpochDiffers{id(), shared_->peers.at(from).node, later, frame.epoch});
  return false;
}

bool JobExecutor::on_frame(PeerId from, const Frame& frame, core::Time now) {
  if (!of_this_epoch(from, frame)) return true;
  const std::optional<uint32_t> member = member_of(from);
  if (!member) return false;
  flight_->frame_received(*member, frame);
  engine_.on_frame(*member, frame, now);
  return true;
}

std::optional<JobExecutor::Landing> JobExecutor::on_payload(PeerId from, const Frame& frame) {
  if (!of_this_epoch(from, frame)) return std::nullopt;
  const std::optional<uint32_t> member = member_of(from);
  if (!member) return std::nullopt;
  if (!is_direct(frame)) return on_slice(from, *member, frame);
  const std::optional<uint32_t> unit = engine_.on_parcel(*member, frame);
  if (!unit) return std::nullopt;
  const core::Staging at{core::Staging::Kind::kUnit, *unit};
  ++loans_;
  return Landing{memory_at(at), shared_->ledger.lend({this, at})};
}

std::optional<JobExecutor::Landing> JobExecutor::on_slice(PeerId from, uint32_t member,
                                                          const Frame& frame) {
  const std::optional<uint32_t> slot = engine_.on_slice(member, frame);
  if (!slot) return std::nullopt;
  const core::Staging at{core::Staging::Kind::kSlot, *slot};
  flight_->slice_arrives(*slot, frame);
  arriving_[*slot] = {from, frame.slice, frame.key};
  if (gpu_ring_ != nullptr) {
    const auto there = gpu_ring_->land(
        at, frame, [this](const SlotBuffers::Value& before) { return may_be_kept(before); });
    if (there) {
      ++loans_;
      return Landing{there->to, shared_->ledger.lend({this, at}), there->on_host};
    }
  }
  const std::optional<SlotBuffers::Value>& before = staging_.slots().value_in(*slot);
  staging_.slots().use_again(*slot, before && may_be_kept(*before));
  ++loans_;
  return Landing{memory_at(at), shared_->ledger.lend({this, at})};
}

void JobExecutor::on_landed_on_host(core::Staging at) {
  const Arriving& came = arriving_[at.index];
  gpu_ring_->bring(at, came.key, came.slice.length);
}

void JobExecutor::on_landed(core::Staging at) {
  --loans_;
  if (at.kind == core::Staging::Kind::kUnit) {
    const auto& [member, frame, stale] = engine_.parcel(at.index);
    if (!stale) flight_->frame_received(member, frame);
    return engine_.on_parcel_landed(at.index, monotonic_now());
  }
  const auto& [from, slice, key] = arriving_[at.index];
  std::optional<uint32_t>& known = checksums_.of(at);
  known.reset();
  if (slice.checked) {
    const std::byte* const on_host = gpu_ring_ == nullptr ? nullptr : gpu_ring_->on_host(at);
    known = transport::crc32c({on_host == nullptr ? memory_at(at) : on_host, slice.length});
    if (*known != slice.crc32c) {
      ++shared_->peers.at(from).damaged;
      flight_->slice_damaged(at.index);
      return engine_.on_slice_damaged(at.index);
    }
  }
  if (slice.checked && gpu_ring_ != nullptr) gpu_ring_->bring(at, key, slice.length);
  flight_->slice_landed(at.index);
  engine_.on_slice_landed(at.index);
}

void JobExecutor::on_aborted(core::Staging at) {
  --loans_;
  if (at.kind == core::Staging::Kind::kUnit) return engine_.on_parcel_aborted(at.index);
  flight_->slice_aborted(at.index);
  engine_.on_slice_aborted(at.index);
}

void JobExecutor::on_sent(core::Staging at) {
  --loans_;
  engine_.on_sent(at);
}

uint32_t JobExecutor::pump(uint32_t budget) {
  settle();
  parts_.look(&engine_);
  if (!gpu_ops_.empty()) gpu_ops_.look(&engine_);
  if (gpu_ring_ != nullptr) {
    send_ready();
    budget = gpu_ops_.may_ride_on() ? std::min(budget, gpu_ring_->room()) : 0;
  }
  const bool alone = engine_.view().members.size() == 1;
  const uint32_t work = alone ? pump_alone(budget) : engine_.pump(budget);
  settle();
  freeze_when_at_rest();
  if (log_ && log_->long_grown()) log_->begin(engine_.record());
  if (!told_drained_ && engine_.drained()) {
    told_drained_ = true;
    shared_->events->post(EngineDrained{id()});
  }
  return work + static_cast<uint32_t>(done_with_.size());  // for the next turn
}

// Slices that travel nowhere may be longer (slice_bytes_alone), and other jobs wait as long for
// them: so they are no more bytes than of those that travel.
uint32_t JobExecutor::pump_alone(uint32_t budget) {
  const uint64_t bytes = uint64_t{budget} * engine_.staging_bytes();
  uint32_t work = 0, done = 0;
  folded_bytes_ = 0;
  do {
    done = engine_.pump(std::min(budget, 1u));
    work += done;
  } while (done > 0 && work < budget && folded_bytes_ < bytes);
  return work;
}

// The engine must not be called from inside its own actions, so a send that ended at once comes
// back here.
void JobExecutor::settle() {
  settling_.swap(done_with_);
  for (const core::Staging& at : settling_) engine_.on_sent(at);
  settling_.clear();
}

// ---- what the engine wants done ----

void JobExecutor::absent(const core::Absence& absence) {
  shared_->events->post(EngineAbsent{id(), absence});
}

void JobExecutor::condemned(const Failure& failure) {
  flight_->condemned(failure);
  shared_->events->post(EngineCondemned{id(), engine_.view().epoch});
}

void JobExecutor::at_join_point() { shared_->events->post(EngineAtJoinPoint{id()}); }

void JobExecutor::stand_in(uint32_t rank, const OpKey& key,
                           const std::optional<Signature>& signature) {
  shared_->events->post(EngineAsksToStandIn{id(), local(rank).session, key, signature});
}

void JobExecutor::moves(const core::Op& op) {
  flight_->moves(op);
  steps_.moves(op);
  const bool sends = op.plan.members > 1 && op.plan.slices > 0;
  if (sends && wire_use_.begins() && weight_ > core::kWeightLeast) shared_->wires_to_share = true;
}

void JobExecutor::complete(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) {
  if (!gpu_ops_.empty()) {
    const OpKey key = local(rank).lent.at(ticket).key;
    if (gpu_ops_.hold_end(key, rank, ticket, outcome)) return;
  }
  tell_end(rank, ticket, outcome);
}

void JobExecutor::tell_end(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) {
  LocalRank& owner = local(rank);
  const auto lent = owner.lent.find(ticket);
  times_.ended(lent->second.key, outcome.verdict == Verdict::kOk);
  const Lent& what = lent->second;
  const core::Time now = monotonic_now();
  flight_->completed(rank, what.key, outcome, now);
  stats_.record(what.collective, what.bytes, outcome, now - what.since);
  if (log_ && shared_->remember_ends) remember_told(lent->second.session, ticket, outcome);
  SessionRing* const ring = lent->second.ring;
  steps_.ended(rank, now, ring == nullptr ? 0 : ring->input_wait());
  if (what.ended) what.ended.set();
  if (ring == nullptr || !ring->end(ticket, lent->second.segments, outcome)) {
    shared_->events->post(Completed{lent->second.session, ticket, outcome, ring != nullptr});
  }
  parts_.drop(rank, ticket);
  owner.lent.erase(lent);
}

Failure JobExecutor::refused_here(const std::string& why) const {
  Failure failure{Cause::kRefused, {}};
  failure.blame.node = engine_.view().members[engine_.me()].node;
  failure.blame.evidence = why;
  return failure;
}

void JobExecutor::refuse(const std::string& why) {
  const Failure failure = refused_here(why);
  fail_job(failure);
  engine_.fail(failure);
}

void JobExecutor::gpu_failed(const std::string& why) {
  Failure failure = refused_here(why);
  failure.blame.device = "GPU";
  fail_job(failure);
}

void JobExecutor::fail_job(const Failure& failure) {
  flight_->failed(failure);
  shared_->events->post(EngineFailed{id(), failure});
}

void JobExecutor::leave(uint32_t rank, const Failure& why) {
  LocalRank& own = local(rank);
  own.gone = true;
  told_.erase(own.session);
  parts_.look(&engine_);  // what its GPU has brought by now counts
  gpu_ops_.leave(rank, why.blame.device.empty(), &engine_);
  engine_.leave(rank, why);
}

JobExecutor::LocalRank& JobExecutor::local(uint32_t rank) {
  const auto it = std::find_if(locals_.begin(), locals_.end(),
                               [rank](const LocalRank& l) { return l.rank == rank; });
  GRADRING_CHECK(it != locals_.end(), "a rank that is not of this node");
  return *it;
}

const JobExecutor::Lent& JobExecutor::lent_to(const core::Submission& submission) const {
  const auto owner = std::find_if(locals_.begin(), locals_.end(),
                                  [&](const LocalRank& l) { return l.rank == submission.rank; });
  return owner->lent.at(submission.ticket);
}

}  // namespace gradring::daemon
