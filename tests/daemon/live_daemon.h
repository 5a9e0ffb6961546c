#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/daemon/scratch.h"
#include "tests/sanitized.h"

namespace gradring::daemon {

// What a program that ended has left.
struct Ended {
  int status = -1;  // of exit; 128 + N: killed by signal N; -1: did not end in time and was killed
  std::string output;  // of both streams
};

// Runs gradringd with these flags to its end, at most 20 s.
Ended run_gradringd(const std::vector<std::string>& flags);

// A gradringd on a directory and port of its own, stopped with the object.
class LiveDaemon {
 public:
  // `port` 0: one that is free. Throws as start().
  explicit LiveDaemon(const std::vector<std::string>& more_flags = {},
                      const std::string& node = "live", int port = 0);
  ~LiveDaemon();
  LiveDaemon(const LiveDaemon&) = delete;
  LiveDaemon& operator=(const LiveDaemon&) = delete;

  // Starts it again, on the same directory and port. Throws what it says where it does not come up.
  void start();
  // SIGTERM, and waits.
  Ended stop();
  void signal(int number) const;
  bool runs() const;

  pid_t pid() const { return pid_; }
  const std::string& runtime_dir() const { return runtime_dir_; }
  const std::string& listen() const { return listen_; }
  std::string log() const;
  size_t open_files() const;

 private:
  Scratch scratch_;
  const std::string runtime_dir_;
  const std::string listen_;
  std::vector<std::string> flags_;
  pid_t pid_ = -1;
};

// A port of loopback that is free at this moment.
int free_port();

// So many, named node0 and so on, each of which has all others for peers.
std::vector<std::unique_ptr<LiveDaemon>> live_nodes(size_t count,
                                                    const std::vector<std::string>& more_flags);

}  // namespace gradring::daemon
