#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "client/src/clock.h"
#include "client/src/unique_fd.h"
#include "proto/status.h"
#include "proto/wire.h"

namespace gradring::client {

struct AttachPacket {
  wire::AttachReply reply;
  UniqueFd memory;  // the memfd that came with it, if one did
};

// The attach socket (proto/client.proto). Not thread-safe: the owner serialises. Its closing is how
// each side learns first that the other is gone.
class AttachSocket {
 public:
  // UNAVAILABLE, with the path, the reason and the command that starts a daemon, if none listens.
  static tl::expected<AttachSocket, Status> connect(const std::string& runtime_dir,
                                                    TimePoint deadline);

  // Never blocks. UNAVAILABLE: the daemon is gone, or takes no more packets.
  Status send(const wire::AttachRequest& request);

  // Never blocks; nothing there is an empty optional. UNAVAILABLE: closed by the daemon. INTERNAL:
  // a packet that cannot be read. After either the socket is of no more use.
  tl::expected<std::optional<AttachPacket>, Status> receive();

  int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }

 private:
  explicit AttachSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;
};

// Says hello and waits for the welcome. INCOMPATIBLE in words if the versions do not fit, whichever
// side finds out.
tl::expected<wire::AttachWelcome, Status> greet(AttachSocket& socket,
                                                const std::string& runtime_dir, TimePoint deadline);

}  // namespace gradring::client
