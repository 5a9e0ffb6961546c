#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <zmq.hpp>

#include "proto/status.h"
#include "proto/wire.h"

namespace gradring::client {

// The control channel: a ZeroMQ DEALER to the daemon's ROUTER, with a context of its own. Not
// thread-safe: the owner serialises. Nothing here blocks, and nothing is thrown but bad_alloc.
//
// fd() is readable only at the moment something changes, not as long as something is there: after
// each send, and before each sleep on fd(), receive until nothing is left.
class ControlSocket {
 public:
  static tl::expected<ControlSocket, Status> connect(const std::string& runtime_dir);
  ControlSocket(ControlSocket&&) = default;
  // The old context would end before its socket, and wait for that for ever.
  ControlSocket& operator=(ControlSocket&&) = delete;

  // As the last receive() found it. Asking the socket anew could consume the sign on fd().
  bool writable() const { return writable_; }
  // RESOURCE_EXHAUSTED when it would have to wait: the daemon does not read.
  Status send(const wire::ClientMessage& message);
  // Nothing there is an empty optional; a message that cannot be read is INTERNAL.
  tl::expected<std::optional<wire::DaemonMessage>, Status> receive();
  int fd() const { return fd_; }

  // In a forked child: forgets the socket without touching it, because its I/O thread, and whatever
  // lock that held, stayed behind in the parent.
  void abandon();

 private:
  ControlSocket(std::unique_ptr<zmq::context_t> context, std::unique_ptr<zmq::socket_t> socket);

  // In this order: the socket is closed before its context ends.
  std::unique_ptr<zmq::context_t> context_;
  std::unique_ptr<zmq::socket_t> socket_;
  int fd_;
  bool writable_ = false;
};

}  // namespace gradring::client
