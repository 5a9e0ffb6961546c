#include "client/src/session/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "client/src/limits.h"
#include "client/src/refusal.h"
#include "client/src/session/runtime_dir.h"
#include "proto/shell_word.h"
#include "proto/version.h"

namespace gradring::client {
namespace {

tl::unexpected<Ending> ended(Cause cause, Status why) {
  return tl::unexpected(Ending{cause, std::move(why)});
}

wire::AttachRequest hello(const std::optional<wire::AttachWelcome>& former) {
  wire::AttachRequest request;
  wire::AttachHello& hello = *request.mutable_hello();
  hello.set_protocol(kClientProtocols.newest);
  hello.set_oldest_protocol(kClientProtocols.oldest);
  hello.set_product_version(kProductVersion);
  hello.set_program(program_invocation_short_name);
  if (former) {
    hello.mutable_resume()->set_session(former->session());
    hello.mutable_resume()->set_secret(former->secret());
  }
  return request;
}

Status silent(const std::string& runtime_dir, const char* trouble) {
  return {Code::kUnavailable,
          fmt::format("the daemon at {} {}; look at its log, or restart it with `{}`",
                      attach_path(runtime_dir), trouble, start_command(runtime_dir))};
}

Status check(const wire::AttachWelcome& welcome, const std::optional<wire::AttachWelcome>& former) {
  if (!common_protocol(kClientProtocols, {0, welcome.protocol()})) {
    return {Code::kIncompatible,
            fmt::format("the daemon on node {} (gradringd {}) speaks client protocol {}, this "
                        "library (libgradring {}) speaks {}; install versions that fit",
                        welcome.node(), welcome.product_version(), welcome.protocol(),
                        kProductVersion, describe(kClientProtocols))};
  }
  if (!former) return {};
  if (welcome.node() != former->node()) {
    return {Code::kUnavailable,
            fmt::format("the daemon that came back calls its node {}, and before it was {}; give "
                        "it its old name back, and open the job anew",
                        welcome.node(), former->node())};
  }
  if (!welcome.resumed() || welcome.session() != former->session()) {
    return {Code::kUnavailable,
            fmt::format("the daemon on node {} came back and knows nothing of this session; open "
                        "the job anew",
                        welcome.node())};
  }
  return {};
}

}  // namespace

Status went_away(const DaemonPlace& place) {
  return {Code::kUnavailable,
          fmt::format("the daemon on node {} went away; start it again with `{}` if nothing else "
                      "does, look at its log for the reason, and open the job anew",
                      place.node, start_command(place.runtime_dir))};
}

Handshake::Handshake(std::string runtime_dir, std::optional<wire::AttachWelcome> former)
    : runtime_dir_(std::move(runtime_dir)), former_(std::move(former)) {}

tl::expected<bool, Ending> Handshake::advance() {
  if (!attach_) {
    const auto connected = connect();
    if (!connected || !*connected) return connected;
  }
  if (!welcome_) {
    const auto welcomed = await_welcome();
    if (!welcomed || !*welcomed) return welcomed;
  }
  return await_opened();
}

tl::expected<bool, Ending> Handshake::connect() {
  if (Clock::now() < retry_at_) return false;
  auto socket = AttachSocket::connect(runtime_dir_);
  if (!socket) return ended(Cause::kPeerLost, socket.error());
  if (!socket->has_value()) {
    retry_at_ = Clock::now() + kConnectPause;
    return false;
  }
  attach_ = std::move(**socket);
  hello_sent_ = attach_->send(hello(former_)).ok();
  return true;
}

tl::expected<bool, Ending> Handshake::await_welcome() {
  // A hello that could not be sent is no reason not to look: a daemon that has no room for a
  // session says so and closes before it reads anything.
  const auto packet = attach_->receive();
  if (!packet && packet.error().code() != Code::kUnavailable) {
    return ended(Cause::kProtocol, packet.error());
  }
  if (!packet || (!packet->has_value() && !hello_sent_)) {
    hung_up_ = true;
    return ended(Cause::kPeerLost, silent(runtime_dir_, "closed the connection without a word"));
  }
  if (!packet->has_value()) return false;
  const wire::AttachReply& reply = (*packet)->reply;
  if (reply.has_refused()) return ended(Cause::kRefused, to_status(reply.refused()));
  if (!reply.has_welcome()) {
    return ended(Cause::kProtocol,
                 {Code::kIncompatible, "the daemon answered the hello with something else"});
  }
  if (Status fits = check(reply.welcome(), former_); !fits.ok()) {
    return ended(Cause::kRefused, std::move(fits));
  }
  welcome_ = reply.welcome();
  return connect_control();
}

tl::expected<bool, Ending> Handshake::connect_control() {
  auto control = ControlSocket::connect(runtime_dir_);
  if (!control) return ended(Cause::kPeerLost, control.error());
  control_.reset();
  control_.emplace(std::move(*control));
  ++open_number_;
  open_sent_ = false;
  // Each time twice as long, so that a daemon that always takes its time is heard in the end.
  open_again_at_ =
      Clock::now() + kOpenAgain * (1 << std::min(open_number_ - kOpenNumber, uint64_t{4}));
  return true;
}

tl::expected<bool, Ending> Handshake::await_opened() {
  while (true) {
    const auto message = control_->receive();
    if (!message) return ended(Cause::kProtocol, message.error());
    if (message->has_value()) {
      if ((*message)->has_opened() && (*message)->request() == open_number_) return true;
      if ((*message)->has_refused()) {
        return ended(Cause::kRefused, to_status((*message)->refused()));
      }
      return ended(Cause::kProtocol,
                   {Code::kInternal, fmt::format("the daemon on node {} spoke on the control "
                                                 "channel before the session was open",
                                                 welcome_->node())});
    }
    if (open_sent_ || !control_->writable()) break;
    wire::ClientMessage open;
    open.set_protocol(welcome_->protocol());
    open.set_request(open_number_);
    open.mutable_open()->set_session(welcome_->session());
    open.mutable_open()->set_secret(welcome_->secret());
    open_sent_ = control_->send(open).ok();
  }
  const auto packet = attach_->receive();
  if (!packet) {
    const bool closed = hung_up_ = packet.error().code() == Code::kUnavailable;
    return ended(closed ? Cause::kPeerLost : Cause::kProtocol,
                 closed ? went_away(place()) : packet.error());
  }
  if (!packet->has_value()) {
    // What went to a daemon that was about to end is lost, and nobody says so.
    if (Clock::now() >= open_again_at_) {
      if (auto again = connect_control(); !again) return again;
    }
    return false;
  }
  const wire::AttachReply& reply = (*packet)->reply;
  if (reply.has_refused()) return ended(Cause::kRefused, to_status(reply.refused()));
  return ended(Cause::kProtocol, {Code::kInternal,
                                  "the daemon sent a packet on the attach socket that answers "
                                  "nothing"});
}

Connection Handshake::take() {
  return {std::move(*attach_), std::move(*control_), std::move(*welcome_)};
}

Status Handshake::overdue() const {
  if (!attach_) return unreachable(runtime_dir_, attach_path(runtime_dir_), EAGAIN);
  if (!welcome_) return silent(runtime_dir_, "took the connection but does not answer");
  return {Code::kUnavailable,
          fmt::format("the daemon on node {} does not open the session: it is stopped or "
                      "overloaded; `gradringctl --runtime-dir {} status` tells how it is",
                      welcome_->node(), shell_word(runtime_dir_))};
}

void Handshake::close_in_child() {
  if (attach_) attach_->close();
}

void Handshake::abandon_in_child() {
  if (control_) control_->abandon();
}

}  // namespace gradring::client
