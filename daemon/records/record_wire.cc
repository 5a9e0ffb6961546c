#include "daemon/records/record_wire.h"

#include <utility>

#include "daemon/wire/change_wire.h"
#include "daemon/wire/report_wire.h"
#include "daemon/wire/view_wire.h"
#include "proto/reduction.h"

namespace gradring::daemon {
namespace {

constexpr uint32_t kOpStateLast = static_cast<uint32_t>(core::OpState::kCompleted);
constexpr uint32_t kSliceStateLast = static_cast<uint32_t>(core::SliceState::kDropped);

bool read_view(const wire::View& from, core::View* to) {
  return from_wire(from, to) && core::fault_of(*to).empty();
}

// What a view change says is written as it is said: so there is one way to read it.
bool read_acceptor(const wire::AcceptorRecord& from, const JobId& job, core::AcceptorRecord* to) {
  to->epoch = from.epoch();
  if (from.has_promised()) to->promised = {from.promised().round(), from.promised().node()};
  if (from.has_accepted()) {
    core::Vote& vote = to->accepted.emplace();
    vote.ballot = {from.accepted().ballot().round(), from.accepted().ballot().node()};
    if (!from_wire(from.accepted().proposal(), job, to->epoch, &vote.proposal)) return false;
  }
  if (from.has_report() && !from_wire(from.report(), to->epoch, &to->report.emplace())) {
    return false;
  }
  if (!from.has_last_commit()) return true;
  wire::PeerMessage message;
  *message.mutable_commit_view() = from.last_commit();
  const auto commit = change_message_of(message);
  if (!commit) return false;
  to->last_commit = std::get<core::change::Commit>(*commit);
  return true;
}

void write_acceptor(const core::AcceptorRecord& from, wire::AcceptorRecord* to) {
  to->set_epoch(from.epoch);
  if (from.promised.round != 0) {
    to->mutable_promised()->set_round(from.promised.round);
    to->mutable_promised()->set_node(from.promised.node);
  }
  if (from.accepted) {
    wire::Vote* vote = to->mutable_accepted();
    vote->mutable_ballot()->set_round(from.accepted->ballot.round);
    vote->mutable_ballot()->set_node(from.accepted->ballot.node);
    to_wire(from.accepted->proposal, vote->mutable_proposal());
  }
  if (from.report) to_wire(*from.report, to->mutable_report());
  if (!from.last_commit) return;
  wire::PeerMessage message;
  fill(*from.last_commit, &message);
  *to->mutable_last_commit() = message.commit_view();
}

}  // namespace

void to_wire(const core::JobRecord& from, wire::JobRecord* to) {
  to_wire(from.view, to->mutable_view());
  to->set_token(from.token);
  to->set_since(from.since);
  for (const core::LocalPlace& place : from.local) {
    wire::LocalPlace* p = to->add_local();
    p->set_session(place.session);
    p->set_rank(place.rank);
    p->set_local_rank(place.local_rank);
    p->set_pid(place.pid);
    p->set_claim(place.claim);
    p->set_present(place.present);
  }
  for (const core::LostRank& lost : from.lost) {
    wire::LostRank* l = to->add_lost();
    l->set_rank(lost.rank);
    bounded_to_wire(lost.failure, l->mutable_failure());
  }
  for (const std::string& node : from.done) to->add_done(node);
  write_acceptor(from.acceptor, to->mutable_acceptor());
}

bool from_wire(const wire::JobRecord& from, core::JobRecord* to) {
  if (!read_view(from.view(), &to->view)) return false;
  to->token = from.token();
  to->since = from.since();
  for (const wire::LocalPlace& place : from.local()) {
    to->local.push_back({place.session(), place.rank(), place.local_rank(), place.pid(),
                         place.claim(), place.present()});
  }
  for (const wire::LostRank& lost : from.lost()) {
    core::LostRank& l = to->lost.emplace_back();
    l.rank = lost.rank();
    if (!bounded_from_wire(lost.failure(), &l.failure)) return false;
  }
  to->done = {from.done().begin(), from.done().end()};
  return read_acceptor(from.acceptor(), to->view.incarnation, &to->acceptor);
}

void to_wire(const NonfiniteOrigin& from, wire::NonfiniteRecord* to) {
  to->set_kind(static_cast<uint32_t>(from.kind));
  to->set_rank(from.rank);
  gradring::to_wire(from.key, to->mutable_key());
  to->set_name(from.name);
  to->set_element(from.element);
  to->set_at(from.at);
  to->set_pid(from.pid);
}

bool from_wire(const wire::NonfiniteRecord& from, NonfiniteOrigin* to) {
  if (from.kind() > static_cast<uint32_t>(NonfiniteOrigin::Kind::kOverflow)) return false;
  to->kind = static_cast<NonfiniteOrigin::Kind>(from.kind());
  to->rank = from.rank();
  to->key = gradring::from_wire(from.key());
  to->name = from.name();
  to->element = from.element();
  to->at = from.at();
  to->pid = from.pid();
  return true;
}

void to_wire(const core::LocalRecord& from, wire::LocalRecord* to) {
  to->set_rank(from.rank);
  if (from.left) bounded_to_wire(*from.left, to->mutable_left());
  to->set_submitted(from.submitted);
  to->set_join_points(from.join_points);
}

bool from_wire(const wire::LocalRecord& from, core::LocalRecord* to) {
  to->rank = from.rank();
  to->submitted = from.submitted();
  to->join_points = from.join_points();
  to->left.reset();
  return !from.has_left() || bounded_from_wire(from.left(), &to->left.emplace());
}

void to_wire(const core::Submission& from, wire::SubmissionRecord* to) {
  to->set_rank(from.rank);
  to->set_ticket(from.ticket);
  gradring::to_wire(from.signature, to->mutable_signature());
  to->set_input_segment(from.input.segment);
  to->set_input_offset(from.input.offset);
  to->set_output_segment(from.output.segment);
  to->set_output_offset(from.output.offset);
  to->set_position(from.position);
  to->set_prescale(factor_to_wire(from.prescale));
  to->set_priority(from.priority);
  gradring::to_wire(from.signature.blocks, to->mutable_counts());
}

bool from_wire(const wire::SubmissionRecord& from, const OpKey& key, const std::string& name,
               core::Submission* to) {
  to->rank = from.rank();
  to->ticket = from.ticket();
  to->key = key;
  to->name = name;
  to->input = {from.input_segment(), from.input_offset()};
  to->output = {from.output_segment(), from.output_offset()};
  to->position = from.position();
  to->prescale = factor_from_wire(from.prescale());
  to->priority = from.priority();
  const Signature& s = to->signature;
  return gradring::from_wire(from.signature(), &to->signature) &&
         gradring::from_wire(from.counts(), &to->signature) &&
         can_scale(s.collective, s.dtype, to->prescale).ok();
}

void to_wire(uint32_t number, const KeptSlices::Place& from, wire::KeptPlace* to) {
  to->set_number(number);
  to->set_offset(from.offset);
  to->set_length(from.length);
}

void to_wire(const core::OpRecord& from, const KeptSlices& kept, wire::OpRecord* to) {
  gradring::to_wire(from.key, to->mutable_key());
  to->set_name(from.name);
  to->set_state(static_cast<uint32_t>(from.state));
  if (from.signature) gradring::to_wire(*from.signature, to->mutable_signature());
  for (const core::Submission& local : from.locals) to_wire(local, to->add_locals());
  to->set_since(from.since.value_or(0));
  to->set_expected(from.expected);
  to->set_slice_bytes(from.slice_bytes);
  to->set_root_node(from.root_node);
  to->set_spared(from.spared);
  for (const core::RankPlace& seat : from.seats) {
    wire::RankPlace* s = to->add_seats();
    s->set_rank(seat.rank);
    s->set_node(seat.node);
  }
  for (const core::SliceRecord& slice : from.slices) {
    wire::SliceState* s = to->add_slices();
    s->set_state(static_cast<uint32_t>(slice.state));
    s->set_epoch(slice.value.epoch);
    s->set_ranks(slice.value.ranks);
    if (slice.kept) to_wire(*slice.kept, kept.place(*slice.kept), s->mutable_kept());
  }
  to->mutable_outcome()->set_epoch(from.outcome.epoch);
  to->mutable_outcome()->set_ranks(from.outcome.ranks);
  if (from.failure.cause != Cause::kNone) bounded_to_wire(from.failure, to->mutable_failure());
}

bool from_wire(const wire::OpRecord& from, core::OpRecord* to, KeptPlaces* places) {
  to->key = gradring::from_wire(from.key());
  to->name = from.name();
  if (from.state() > kOpStateLast) return false;
  to->state = static_cast<core::OpState>(from.state());
  if (from.has_signature() && !gradring::from_wire(from.signature(), &to->signature.emplace())) {
    return false;
  }
  for (const wire::SubmissionRecord& local : from.locals()) {
    if (!from_wire(local, to->key, to->name, &to->locals.emplace_back())) return false;
  }
  if (from.since() != 0) to->since = from.since();
  to->expected = from.expected();
  to->slice_bytes = from.slice_bytes();
  to->root_node = from.root_node();
  to->spared = from.spared();
  for (const wire::RankPlace& seat : from.seats()) to->seats.push_back({seat.rank(), seat.node()});
  for (const wire::SliceState& slice : from.slices()) {
    if (slice.state() > kSliceStateLast) return false;
    core::SliceRecord& s = to->slices.emplace_back();
    s.state = static_cast<core::SliceState>(slice.state());
    s.value = {slice.epoch(), slice.ranks()};
    if (!slice.has_kept()) continue;
    s.kept = slice.kept().number();
    (*places)[*s.kept] = {slice.kept().offset(), slice.kept().length(), 0};
  }
  to->outcome = {from.outcome().epoch(), from.outcome().ranks()};
  return !from.has_failure() || bounded_from_wire(from.failure(), &to->failure);
}

void to_wire(const core::EngineRecord& from, wire::EngineHead* to) {
  std::vector<core::OpFate> carried;
  for (const auto& [key, fate] : from.carried) carried.push_back(fate);
  to_wire(core::Proposal{from.view, std::move(carried)}, to->mutable_begun());
  core::Report known;
  known.node = from.view.members.front().node;  // somebody's: a report has one
  known.ended = from.ended_keys;
  known.failed = {from.failed.begin(), from.failed.end()};
  to_wire(known, to->mutable_known());
  for (const core::LocalRecord& local : from.locals) to_wire(local, to->add_locals());
}

bool from_wire(const wire::EngineHead& from, core::EngineRecord* to) {
  core::View view;
  if (!read_view(from.begun().view(), &view)) return false;
  core::Proposal begun{view, {}};
  // The first view was not proposed in that way, and nothing was carried into it.
  const bool carried = !from.begun().ops().empty();
  if (carried && !from_wire(from.begun(), view.incarnation, view.epoch - 1, &begun)) return false;
  core::Report known;
  if (!from_wire(from.known(), view.epoch, &known)) return false;
  to->view = std::move(begun.view);
  for (const core::OpFate& fate : begun.ops.all()) to->carried[fate.key] = fate;
  to->ended_keys = std::move(known.ended);
  to->failed = {known.failed.begin(), known.failed.end()};
  for (const wire::LocalRecord& local : from.locals()) {
    if (!from_wire(local, &to->locals.emplace_back())) return false;
  }
  return true;
}

void to_wire(core::SessionId session, uint64_t ticket, const core::Outcome& from, wire::Told* to) {
  to->set_session(session);
  to->set_ticket(ticket);
  to->set_verdict(static_cast<uint32_t>(from.verdict));
  if (from.verdict == Verdict::kFailed) bounded_to_wire(from.failure, to->mutable_failure());
  to->set_epoch(from.epoch);
  to->set_ranks_min(from.ranks_min);
  to->set_ranks_max(from.ranks_max);
}

bool from_wire(const wire::Told& from, core::Outcome* to) {
  if (from.verdict() > static_cast<uint32_t>(Verdict::kFailed)) return false;
  to->verdict = static_cast<Verdict>(from.verdict());
  to->epoch = from.epoch();
  to->ranks_min = from.ranks_min();
  to->ranks_max = from.ranks_max();
  return !from.has_failure() || bounded_from_wire(from.failure(), &to->failure);
}

}  // namespace gradring::daemon
