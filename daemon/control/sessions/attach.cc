#include "daemon/control/sessions/attach.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "daemon/control/door/doorkeeper.h"
#include "daemon/control/door/listener.h"
#include "daemon/control/door/packet.h"
#include "daemon/notice.h"
#include "proto/version.h"

namespace gradring::daemon {
namespace {

// That one packet hands over.
constexpr size_t kFdsMax = 3;

// Of one session, and not shared yet: each thread of a trainer that shares something has one.
constexpr size_t kOffersMax = 16;

constexpr size_t kPacketMax = 4096;  // a hello with a long program name

// A trainer says hello within microseconds of connecting; somebody who does not is no trainer.
constexpr core::Time kHelloTime = 5 * core::kSecond;

// A dying process closes its files shortly before it counts as ended, and may count as ended a
// little before the kernel says how. Looking so much longer tells a death, and the signal, from a
// connection that was closed on purpose.
constexpr core::Time kDyingTime = 20 * core::kMillisecond;

// One burst of connects must not keep the others waiting.
constexpr int kAcceptsPerTurn = 64;

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, 0) > 0;
}

// To one who has no session: best effort, it need not listen.
void send_refusal(int socket, const Status& why) {
  wire::AttachReply reply;
  reply.mutable_refused()->set_code(static_cast<uint32_t>(why.code()));
  reply.mutable_refused()->set_message(why.message());
  const std::string bytes = reply.SerializeAsString();
  (void)::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // What it has sent must not be left unread, or closing would reset the connection and lose the
  // answer.
  std::array<char, kPacketMax> ignored{};
  (void)recv(socket, ignored.data(), ignored.size(), MSG_DONTWAIT);
}

}  // namespace

Status AttachServer::open(FdStore* store) {
  auto listener = open_listener(path_, SOCK_SEQPACKET, store);
  if (!listener) return listener.error();
  listener_ = std::move(*listener);
  take_descriptors(listener_.get(), identity_.sums_on_gpus);
  epoll_->add(listener_.get(), tag_of(Source::kAttachListener));
  return {};
}

void AttachServer::on_listener(core::Time now) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno != EMFILE && errno != ENFILE) return;
      // The listener stays readable; looking away for a moment keeps this from being a busy loop.
      tell(Notice::kLimitHit, spdlog::level::warn, {},
           "out of file descriptors: new trainers must wait (raise LimitNOFILE)");
      epoll_->remove(listener_.get());
      accept_again_ = now + core::kSecond;
      return;
    }
    const Credentials who = credentials_of(socket.get());
    if (!is_one_user(who.uid)) {
      send_refusal(socket.get(),
                   {Code::kPermissionDenied,
                    "the user of this process is not mapped into the user namespace of "
                    "gradringd, which could not tell it from other users; run gradringd "
                    "outside of user namespaces, or in that of its trainers"});
      continue;
    }
    auto opened = leaves_enough_files(socket.get())
                      ? sessions_->open(who, now)
                      : tl::unexpected(Status(Code::kResourceExhausted, no_files_left()));
    if (!opened) {
      tell_limit(opened.error());
      send_refusal(socket.get(), opened.error());
      continue;
    }
    Session& session = **opened;
    session.socket = std::move(socket);
    if (!epoll_->add(session.socket.get(), tag_of(Source::kAttachSocket, session.id))) {
      sessions_->erase(session.id);
      return;
    }
  }
}

void AttachServer::on_socket(SessionId id, core::Time now) {
  Session* session = sessions_->find(id);
  if (session == nullptr || session->gone) return;
  std::array<char, kPacketMax> packet{};
  std::vector<Fd> with;
  const ssize_t size = receive_packet(session->socket.get(), packet, &with);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < 0 && errno == EMSGSIZE) {
    return events_->session_ended(id, "sent more descriptors on the attach socket than are taken");
  }
  if (size <= 0) return on_end_of_file(*session, now);

  wire::AttachRequest request;
  if (size > static_cast<ssize_t>(packet.size()) ||
      !request.ParseFromArray(packet.data(), static_cast<int>(size)) ||
      request.body_case() == wire::AttachRequest::BODY_NOT_SET ||
      request.has_hello() == session->welcomed) {
    refuse(*session, 0,
           {Code::kInvalidArgument, "malformed packet on the attach socket; is this libgradring?"});
    return events_->session_ended(id, "sent a malformed packet on the attach socket");
  }
  if (request.has_hello()) {
    welcome(*session, request.hello());
  } else if (request.has_rings()) {
    make_rings(*session, request.rings());
  } else if (request.has_borrow()) {
    borrow(*session, request.borrow());
  } else if (request.has_offer()) {
    offer(*session, request.offer(), std::move(with));
  } else {
    allocate(*session, request.allocate());
  }
}

// The session of before the restart, on the new socket. Null: refused, in words.
Session* AttachServer::resume(Session& fresh, const wire::Resume& resume) {
  Session* known = sessions_->find(resume.session());
  const bool fits = known != nullptr && !known->gone && known->away_until != 0 &&
                    known->who == fresh.who && equal_secrets(known->secret, resume.secret());
  if (!fits) {
    const SessionId id = fresh.id;  // it may end with a refusal that nobody takes
    refuse(
        fresh, 0,
        {Code::kNotFound,
         fmt::format("the daemon on node {} was restarted and knows nothing of this session (any "
                     "more); open the job anew",
                     identity_.node)});
    events_->session_ended(id, "asked for a session that is not known");
    return nullptr;
  }
  epoll_->remove(fresh.socket.get());
  known->socket = std::move(fresh.socket);
  sessions_->erase(fresh.id);
  epoll_->add(known->socket.get(), tag_of(Source::kAttachSocket, known->id));
  known->away_until = 0;
  return known;
}

void AttachServer::welcome(Session& opened, const wire::AttachHello& hello) {
  const SessionId id = opened.id;
  Session* resumed = nullptr;
  const Protocols theirs{hello.oldest_protocol(), hello.protocol()};
  const auto protocol = common_protocol(kClientProtocols, theirs);
  if (hello.has_resume() && protocol) {
    resumed = resume(opened, hello.resume());
    if (resumed == nullptr) return;
  }
  Session& session = resumed != nullptr ? *resumed : opened;
  session.opened_by = 0;
  if (!protocol) {
    refuse(session, 0,
           {Code::kIncompatible,
            fmt::format(
                "this daemon (gradringd {}) speaks client protocol {}, the library ({}) speaks "
                "{}; install the same release of both",
                kProductVersion, describe(kClientProtocols), hello.product_version(),
                describe(theirs))});
    return events_->session_ended(id, "speaks another protocol");
  }
  if (resumed == nullptr) {
    if (const Status room = sessions_->room_for_a_newcomer(session); !room.ok()) {
      refuse(session, 0, room);
      return events_->session_ended(id, "found no place");
    }
    session.program = hello.program();
    session.welcomed = true;
  }
  if (!session.pidfd) {
    session.pidfd = open_pidfd(session.socket.get(), session.who.pid);
    if (session.pidfd) epoll_->add(session.pidfd.get(), tag_of(Source::kPidfd, session.id));
  }

  wire::AttachReply reply;
  wire::AttachWelcome* welcome = reply.mutable_welcome();
  welcome->set_protocol(*protocol);
  welcome->set_product_version(kProductVersion);
  welcome->set_node(identity_.node);
  welcome->set_boot_id(identity_.boot_id);
  welcome->set_session(session.id);
  welcome->set_secret(session.secret);
  welcome->set_restart_grace_ms(
      static_cast<uint64_t>(identity_.restart_grace / core::kMillisecond));
  welcome->set_resumed(resumed != nullptr);
  welcome->set_ring_layout(kRingLayout);
  welcome->set_lends(true);
  welcome->set_stream_words(true);
  welcome->set_sums_on_gpus(identity_.sums_on_gpus);
  welcome->set_takes_gpu_descriptors(identity_.sums_on_gpus);
  welcome->set_gpu_direct(identity_.gpu_direct);
  welcome->set_asks_for_failed(true);
  if (!send(session, reply)) return;
  sessions_->save(session);
  events_->session_opened(session);
  spdlog::debug("trainer attached: {}, {}", describe(session.who), session.program);
}

void AttachServer::allocate(Session& session, const wire::AllocateSegment& request) {
  const auto segment = sessions_->allocate(session, request.bytes());
  if (!segment) return refuse(session, request.request(), segment.error());
  wire::AttachReply reply;
  wire::SegmentReady* ready = reply.mutable_segment();
  ready->set_request(request.request());
  ready->set_segment(segment->first);
  ready->set_bytes(segment->second->bytes());
  rings_->lend(session, segment->first);
  const int fd = segment->second->shared->fd();
  send(session, reply, {&fd, 1});
}

void AttachServer::borrow(Session& session, const wire::BorrowSegment& request) {
  const auto segment = sessions_->borrow(session, request);
  if (!segment) return refuse(session, request.request(), segment.error());
  wire::AttachReply reply;
  wire::SegmentReady* ready = reply.mutable_segment();
  ready->set_request(request.request());
  ready->set_segment(segment->first);
  ready->set_bytes(segment->second->bytes());
  rings_->lend(session, segment->first);
  send(session, reply);
}

void AttachServer::offer(Session& session, const wire::OfferGpuMemory& offer,
                         std::vector<Fd> with) {
  const auto refuse = [&](Code code, const char* why) {
    this->refuse(session, offer.request(), {code, why});
  };
  if (!identity_.sums_on_gpus) {
    return refuse(Code::kUnavailable, "the GPUs of this daemon sum for nobody (gpu-sums)");
  }
  if (with.size() != 1) {
    return refuse(Code::kInvalidArgument, "memory of a GPU is offered by one descriptor");
  }
  if (offer.request() == 0) {
    return refuse(Code::kInvalidArgument,
                  "memory of a GPU is offered by a request with a number, which is not 0");
  }
  if (session.offered.size() >= kOffersMax) {
    return refuse(Code::kResourceExhausted, "memory of a GPU is offered that nobody shares");
  }
  if (!leaves_enough_files(with.front().get())) {
    return this->refuse(session, offer.request(),
                        {Code::kResourceExhausted, no_files_left("memory of a GPU")});
  }
  session.offered[offer.request()] = std::make_shared<const Fd>(std::move(with.front()));
  wire::AttachReply reply;
  reply.mutable_offered()->set_request(offer.request());
  send(session, reply);
}

void AttachServer::make_rings(Session& session, const wire::MakeRings& request) {
  const auto rings = rings_->open(session);
  if (!rings) return refuse(session, request.request(), rings.error());
  wire::AttachReply reply;
  reply.mutable_rings()->set_request(request.request());
  reply.mutable_rings()->set_bytes(rings->ours->memory.memory().size());
  const std::array<int, 3> fds = {rings->ours->memory.fd(), rings->ours->submitted.get(),
                                  rings->ended.get()};
  send(session, reply, fds);
}

void AttachServer::refuse(Session& session, uint64_t request, const Status& why) {
  tell_limit(why);
  wire::AttachReply reply;
  reply.mutable_refused()->set_request(request);
  reply.mutable_refused()->set_code(static_cast<uint32_t>(why.code()));
  reply.mutable_refused()->set_message(why.message());
  send(session, reply);
}

// False when the session is over because its socket takes no more.
bool AttachServer::send(Session& session, const wire::AttachReply& reply,
                        std::span<const int> fds) {
  const std::string bytes = reply.SerializeAsString();
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdsMax * sizeof(int))> control{};
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  if (sendmsg(session.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
  if (errno == EPIPE || errno == ECONNRESET) return true;  // its end of file comes next
  events_->session_ended(session.id, "does not read its attach socket");
  return false;
}

void AttachServer::on_end_of_file(Session& session, core::Time now) {
  if (session.part == JobPart::kNone || !session.pidfd) {
    return events_->session_ended(session.id, "closed its connection without leaving the job");
  }
  if (readable(session.pidfd.get())) return on_pidfd(session.id, now);
  epoll_->remove(session.socket.get());
  hung_up_.push_back({session.id, now + kDyingTime});
}

void AttachServer::on_pidfd(SessionId id, core::Time now) {
  Session* session = sessions_->find(id);
  if (session == nullptr || session->gone) return;
  const auto how = how_it_ended(session->pidfd.get(), session->who.pid);
  if (how) return events_->session_ended(id, *how);
  epoll_->remove(session->pidfd.get());
  epoll_->remove(session->socket.get());
  hung_up_.push_back({id, now + kDyingTime});
}

// Of a session whose connection closed, or whose process ended, a little while ago.
std::string AttachServer::evidence_of(SessionId id) {
  const Session* session = sessions_->find(id);
  if (session == nullptr || !session->pidfd || !readable(session->pidfd.get())) {
    return "closed its connection without leaving the job";
  }
  return how_it_ended(session->pidfd.get(), session->who.pid).value_or("the process ended");
}

void AttachServer::tick(core::Time now) {
  std::vector<SessionId> silent;
  sessions_->for_each([&](const Session& session) {
    if (!session.welcomed && !session.gone && now - session.since >= kHelloTime) {
      silent.push_back(session.id);
    }
  });
  for (const SessionId id : silent) {
    events_->session_ended(id, "said nothing on the attach socket");
  }
  std::vector<SessionId> absent;
  sessions_->for_each([&](const Session& session) {
    if (session.away_until != 0 && !session.gone && now >= session.away_until) {
      absent.push_back(session.id);
    }
  });
  for (const SessionId id : absent) {
    events_->session_ended(id, "did not attach again after the restart of its daemon");
  }
  while (!hung_up_.empty() && hung_up_.front().until <= now) {
    const SessionId id = hung_up_.front().session;
    hung_up_.pop_front();
    events_->session_ended(id, evidence_of(id));
  }
  if (accept_again_ != 0 && now >= accept_again_) {
    accept_again_ = 0;
    epoll_->add(listener_.get(), tag_of(Source::kAttachListener));
  }
}

core::Time AttachServer::next_deadline() const {
  core::Time next = std::numeric_limits<core::Time>::max();
  if (!hung_up_.empty()) next = std::min(next, hung_up_.front().until);
  if (accept_again_ != 0) next = std::min(next, accept_again_);
  return next;
}

}  // namespace gradring::daemon
