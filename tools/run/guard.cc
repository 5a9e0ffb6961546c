#include "tools/run/guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <vector>

namespace gradring::tools {
namespace {

constexpr pid_t kDismissed = 0;

[[noreturn]] void watch(int fd) {
  setsid();  // Ctrl-C is for others
  prctl(PR_SET_NAME, "gradring-guard");
  // It must not hold open what others wait to see closed.
  dup2(fd, STDIN_FILENO);
  close_range(1, ~0u, 0);
  std::vector<pid_t> groups;
  while (true) {
    pid_t group = 0;
    const ssize_t got = read(STDIN_FILENO, &group, sizeof group);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof group) break;
    if (group == kDismissed) _exit(0);
    groups.push_back(group);
  }
  for (const pid_t one : groups) kill(-one, SIGKILL);
  _exit(0);
}

}  // namespace

Guard::Guard() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    watch(ends[0]);
  }
  close(ends[0]);
  door_ = ends[1];
}

Guard::~Guard() {
  if (pid_ > 0 && write(door_, &kDismissed, sizeof kDismissed) == sizeof kDismissed) {
    waitpid(pid_, nullptr, 0);
  }
  if (door_ >= 0) close(door_);
}

}  // namespace gradring::tools
