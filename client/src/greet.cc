#include <fmt/format.h>
#include <poll.h>

#include <cerrno>

#include "client/src/attach.h"
#include "client/src/refusal.h"
#include "proto/version.h"

namespace gradring::client {
namespace {

tl::expected<AttachPacket, Status> receive_until(AttachSocket& socket, TimePoint deadline) {
  while (true) {
    auto packet = socket.receive();
    if (!packet) return tl::unexpected(packet.error());
    if (packet->has_value()) return std::move(**packet);
    if (Clock::now() >= deadline) {
      return tl::unexpected(
          Status(Code::kUnavailable,
                 "the daemon took the connection but does not answer; it may be stopped"));
    }
    pollfd readable{socket.fd(), POLLIN, 0};
    const timespec left = time_left(deadline);
    ::ppoll(&readable, 1, &left, nullptr);  // An early return only means another look.
  }
}

}  // namespace

tl::expected<wire::AttachWelcome, Status> greet(AttachSocket& socket, TimePoint deadline) {
  wire::AttachRequest request;
  request.mutable_hello()->set_protocol(kClientProtocol);
  request.mutable_hello()->set_product_version(kProductVersion);
  request.mutable_hello()->set_program(program_invocation_short_name);
  if (Status sent = socket.send(request); !sent.ok()) return tl::unexpected(sent);

  auto packet = receive_until(socket, deadline);
  if (!packet) return tl::unexpected(packet.error());
  if (packet->reply.has_refused()) {
    return tl::unexpected(to_status(packet->reply.refused()));
  }
  if (!packet->reply.has_welcome()) {
    return tl::unexpected(
        Status(Code::kIncompatible, "the daemon answered the hello with something else"));
  }
  const wire::AttachWelcome& welcome = packet->reply.welcome();
  if (welcome.protocol() != kClientProtocol) {
    return tl::unexpected(Status(
        Code::kIncompatible,
        fmt::format("the daemon on node {} (gradringd {}) speaks client protocol {}, this library "
                    "(libgradring {}) speaks {}; install versions that fit",
                    welcome.node(), welcome.product_version(), welcome.protocol(), kProductVersion,
                    kClientProtocol)));
  }
  return welcome;
}

}  // namespace gradring::client
