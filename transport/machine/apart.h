#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace gradring::machine {

// A child process in which the libraries of a driver may crash, or hang, without anybody else. It
// tells what it finds through a pipe. One thread only.
class Apart {
 public:
  Apart() = default;
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;
  ~Apart() { end(); }

  // Forks: call it while the process has one thread. `tell(to)` is called in the child, which ends
  // with the status that it returns, or with this process. Returns what went wrong, or nothing.
  std::string start(const std::function<int(int to)>& tell);

  // The end of the pipe, which does not block; -1 once it is over.
  int fd() const { return fd_; }
  bool over() const { return fd_ < 0; }
  pid_t child() const { return pid_; }

  // Once the pipe is at its end: how the child ended, as waitpid() has it. Nothing where it hangs
  // on its way out.
  std::optional<int> status();

  // It is killed, and the pipe closed.
  void end();

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

}  // namespace gradring::machine
