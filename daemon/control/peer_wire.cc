#include "daemon/control/peer_wire.h"

#include <utility>

namespace gradring::daemon {
namespace {

void fill(const core::RankInfo& from, wire::RankInfo* to) {
  to->set_rank(from.rank);
  to->set_local_rank(from.local_rank);
  to->set_pid(from.pid);
  to->set_claim(from.claim);
}

core::RankInfo rank_of(const wire::RankInfo& from) {
  return {from.rank(), from.local_rank(), from.pid(), from.claim()};
}

// One for each message of the core: the visitor in to_wire() picks.
void fill(const core::Claims& from, wire::PeerMessage* to) {
  wire::Claims* claims = to->mutable_claims();
  claims->set_job(from.job);
  claims->set_token(from.token);
  claims->set_revision(from.revision);
  claims->set_uid(from.uid);
  claims->set_size(from.size);
  claims->set_policy(from.policy);
  for (const core::RankInfo& rank : from.ranks) fill(rank, claims->add_ranks());
}
void fill(const core::Propose& from, wire::PeerMessage* to) {
  to->mutable_propose()->set_token(from.token);
  daemon::to_wire(from.view, to->mutable_propose()->mutable_view());
}
void fill(const core::Accept& from, wire::PeerMessage* to) {
  gradring::to_wire(from.incarnation, to->mutable_accept()->mutable_incarnation());
}
void fill(const core::Reject& from, wire::PeerMessage* to) {
  gradring::to_wire(from.incarnation, to->mutable_reject()->mutable_incarnation());
  to->mutable_reject()->set_reason(from.reason);
}
void fill(const core::Commit& from, wire::PeerMessage* to) {
  gradring::to_wire(from.incarnation, to->mutable_commit()->mutable_incarnation());
}
void fill(const core::JobFailed& from, wire::PeerMessage* to) {
  wire::JobFailed* failed = to->mutable_job_failed();
  gradring::to_wire(from.incarnation, failed->mutable_incarnation());
  failed->set_epoch(from.epoch);
  gradring::to_wire(from.failure, failed->mutable_failure());
}
void fill(const core::JobDone& from, wire::PeerMessage* to) {
  gradring::to_wire(from.incarnation, to->mutable_job_done()->mutable_incarnation());
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
  for (const wire::RankInfo& rank : from.ranks()) claims.ranks.push_back(rank_of(rank));
  return claims;
}

std::optional<core::JobMessage> propose_of(const wire::Propose& from) {
  core::Propose propose;
  if (from.token().size() > kTokenMax || !from_wire(from.view(), &propose.view))
    return std::nullopt;
  propose.token = from.token();
  return propose;
}

std::optional<core::JobMessage> job_failed_of(const wire::JobFailed& from) {
  core::JobFailed failed;
  if (!gradring::from_wire(from.incarnation(), &failed.incarnation) ||
      !gradring::from_wire(from.failure(), &failed.failure) ||
      failed.failure.blame.evidence.size() > kTextMax) {
    return std::nullopt;
  }
  failed.epoch = from.epoch();
  return failed;
}

// For those that name a job and little else.
template <typename Message>
std::optional<core::JobMessage> simple_of(const std::string& incarnation) {
  Message message;
  if (!gradring::from_wire(incarnation, &message.incarnation)) return std::nullopt;
  return message;
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

}  // namespace

void to_wire(const core::View& from, wire::View* to) {
  to->set_job(from.job);
  gradring::to_wire(from.incarnation, to->mutable_incarnation());
  to->set_epoch(from.epoch);
  to->set_size(from.size);
  to->set_policy(from.policy);
  to->set_uid(from.uid);
  for (const core::Member& member : from.members) {
    wire::Member* m = to->add_members();
    m->set_node(member.node);
    for (const core::RankInfo& rank : member.ranks) fill(rank, m->add_ranks());
  }
}

bool from_wire(const wire::View& from, core::View* to) {
  if (from.job().empty() || from.job().size() > kJobNameMax || from.policy().size() > kTextMax ||
      !gradring::from_wire(from.incarnation(), &to->incarnation)) {
    return false;
  }
  to->job = from.job();
  to->epoch = from.epoch();
  to->size = from.size();
  to->policy = from.policy();
  to->uid = from.uid();
  to->members.clear();
  for (const wire::Member& m : from.members()) {
    if (m.node().empty() || m.node().size() > kNodeNameMax) return false;
    core::Member member{m.node(), {}};
    for (const wire::RankInfo& rank : m.ranks()) member.ranks.push_back(rank_of(rank));
    to->members.push_back(std::move(member));
  }
  return true;
}

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
      return simple_of<core::Accept>(message.accept().incarnation());
    case wire::PeerMessage::kReject:
      return reject_of(message.reject());
    case wire::PeerMessage::kCommit:
      return simple_of<core::Commit>(message.commit().incarnation());
    case wire::PeerMessage::kJobFailed:
      return job_failed_of(message.job_failed());
    case wire::PeerMessage::kJobDone:
      return simple_of<core::JobDone>(message.job_done().incarnation());
    default:
      return std::nullopt;
  }
}

}  // namespace gradring::daemon
