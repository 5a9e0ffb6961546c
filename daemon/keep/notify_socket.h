#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "daemon/fd.h"
#include "proto/status.h"

namespace gradring::keep {

using daemon::Fd;

// Where the child speaks to its keeper ($NOTIFY_SOCKET): datagrams on AF_UNIX, at a path that only
// its owner may write to.
class NotifySocket {
 public:
  NotifySocket() = default;
  ~NotifySocket();
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // Replaces a stale socket file: the caller holds the keepers' lock of the directory.
  Status open(const std::string& path);

  struct Received {
    pid_t pid = 0;      // by the kernel's word; 0: it does not say
    std::string bytes;  // one more than kNotifyBytesMax if it is too long
    std::vector<Fd> fds;
    bool fds_lost = false;  // more came than we may have open
  };
  // Empty when nothing waits.
  std::optional<Received> receive();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

 private:
  Fd socket_;
  std::string path_;
};

}  // namespace gradring::keep
