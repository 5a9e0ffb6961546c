#include <fmt/format.h>
#include <poll.h>

#include <cerrno>

#include "client/src/attach.h"
#include "client/src/refusal.h"
#include "client/src/runtime_dir.h"
#include "proto/version.h"

namespace gradring::client {
namespace {

// What the daemon answers to a hello. A failed send is no reason not to look: a daemon that has no
// room for a session says so and closes before it reads anything.
tl::expected<AttachPacket, Status> answer_to(const wire::AttachRequest& hello, AttachSocket& socket,
                                             const std::string& runtime_dir, TimePoint deadline) {
  const Status sent = socket.send(hello);
  while (true) {
    auto packet = socket.receive();
    if (packet && packet->has_value()) return std::move(**packet);
    if (!packet && packet.error().code() != Code::kUnavailable) {
      return tl::unexpected(packet.error());
    }
    const char* trouble = nullptr;
    if (!packet || !sent.ok()) trouble = "closed the connection without a word";
    if (Clock::now() >= deadline) trouble = "took the connection but does not answer";
    if (trouble != nullptr) {
      return tl::unexpected(
          Status(Code::kUnavailable,
                 fmt::format("the daemon at {} {}; look at its log, or restart it with `{}`",
                             attach_path(runtime_dir), trouble, start_command(runtime_dir))));
    }
    pollfd readable{socket.fd(), POLLIN, 0};
    const timespec left = time_left(deadline);
    ::ppoll(&readable, 1, &left, nullptr);  // An early return only means another look.
  }
}

}  // namespace

tl::expected<wire::AttachWelcome, Status> greet(AttachSocket& socket,
                                                const std::string& runtime_dir,
                                                TimePoint deadline) {
  wire::AttachRequest request;
  request.mutable_hello()->set_protocol(kClientProtocol);
  request.mutable_hello()->set_product_version(kProductVersion);
  request.mutable_hello()->set_program(program_invocation_short_name);
  const auto packet = answer_to(request, socket, runtime_dir, deadline);
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
