#include "transport/machine/apart.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gradring::machine {

std::string Apart::start(const std::function<int(int to)>& tell) {
  end();
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return fmt::format("pipe: {}", std::strerror(errno));
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent ? tell(ends[1]) : 0);
  }
  const int error = errno;
  close(ends[1]);
  fd_ = ends[0];
  if (pid_ < 0) {
    end();
    return fmt::format("fork: {}", std::strerror(error));
  }
  fcntl(fd_, F_SETFL, O_NONBLOCK);
  return "";
}

std::optional<int> Apart::status() {
  constexpr int kPatienceMs = 100;
  int status = 0;
  for (int i = 0; i < kPatienceMs; ++i) {
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return status;
    }
    usleep(1000);
  }
  return std::nullopt;
}

// One that hangs in its driver dies when the driver lets it: nobody waits for that, and whoever
// inherits our children buries it.
void Apart::end() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    status();
    pid_ = -1;
  }
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace gradring::machine
