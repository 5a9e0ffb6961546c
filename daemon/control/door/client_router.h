#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <zmq.hpp>

#include "daemon/control/door/process.h"
#include "daemon/control/door/router_names.h"
#include "daemon/fd_store.h"
#include "proto/status.h"
#include "proto/wire.h"

namespace gradring::daemon {

// The control socket for trainers and gradringctl: ROUTER on ipc, one protobuf message a frame.
// Knows who speaks, not what it means. Control thread only.
class ClientRouter {
 public:
  ClientRouter(zmq::context_t* context, std::string path)
      : socket_(make_router(context)), path_(std::move(path)) {}

  // The caller holds the lock of the directory.
  Status open(FdStore* store);

  struct Received {
    std::string routing_id;
    Credentials who;  // of the process that connected, by the kernel's word
    std::string body;
  };
  // False when nothing waits.
  bool receive(Received* received);

  enum class Sent { kYes, kFull, kGone };
  // kFull: the client does not read; kGone: it has disconnected. Never waits.
  Sent send(const std::string& routing_id, const wire::DaemonMessage& message);

  void* socket() { return socket_.handle(); }
  const std::string& path() const { return path_; }
  // Lets what is queued still go out when the socket closes.
  void linger(int milliseconds) { socket_.set(zmq::sockopt::linger, milliseconds); }

 private:
  zmq::socket_t socket_;
  const std::string path_;
};

// The last three fields of "localhost:UID:GID:PID", as libzmq describes an ipc peer; uid ~0 if it
// does not say.
Credentials parse_peer_address(const char* text);

}  // namespace gradring::daemon
