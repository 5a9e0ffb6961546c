#include "daemon/wire/change_wire.h"

#include <utility>

#include "daemon/wire/report_wire.h"
#include "daemon/wire/view_wire.h"

namespace gradring::daemon {
namespace {

// Rounds are counted one by one. One that leaves no room for a next would be the last ballot ever.
constexpr uint64_t kRoundMax = uint64_t{1} << 48;

void fill(const core::Ballot& from, wire::Ballot* to) {
  to->set_round(from.round);
  to->set_node(from.node);
}

bool ballot_of(const wire::Ballot& from, core::Ballot* to) {
  if (from.round() == 0 || from.round() > kRoundMax || !names_node(from.node())) return false;
  *to = {from.round(), from.node()};
  return true;
}

// What all of them begin with.
template <typename Message, typename Wire>
void fill_head(const Message& from, Wire* to) {
  gradring::to_wire(from.incarnation, to->mutable_incarnation());
  to->set_epoch(from.epoch);
}

template <typename Wire, typename Message>
bool read_head(const Wire& from, Message* to) {
  to->epoch = from.epoch();
  return gradring::from_wire(from.incarnation(), &to->incarnation);
}

std::optional<core::JobMessage> prepare_of(const wire::Prepare& from) {
  core::change::Prepare prepare;
  if (!read_head(from, &prepare) || !ballot_of(from.ballot(), &prepare.ballot)) return std::nullopt;
  prepare.patient = from.patient();
  return prepare;
}

std::optional<core::JobMessage> accepted_of(const wire::Accepted& from) {
  core::change::Accepted message;
  if (!read_head(from, &message) || !ballot_of(from.ballot(), &message.ballot)) return std::nullopt;
  return message;
}

// Accept and Commit. `ends`: the epoch that the message ends.
template <typename Message, typename Wire>
std::optional<core::JobMessage> proposal_message_of(const Wire& from, uint64_t ends) {
  Message message;
  if (!read_head(from, &message) || !ballot_of(from.ballot(), &message.ballot) ||
      !from_wire(from.proposal(), message.incarnation, ends, &message.proposal)) {
    return std::nullopt;
  }
  return message;
}

std::optional<core::JobMessage> promise_of(const wire::Promise& from) {
  core::change::Promise promise;
  if (!read_head(from, &promise) || !ballot_of(from.ballot(), &promise.ballot) ||
      !from_wire(from.report(), promise.epoch, &promise.report)) {
    return std::nullopt;
  }
  if (!from.has_accepted()) return promise;
  core::Vote& vote = promise.accepted.emplace();
  if (!ballot_of(from.accepted().ballot(), &vote.ballot) ||
      !from_wire(from.accepted().proposal(), promise.incarnation, promise.epoch, &vote.proposal)) {
    return std::nullopt;
  }
  return promise;
}

std::optional<core::JobMessage> refuse_of(const wire::Refuse& from) {
  core::change::Refuse refuse;
  if (!read_head(from, &refuse) || !ballot_of(from.promised(), &refuse.promised))
    return std::nullopt;
  return refuse;
}

std::optional<core::JobMessage> ask_of(const wire::Ask& from) {
  core::change::Ask ask;
  if (!read_head(from, &ask)) return std::nullopt;
  return ask;
}

}  // namespace

void fill(const core::change::Prepare& from, wire::PeerMessage* to) {
  fill_head(from, to->mutable_prepare());
  fill(from.ballot, to->mutable_prepare()->mutable_ballot());
  to->mutable_prepare()->set_patient(from.patient);
}
void fill(const core::change::Promise& from, wire::PeerMessage* to) {
  wire::Promise* promise = to->mutable_promise();
  fill_head(from, promise);
  fill(from.ballot, promise->mutable_ballot());
  if (from.accepted) {
    fill(from.accepted->ballot, promise->mutable_accepted()->mutable_ballot());
    to_wire(from.accepted->proposal, promise->mutable_accepted()->mutable_proposal());
  }
  to_wire(from.report, promise->mutable_report());
}
void fill(const core::change::Accept& from, wire::PeerMessage* to) {
  wire::AcceptView* accept = to->mutable_accept_view();
  fill_head(from, accept);
  fill(from.ballot, accept->mutable_ballot());
  to_wire(from.proposal, accept->mutable_proposal());
}
void fill(const core::change::Accepted& from, wire::PeerMessage* to) {
  fill_head(from, to->mutable_accepted());
  fill(from.ballot, to->mutable_accepted()->mutable_ballot());
}
void fill(const core::change::Commit& from, wire::PeerMessage* to) {
  wire::CommitView* commit = to->mutable_commit_view();
  fill_head(from, commit);
  fill(from.ballot, commit->mutable_ballot());
  to_wire(from.proposal, commit->mutable_proposal());
}
void fill(const core::change::Refuse& from, wire::PeerMessage* to) {
  fill_head(from, to->mutable_refuse());
  fill(from.promised, to->mutable_refuse()->mutable_promised());
}
void fill(const core::change::Ask& from, wire::PeerMessage* to) {
  fill_head(from, to->mutable_ask());
}

std::optional<core::JobMessage> change_message_of(const wire::PeerMessage& message) {
  switch (message.body_case()) {
    case wire::PeerMessage::kPrepare:
      return prepare_of(message.prepare());
    case wire::PeerMessage::kPromise:
      return promise_of(message.promise());
    case wire::PeerMessage::kAcceptView:
      return proposal_message_of<core::change::Accept>(message.accept_view(),
                                                       message.accept_view().epoch());
    case wire::PeerMessage::kAccepted:
      return accepted_of(message.accepted());
    case wire::PeerMessage::kCommitView:
      // Epoch 0 begins nothing, and no view is of the one after the last.
      return proposal_message_of<core::change::Commit>(message.commit_view(),
                                                       message.commit_view().epoch() - 1);
    case wire::PeerMessage::kRefuse:
      return refuse_of(message.refuse());
    case wire::PeerMessage::kAsk:
      return ask_of(message.ask());
    default:
      return std::nullopt;
  }
}

}  // namespace gradring::daemon
