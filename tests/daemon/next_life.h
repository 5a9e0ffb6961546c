#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gradring::daemon {

// Runs `look` in a process that was handed these descriptors as a restarted gradringd is, with
// $LISTEN_FDS and its kin. Returns what it returns: a complaint, or nothing.
std::string in_next_life(const std::vector<std::pair<std::string, int>>& kept,
                         const std::function<std::string()>& look);

// Plays systemd: receives at a socket of its own what a process of ours says.
class FakeManager {
 public:
  FakeManager();  // and sets $NOTIFY_SOCKET
  ~FakeManager();
  FakeManager(const FakeManager&) = delete;
  FakeManager& operator=(const FakeManager&) = delete;

  // The next message and the inode of the descriptor that came with it, as in "FDSTORE=1|...|4711";
  // empty when there is none.
  std::string heard();

 private:
  std::string path_;
  int socket_ = -1;
};

// As heard() writes it; 0 for what is no descriptor.
ino_t inode_of(int fd);

}  // namespace gradring::daemon
