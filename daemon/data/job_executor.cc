#include "daemon/data/job_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/clock.h"
#include "proto/check.h"
#include "transport/reducer.h"

namespace gradring::daemon {

JobExecutor::JobExecutor(InstallJob install, const core::EngineOptions& options,
                         StagingMemory staging, DataShared* shared)
    : shared_(shared),
      staging_(std::move(staging)),
      engine_(std::move(install.view), install.me, options, this),
      flight_(shared->flight, engine_.view(), engine_.me(), options.slots),
      nonfinite_(engine_.view().members[engine_.me()].ranks.size()) {
  const core::View& view = engine_.view();
  const std::vector<core::RankInfo>& ranks = view.members[engine_.me()].ranks;
  for (const core::RankInfo& info : ranks) locals_.push_back({info.rank, 0, {}});
  for (const core::Member& member : view.members) {
    peer_of_.push_back(shared_->peers.by_node(member.node));
  }
}

void JobExecutor::submit(const Submit& command, core::Time now) {
  LocalRank& rank = local(command.submission.rank);
  const uint64_t ticket = command.submission.ticket;
  const OpKey key = command.submission.key;
  rank.lent[ticket] = {command.session, key, command.input, command.output};
  flight_.submitted(command.submission);
  const Status refused = engine_.submit(command.submission, now);
  if (refused.ok()) {
    rank.last_submission = now;
    if (rank.lent.count(ticket) > 0) flight_.ready(key, command.submission.signature);
    return;
  }
  core::Outcome outcome;
  outcome.verdict = Verdict::kFailed;
  outcome.epoch = engine_.view().epoch;
  outcome.failure.cause = Cause::kRefused;
  outcome.failure.blame.rank = rank.rank;
  outcome.failure.blame.evidence = refused.message();
  complete(rank.rank, ticket, outcome);
}

JobDescription JobExecutor::describe(uint64_t query) const {
  constexpr size_t kOpsShown = 64;  // as client.proto promises
  JobDescription description;
  description.query = query;
  description.found = true;
  description.ops = engine_.progress(kOpsShown);
  for (size_t i = 0; i < locals_.size(); ++i) {
    description.ranks.push_back({locals_[i].rank, engine_.submitted()[i],
                                 locals_[i].last_submission, nonfinite_.inputs()[i]});
  }
  description.ops_completed = engine_.counters().ops_completed;
  description.ops_open = static_cast<uint32_t>(engine_.open_ops());
  description.staging_bytes = staging_.bytes();
  return description;
}

std::optional<uint32_t> JobExecutor::member_of(PeerId peer) const {
  const auto it = std::find(peer_of_.begin(), peer_of_.end(), std::optional<PeerId>(peer));
  if (it == peer_of_.end()) return std::nullopt;
  return static_cast<uint32_t>(it - peer_of_.begin());
}

void JobExecutor::on_frame(uint32_t member, const Frame& frame, core::Time now) {
  flight_.frame_received(member, frame);
  engine_.on_frame(member, frame, now);
  if (frame.type == FrameType::kReady && !engine_.failed()) {
    flight_.ready(frame.key, frame.ready.signature);
  }
}

std::optional<JobExecutor::Landing> JobExecutor::on_slice(uint32_t member, const Frame& frame) {
  const std::optional<uint32_t> slot = engine_.on_slice(member, frame);
  if (!slot) return std::nullopt;
  const core::Staging at{core::Staging::Kind::kSlot, *slot};
  flight_.slice_arrives(*slot, frame);
  ++loans_;
  return Landing{staging_.at(at), shared_->ledger.lend({this, at})};
}

void JobExecutor::on_landed(core::Staging at) {
  --loans_;
  flight_.slice_landed(at.index);
  engine_.on_slice_landed(at.index);
}

void JobExecutor::on_aborted(core::Staging at) {
  --loans_;
  flight_.slice_aborted(at.index);
  engine_.on_slice_aborted(at.index);
}

void JobExecutor::on_sent(core::Staging at) {
  --loans_;
  engine_.on_sent(at);
}

uint32_t JobExecutor::pump(uint32_t budget) {
  settle();
  const uint32_t work = engine_.pump(budget);
  settle();
  if (!told_drained_ && engine_.drained()) {
    told_drained_ = true;
    shared_->events->post(EngineDrained{id()});
  }
  return work;
}

// The engine must not be called from inside its own actions, so a send that was refused comes back
// here.
void JobExecutor::settle() {
  for (const core::Staging& at : std::exchange(not_sent_, {})) engine_.on_sent(at);
}

// ---- what the engine wants done ----

void JobExecutor::fold(const core::FoldOrder& order) {
  const core::Op& op = *order.op;
  const uint64_t offset = op.plan.offset_of(order.slice);
  const uint32_t length = op.plan.length_of(order.slice);
  std::byte* const at = staging_.at(order.at);
  if (!order.onto_arrived) flight_.slice_started(op.key, order.slice);

  if (order.source == core::Fold::kRoot) {
    for (size_t i = 0; i < op.locals.size(); ++i) {
      if (op.locals[i]->rank != op.signature->root) continue;
      std::memcpy(at, lent_to(op, i).input + offset, length);
      return;
    }
    GRADRING_CHECK(false, "the root of a broadcast is not on the node that starts it");
  }
  inputs_.clear();
  if (order.onto_arrived) inputs_.push_back(at);
  for (size_t i = 0; i < op.locals.size(); ++i) inputs_.push_back(lent_to(op, i).input + offset);
  const transport::FoldFindings found =
      transport::fold(op.signature->dtype, op.signature->op, inputs_, at,
                      length / size_of(op.signature->dtype), order.divisor);
  if (found.nonfinite == 0) return;
  const auto locals = std::span(inputs_).last(op.locals.size());
  if (nonfinite_.look(op, order.slice, locals, found, monotonic_now())) {
    shared_->events->post(NonfiniteFound{id(), *nonfinite_.first()});
  }
}

void JobExecutor::deliver(const core::Op& op, uint32_t slice, core::Staging from) {
  const uint64_t offset = op.plan.offset_of(slice);
  const uint32_t length = op.plan.length_of(slice);
  for (size_t i = 0; i < op.locals.size(); ++i) {
    std::memcpy(lent_to(op, i).output + offset, staging_.at(from), length);
  }
  flight_.slice_delivered(op.key, slice);
}

void JobExecutor::send(uint32_t member, const Frame& frame) {
  if (!peer_of_[member]) return;
  flight_.frame_sent(member, frame);
  const DataPeer& peer = shared_->peers.at(*peer_of_[member]);
  Frame stamped = frame;
  stamped.token = peer.token_to_send;
  // If there is no connection, that is being told to the control thread, and ends the job.
  shared_->outbox.send(*peer_of_[member], encode(stamped), {}, 0);
}

void JobExecutor::send_slice(uint32_t member, const Frame& frame, core::Staging from) {
  if (!peer_of_[member]) {
    not_sent_.push_back(from);
    return;
  }
  DataPeer& peer = shared_->peers.at(*peer_of_[member]);
  Frame stamped = frame;
  stamped.token = peer.token_to_send;
  const uint64_t loan = shared_->ledger.lend({this, from});
  const std::span<const std::byte> payload(staging_.at(from), frame.slice.length);
  if (shared_->outbox.send(*peer_of_[member], encode(stamped), payload, loan)) {
    ++loans_;
    if (from.kind == core::Staging::Kind::kSlot) flight_.slice_forwarded(frame);
    peer.sent_bytes += frame.slice.length;
    return;
  }
  shared_->ledger.take_back(loan);
  not_sent_.push_back(from);
}

void JobExecutor::complete(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) {
  LocalRank& owner = local(rank);
  const auto lent = owner.lent.find(ticket);
  flight_.completed(rank, lent->second.key, outcome);
  shared_->events->post(Completed{lent->second.session, ticket, outcome});
  owner.lent.erase(lent);
}

void JobExecutor::fail_job(const Failure& failure) {
  flight_.failed(failure);
  shared_->events->post(EngineFailed{id(), failure});
}

JobExecutor::LocalRank& JobExecutor::local(uint32_t rank) {
  const auto it = std::find_if(locals_.begin(), locals_.end(),
                               [rank](const LocalRank& l) { return l.rank == rank; });
  GRADRING_CHECK(it != locals_.end(), "a rank that is not of this node");
  return *it;
}

const JobExecutor::Lent& JobExecutor::lent_to(const core::Op& op, size_t local_index) const {
  return locals_[local_index].lent.at(op.locals[local_index]->ticket);
}

}  // namespace gradring::daemon
