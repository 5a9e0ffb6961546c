#include "daemon/wire/peer_wire.h"

#include "daemon/wire/change_wire.h"

namespace gradring::daemon {
namespace {

// One for each message of the core, with those of change_wire.h: the visitor in to_wire() picks.
void fill(const core::Claims& from, wire::PeerMessage* to) {
  wire::Claims* claims = to->mutable_claims();
  claims->set_job(from.job);
  claims->set_token(from.token);
  claims->set_revision(from.revision);
  claims->set_uid(from.uid);
  claims->set_size(from.size);
  claims->set_policy(from.policy);
  claims->set_deterministic(from.deterministic);
  for (const core::RankInfo& rank : from.ranks) daemon::to_wire(rank, claims->add_ranks());
}
void fill(const core::Propose& from, wire::PeerMessage* to) {
  to->mutable_propose()->set_token(from.token);
  to->mutable_propose()->set_invited_in(from.invited_in);
  daemon::to_wire(from.view, to->mutable_propose()->mutable_view());
}
void fill(const core::Accept& from, wire::PeerMessage* to) {
  gradring::to_wire(from.incarnation, to->mutable_accept()->mutable_incarnation());
  to->mutable_accept()->set_invited_in(from.invited_in);
}
void fill(const core::Reject& from, wire::PeerMessage* to) {
  gradring::to_wire(from.incarnation, to->mutable_reject()->mutable_incarnation());
  to->mutable_reject()->set_reason(shortened(from.reason));
}
void fill(const core::Commit& from, wire::PeerMessage* to) {
  gradring::to_wire(from.incarnation, to->mutable_commit()->mutable_incarnation());
}
void fill(const core::JobFailed& from, wire::PeerMessage* to) {
  wire::JobFailed* failed = to->mutable_job_failed();
  gradring::to_wire(from.incarnation, failed->mutable_incarnation());
  failed->set_epoch(from.epoch);
  bounded_to_wire(from.failure, failed->mutable_failure());
}
void fill(const core::JobDone& from, wire::PeerMessage* to) {
  gradring::to_wire(from.incarnation, to->mutable_job_done()->mutable_incarnation());
  to->mutable_job_done()->set_in_good_order(from.in_good_order);
  to->mutable_job_done()->set_epoch(from.epoch);
}
void fill(const core::Left& from, wire::PeerMessage* to) {
  gradring::to_wire(from.incarnation, to->mutable_job_left()->mutable_incarnation());
  bounded_to_wire(from.failure, to->mutable_job_left()->mutable_failure());
  to->mutable_job_left()->set_epoch(from.epoch);
}
void fill(const core::Unwelcome& from, wire::PeerMessage* to) {
  to->mutable_unwelcome()->set_job(from.job);
  to->mutable_unwelcome()->set_token(from.token);
  to->mutable_unwelcome()->set_why(shortened(from.why));
}

std::optional<core::JobMessage> claims_of(const wire::Claims& from) {
  if (from.job().empty() || from.job().size() > kJobNameMax || from.token().size() > kTokenMax ||
      from.policy().size() > kTextMax) {
    return std::nullopt;
  }
  core::Claims claims;
  claims.job = from.job();
  claims.token = from.token();
  claims.revision = from.revision();
  claims.uid = from.uid();
  claims.size = from.size();
  claims.policy = from.policy();
  claims.deterministic = from.deterministic();
  for (const wire::RankInfo& rank : from.ranks()) {
    core::RankInfo& info = claims.ranks.emplace_back();
    // What is claimed has come in nowhere yet.
    if (!from_wire(rank, &info) || info.since != core::RankInfo{}.since) return std::nullopt;
  }
  return claims;
}

std::optional<core::JobMessage> propose_of(const wire::Propose& from) {
  core::Propose propose;
  if (from.token().size() > kTokenMax || !from_wire(from.view(), &propose.view))
    return std::nullopt;
  propose.token = from.token();
  propose.invited_in = from.invited_in();
  return propose;
}

std::optional<core::JobMessage> accept_of(const wire::Accept& from) {
  core::Accept accept;
  if (!gradring::from_wire(from.incarnation(), &accept.incarnation)) return std::nullopt;
  accept.invited_in = from.invited_in();
  return accept;
}

std::optional<core::JobMessage> commit_of(const wire::Commit& from) {
  core::Commit commit;
  if (!gradring::from_wire(from.incarnation(), &commit.incarnation)) return std::nullopt;
  return commit;
}

std::optional<core::JobMessage> job_failed_of(const wire::JobFailed& from) {
  core::JobFailed failed;
  if (!gradring::from_wire(from.incarnation(), &failed.incarnation) ||
      !bounded_from_wire(from.failure(), &failed.failure)) {
    return std::nullopt;
  }
  failed.epoch = from.epoch();
  return failed;
}

std::optional<core::JobMessage> left_of(const wire::JobLeft& from) {
  core::Left left;
  if (!gradring::from_wire(from.incarnation(), &left.incarnation) ||
      !bounded_from_wire(from.failure(), &left.failure)) {
    return std::nullopt;
  }
  left.epoch = from.epoch();
  return left;
}

std::optional<core::JobMessage> unwelcome_of(const wire::Unwelcome& from) {
  if (from.job().size() > kJobNameMax || from.token().size() > kTokenMax ||
      from.why().size() > kTextMax) {
    return std::nullopt;
  }
  return core::Unwelcome{from.job(), from.token(), from.why()};
}

std::optional<core::JobMessage> reject_of(const wire::Reject& from) {
  core::Reject reject;
  if (!gradring::from_wire(from.incarnation(), &reject.incarnation) ||
      from.reason().size() > kTextMax) {
    return std::nullopt;
  }
  reject.reason = from.reason();
  return reject;
}

std::optional<core::JobMessage> job_done_of(const wire::JobDone& from) {
  core::JobDone done;
  if (!gradring::from_wire(from.incarnation(), &done.incarnation)) return std::nullopt;
  done.in_good_order = from.in_good_order();
  done.epoch = from.epoch();
  return done;
}

}  // namespace

wire::PeerMessage to_wire(const core::JobMessage& message) {
  wire::PeerMessage result;
  std::visit([&result](const auto& m) { fill(m, &result); }, message);
  return result;
}

std::optional<core::JobMessage> job_message_of(const wire::PeerMessage& message) {
  switch (message.body_case()) {
    case wire::PeerMessage::kClaims:
      return claims_of(message.claims());
    case wire::PeerMessage::kPropose:
      return propose_of(message.propose());
    case wire::PeerMessage::kAccept:
      return accept_of(message.accept());
    case wire::PeerMessage::kReject:
      return reject_of(message.reject());
    case wire::PeerMessage::kCommit:
      return commit_of(message.commit());
    case wire::PeerMessage::kJobFailed:
      return job_failed_of(message.job_failed());
    case wire::PeerMessage::kJobDone:
      return job_done_of(message.job_done());
    case wire::PeerMessage::kJobLeft:
      return left_of(message.job_left());
    case wire::PeerMessage::kUnwelcome:
      return unwelcome_of(message.unwelcome());
    default:
      return change_message_of(message);
  }
}

}  // namespace gradring::daemon
