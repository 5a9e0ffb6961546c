#include "daemon/control/door/client_router.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <string_view>

#include "daemon/control/door/doorkeeper.h"
#include "daemon/control/door/listener.h"
#include "daemon/control/door/packet.h"
#include "daemon/control/door/unheard.h"

namespace gradring::daemon {
namespace {

// A submission of some 5000 ops. libzmq cuts the connection of whoever sends more.
constexpr int64_t kClientMessageMax = 256 << 10;

// Answers that may wait for one client in libzmq, however long they are; what is more waits in
// Clients, which counts its bytes.
constexpr int kUnsentMax = 16;
// And what comes from one, while we are busy.
constexpr int kUnreadMax = 16;
static_assert((kUnreadMax + 1) * kClientMessageMax < static_cast<int64_t>(kUnheardMost) / 2);

// As ZMTP has it: flags and a size of 1 byte or 8 come before.
uint64_t bytes_of_frame(uint64_t body) { return body + (body < 256 ? 2 : 9); }

template <typename T>
bool parse_all(std::string_view text, T* value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && rest == text.data() + text.size();
}

}  // namespace

Credentials parse_peer_address(const char* text) {
  const Credentials unknown{~0u, 0};
  if (text == nullptr) return unknown;
  const std::string_view all(text);
  const size_t pid_at = all.rfind(':');
  if (pid_at == all.npos || pid_at == 0) return unknown;
  const size_t gid_at = all.rfind(':', pid_at - 1);
  if (gid_at == all.npos || gid_at == 0) return unknown;
  const size_t uid_at = all.rfind(':', gid_at - 1);
  const size_t uid_begin = uid_at == all.npos ? 0 : uid_at + 1;
  Credentials who;
  if (!parse_all(all.substr(pid_at + 1), &who.pid) ||
      !parse_all(all.substr(uid_begin, gid_at - uid_begin), &who.uid)) {
    return unknown;
  }
  return who;
}

Status ClientRouter::open(FdStore* store) {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.set(zmq::sockopt::router_mandatory, true);
  socket_.set(zmq::sockopt::maxmsgsize, kClientMessageMax);
  socket_.set(zmq::sockopt::sndhwm, kUnsentMax);
  socket_.set(zmq::sockopt::rcvhwm, kUnreadMax);
  // A connection that does not even greet is closed by libzmq itself.
  socket_.set(zmq::sockopt::handshake_ivl, 5000);
  auto listener = open_listener(path_, SOCK_STREAM, store);
  if (!listener) return listener.error();
  guard_listener(listener->get());
  take_descriptors(listener->get(), false);
  // With a socket that it is given, libzmq leaves the file alone.
  socket_.set(zmq::sockopt::use_fd, listener->get());
  if (zmq_bind(socket_.handle(), ("ipc://" + path_).c_str()) != 0) {
    return {Code::kUnavailable,
            fmt::format("cannot open {}: {}", path_, zmq_strerror(zmq_errno()))};
  }
  listener->release();  // libzmq closes it
  give_all_names(&socket_);
  return {};
}

bool ClientRouter::receive(Received* received) {
  while (true) {
    zmq::message_t id, body;
    if (!socket_.recv(id, zmq::recv_flags::dontwait)) {
      heard_all();
      return false;
    }
    if (!id.more()) continue;
    (void)socket_.recv(body, zmq::recv_flags::dontwait);
    // The first frame has no properties in libzmq 4.3.4, the body has.
    received->who = parse_peer_address(zmq_msg_gets(body.handle(), "Peer-Address"));
    const int from = zmq_msg_get(body.handle(), ZMQ_SRCFD);
    uint64_t came = bytes_of_frame(body.size());
    received->routing_id.assign(static_cast<const char*>(id.data()), id.size());
    received->body.assign(static_cast<const char*>(body.data()), body.size());
    bool more = body.more();
    if (more)
      received->body.assign(1, '\xff');  // not one frame: no message of ours, and no protobuf
    while (more) {
      (void)socket_.recv(body, zmq::recv_flags::dontwait);
      came += bytes_of_frame(body.size());
      more = body.more();
    }
    heard_from(from, received->who.uid, came);
    return true;
  }
}

ClientRouter::Sent ClientRouter::send(const std::string& routing_id,
                                      const wire::DaemonMessage& message) {
  void* const socket = socket_.handle();
  if (zmq_send(socket, routing_id.data(), routing_id.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    return zmq_errno() == EAGAIN ? Sent::kFull : Sent::kGone;
  }
  const std::string bytes = message.SerializeAsString();
  // Both frames take one place in the queue, and the first has it.
  return zmq_send(socket, bytes.data(), bytes.size(), ZMQ_DONTWAIT) < 0 ? Sent::kGone : Sent::kYes;
}

}  // namespace gradring::daemon
