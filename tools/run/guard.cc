#include "tools/run/guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace gradring::tools {
namespace {

[[noreturn]] void watch(int fd, const std::vector<pid_t>& groups) {
  setsid();  // Ctrl-C is for others
  prctl(PR_SET_NAME, "gradring-guard");
  // It must not hold open what others wait to see closed: lifelines, output.
  dup2(fd, STDIN_FILENO);
  close_range(1, ~0u, 0);
  char word = 0;
  ssize_t got = 0;
  while ((got = read(STDIN_FILENO, &word, 1)) < 0 && errno == EINTR) {
  }
  if (got == 0) {
    for (const pid_t group : groups) kill(-group, SIGKILL);
  }
  _exit(0);
}

}  // namespace

Guard::Guard(const std::vector<pid_t>& groups) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    watch(ends[0], groups);
  }
  close(ends[0]);
  thread_of_life_ = ends[1];
}

Guard::~Guard() {
  if (pid_ > 0) {
    const char dismissed = 'd';
    if (write(thread_of_life_, &dismissed, 1) == 1) waitpid(pid_, nullptr, 0);
  }
  if (thread_of_life_ >= 0) close(thread_of_life_);
}

}  // namespace gradring::tools
