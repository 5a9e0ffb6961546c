#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "client/src/session/unique_fd.h"
#include "proto/status.h"
#include "proto/wire.h"

namespace gradring::client {

struct AttachPacket {
  wire::AttachReply reply;
  std::vector<UniqueFd> fds;  // that came with it
  bool cut = false;           // there was no room for them in this process, and there are none
};

// The attach socket (proto/client.proto). Not thread-safe: the owner serialises. Its closing is how
// each side learns first that the other is gone.
class AttachSocket {
 public:
  // Never blocks. UNAVAILABLE, with the path, the reason and the command that starts a daemon, if
  // none listens; an empty optional if it is busy with others: worth another try in a moment.
  static tl::expected<std::optional<AttachSocket>, Status> connect(const std::string& runtime_dir);

  // Never blocks. RESOURCE_EXHAUSTED when it would have to wait: the daemon has not read yet.
  // UNAVAILABLE: it is gone. `fd`: goes with it, and remains the caller's; -1: none.
  Status send(const wire::AttachRequest& request, int fd = -1);

  // Never blocks; nothing there is an empty optional. UNAVAILABLE: closed by the daemon. INTERNAL:
  // a packet that cannot be read. After either the socket is of no more use.
  tl::expected<std::optional<AttachPacket>, Status> receive();

  // Whether the daemon has closed it, also while packets are left to receive.
  bool closed_there() const;

  // Both sides see it closed, whoever waits here too.
  void hang_up() { ::shutdown(socket_.get(), SHUT_RDWR); }

  int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }

 private:
  explicit AttachSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;
};

}  // namespace gradring::client
