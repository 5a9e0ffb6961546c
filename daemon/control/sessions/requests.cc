#include "daemon/control/sessions/requests.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <spdlog/spdlog.h>

#include <cstdint>
#include <utility>

#include "daemon/control/sessions/attach.h"
#include "daemon/wire/peer_wire.h"
#include "daemon/wire/view_wire.h"
#include "proto/version.h"

namespace gradring::daemon {
namespace {

// A library of ours sends none, a broken program soon this many.
constexpr uint32_t kMalformedMax = 16;

// Questions, and what opens a session, are short. To read what is not would take long, and anybody
// can have as many connections as there are descriptors.
constexpr size_t kWithoutSessionMax = 4096;

constexpr const char* kNoSession =
    "no session is open on this connection: attach first (the daemon may have restarted)";

// Of a message that is not read as a whole, which begins with that. 0: it does not.
uint64_t request_of(const std::string& body) {
  constexpr int kVarint = 0, kTypeBits = 3, kBeginning = 32;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(body.data()),
                                            kBeginning);
  for (;;) {
    const uint32_t tag = in.ReadTag();
    uint64_t value = 0;
    if (tag == 0 || (tag & ((1 << kTypeBits) - 1)) != kVarint || !in.ReadVarint64(&value)) return 0;
    if (tag >> kTypeBits == wire::ClientMessage::kRequestFieldNumber) return value;
  }
}

bool from_wire(const wire::Within& from, core::Within* to) {
  to->grown = from.grown();
  to->ranks.assign(from.ranks().begin(), from.ranks().end());
  return gradring::from_wire(from.incarnation(), &to->job);
}

}  // namespace

void Requests::handle(const ClientRouter::Received& received, core::Time now) {
  if (received.body.size() > kWithoutSessionMax &&
      parts_.sessions->find_by_route(received.routing_id) == nullptr) {
    // By its number: after a restart of this daemon a trainer's next connection says it again, and
    // a refusal without one would be the end of its session.
    return parts_.clients->refuse(received.routing_id, request_of(received.body),
                                  {Code::kAborted, kNoSession});
  }
  wire::ClientMessage message;
  if (!message.ParseFromString(received.body)) return malformed(received);
  const Asked asked{received.routing_id, received.who, message.request()};
  const auto refuse = [&](Code code, const std::string& why) {
    parts_.clients->refuse(received.routing_id, message.request(), {code, why});
  };
  const Protocols theirs{message.oldest_protocol(), message.protocol()};
  if (!common_protocol(kClientProtocols, theirs)) {
    return refuse(
        Code::kIncompatible,
        fmt::format("this daemon (gradringd {}) speaks client protocol {}, the message says {}; "
                    "install the same release of daemon and library",
                    kProductVersion, describe(kClientProtocols), describe(theirs)));
  }
  switch (message.body_case()) {
    case wire::ClientMessage::BODY_NOT_SET:
      return malformed(received);
    case wire::ClientMessage::kQuery:
      return parts_.queries->query(received.routing_id, received.who, message.request(),
                                   message.query());
    case wire::ClientMessage::kOpen:
      return open(asked, message.open());
    default:
      break;
  }
  Session* session = parts_.sessions->find_by_route(received.routing_id);
  if (session == nullptr) {
    return refuse(Code::kAborted, kNoSession);
  }
  if (session->who != received.who) {
    return refuse(
        Code::kPermissionDenied,
        fmt::format("the session belongs to uid {} pid {}, the connection to uid {} pid {}",
                    session->who.uid, session->who.pid, received.who.uid, received.who.pid));
  }
  switch (message.body_case()) {
    case wire::ClientMessage::kJoin:
      return join(asked, *session, message.join(), now);
    case wire::ClientMessage::kSubmit:
      return submit(*session, message.submit());
    case wire::ClientMessage::kLeave:
      return leave(asked, *session, message.leave());
    case wire::ClientMessage::kFree:
      return free(asked, *session, message.free());
    case wire::ClientMessage::kShareGpu:
      return share_gpu(asked, *session, message.share_gpu());
    default:
      return malformed(received);
  }
}

void Requests::malformed(const ClientRouter::Received& received) {
  ++malformed_;
  parts_.clients->refuse(received.routing_id, 0, {Code::kInvalidArgument, "malformed message"});
  Session* session = parts_.sessions->find_by_route(received.routing_id);
  if (session != nullptr && ++session->malformed >= kMalformedMax) {
    parts_.session_events->session_ended(
        session->id, fmt::format("sent {} malformed messages and was disconnected", kMalformedMax));
  }
}

void Requests::open(const Asked& asked, const wire::OpenSession& open) {
  const auto refuse = [&](Code code, const std::string& why) {
    parts_.clients->refuse(asked.routing_id, asked.request, {code, why});
  };
  Session* session = parts_.sessions->find(open.session());
  if (session == nullptr || session->gone || !session->welcomed) {
    return refuse(Code::kNotFound, "unknown session: attach again (the daemon may have restarted)");
  }
  if (!equal_secrets(session->secret, open.secret())) {
    return refuse(Code::kPermissionDenied, "the secret does not fit the session");
  }
  if (session->who != asked.who) {
    return refuse(
        Code::kPermissionDenied,
        fmt::format("the session belongs to uid {} pid {}, the connection to uid {} pid {}",
                    session->who.uid, session->who.pid, asked.who.uid, asked.who.pid));
  }
  // Who waits long opens by another connection, which may be heard before the one that was given
  // up.
  if (asked.request < session->opened_by) {
    return refuse(Code::kAborted, "the session was opened by a later connection");
  }
  session->opened_by = asked.request;
  parts_.sessions->bind_route(*session, asked.routing_id);
  wire::DaemonMessage message;
  message.set_request(asked.request);
  message.mutable_opened();
  parts_.clients->tell_opened(*session, std::move(message));
  if (session->resumed) parts_.jobs->tell_again(*session);
}

void Requests::join(const Asked& asked, Session& session, const wire::Join& join, core::Time now) {
  const auto refuse = [&](const Status& why) {
    parts_.clients->refuse(asked.routing_id, asked.request, why);
  };
  if (draining_) {
    return refuse({Code::kUnavailable,
                   fmt::format("node {} is being stopped and takes no new jobs", config_.node)});
  }
  const core::View* view = parts_.membership->view_of(session.id);
  if (session.resumed && session.part == JobPart::kJoined && view != nullptr &&
      view->job == join.job() && session.rank == join.rank()) {
    return parts_.jobs->tell_joined(session, asked.request);  // it had not heard of it
  }
  if (session.part != JobPart::kNone) {
    return refuse(
        {Code::kInvalidArgument, "this session is in a job already; leave that one first"});
  }
  if (join.job().size() > kJobNameMax || join.token().size() > kTokenMax) {
    return refuse(
        {Code::kInvalidArgument,
         fmt::format("a job's name may have {} bytes and its token {}", kJobNameMax, kTokenMax)});
  }
  // Records and peers take no view with more.
  constexpr size_t kPolicyMax = 256;
  if (join.policy().size() > kPolicyMax) {
    return refuse(
        {Code::kInvalidArgument, fmt::format("a job's policy may have {} bytes", kPolicyMax)});
  }
  constexpr uint64_t kTimeoutMax = 365ull * 24 * 3600 * 1000;  // keeps the sum with now in range
  core::JoinRequest request;
  request.session = session.id;
  request.job = join.job();
  request.token = join.token();
  request.rank = join.rank();
  request.size = join.size();
  request.local_rank = join.local_rank();
  request.policy = join.policy().empty() ? config_.policy : join.policy();
  request.deterministic = join.deterministic() || config_.deterministic;
  request.uid = session.who.uid;
  request.pid = session.who.pid;
  request.timeout =
      static_cast<core::Time>(std::min(join.timeout_ms(), kTimeoutMax)) * core::kMillisecond;

  if (join.has_within() && (static_cast<uint32_t>(join.within().ranks_size()) != join.size() ||
                            !from_wire(join.within(), &request.within.emplace()))) {
    return refuse({Code::kInvalidArgument,
                   fmt::format("job {} is said to be within another one, but not by {} of its "
                               "ranks and its incarnation; this is a fault of the client library",
                               join.job(), join.size())});
  }

  session.part = JobPart::kJoining;  // before the call: it may answer at once
  session.join_request = asked.request;
  session.job_name = join.job();
  session.rank = join.rank();
  FlightEvent joins{.kind = FlightKind::kTrainerJoins, .rank = join.rank()};
  joins.value = static_cast<uint64_t>(session.who.pid);
  parts_.flight->record(joins, join.job());
  const Status status = parts_.membership->join(request, now);
  if (status.ok()) return;
  session.part = JobPart::kNone;
  refuse(status);
}

void Requests::leave(const Asked& asked, Session& session, const wire::Leave& leave) {
  if (const std::string fault = fault_of_handle(session, leave.job()); !fault.empty()) {
    return parts_.clients->refuse(asked.routing_id, asked.request,
                                  {Code::kPermissionDenied, fault});
  }
  // Each op that ends with it tells every rank so.
  constexpr size_t kWordsMax = 512;
  if (!leave.failed().empty() && session.part != JobPart::kClosed) {
    parts_.session_events->trainer_failed(&session, shortened(leave.failed(), kWordsMax));
  } else {
    FlightEvent left{.kind = FlightKind::kTrainerLeft, .rank = session.rank};
    left.job = prefix_of(session.job);
    left.value = static_cast<uint64_t>(session.who.pid);
    parts_.flight->record(left);
    parts_.jobs->mark_over(session, "left");
    parts_.rings->close(session);
    parts_.membership->leave(session.id);
  }
  session.part = JobPart::kNone;
  session.handle = 0;
  parts_.sessions->save(session);
  wire::DaemonMessage message;
  message.set_request(asked.request);
  message.mutable_left();
  parts_.clients->tell(session, std::move(message));
}

void Requests::free(const Asked& asked, Session& session, const wire::FreeSegment& free) {
  const auto held = session.segments.find(free.segment());
  const bool in_use = held != session.segments.end() && held->second.uses > 0;
  if (!in_use && parts_.rings->take_back(session, free.segment(), asked.request)) return;
  free_now(session, asked.request, free.segment());
}

void Requests::taken_back(Session& session, const SegmentTakenBack& back) {
  if (back.free) return free_now(session, back.request, back.segment);
  parts_.clients->refuse(
      session.routing_id, back.request,
      {Code::kInvalidArgument,
       fmt::format("segment {} is in use by open ops; wait for them first", back.segment)});
}

void Requests::free_now(Session& session, uint64_t request, uint64_t segment) {
  const auto it = session.segments.find(segment);
  const bool lends =
      it != session.segments.end() && it->second.gpu_asked && !it->second.gpu_borrowed;
  const auto on_gpu = lends ? it->second.gpu : nullptr;
  Charges& charges = parts_.sessions->charges();
  const uint64_t set_aside = charges.set_aside();
  const Status status = parts_.sessions->free(session, segment);
  if (!status.ok()) return parts_.clients->refuse(session.routing_id, request, status);
  if (lends && on_gpu == nullptr) {
    session.freed_early[segment] = request;
    return;
  }
  if (lends) return close_gpu(session, request, on_gpu);
  if (charges.set_aside() == set_aside) return tell_freed(session, request);
  once_free(session.id, request)();
}

std::function<void()> Requests::once_free(SessionId session, uint64_t request) const {
  return [charges = &parts_.sessions->charges(), events = parts_.events, session, request] {
    charges->when_free([events, session, request] {
      events->post(SegmentFreed{session, request});
    });
  };
}

void Requests::segment_freed(const SegmentFreed& freed) {
  Session* const session = parts_.sessions->find(freed.session);
  if (session != nullptr && !session->gone) tell_freed(*session, freed.request);
}

void Requests::tell_freed(Session& session, uint64_t request) {
  wire::DaemonMessage message;
  message.set_request(request);
  message.mutable_freed();
  parts_.clients->tell(session, std::move(message));
}

}  // namespace gradring::daemon
