#include "daemon/keep/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gradring::keep {
namespace {

constexpr int kFirstFd = 3;  // by the protocol
constexpr int kCannotRun = 127;

[[noreturn]] void give_up(const std::string& what) {
  std::fputs(fmt::format("gradringd --keep: {}: {}\n", what, std::strerror(errno)).c_str(), stderr);
  _exit(kCannotRun);
}

// To 3, 4, 5 ... and without close-on-exec. First out of the way: one may stand where another has
// to go.
void line_up(const std::vector<KeptFds::Kept>& kept) {
  const int end = kFirstFd + static_cast<int>(kept.size());
  std::vector<int> aside;
  for (const KeptFds::Kept& one : kept) {
    aside.push_back(fcntl(one.fd.get(), F_DUPFD_CLOEXEC, end));
    if (aside.back() < 0) give_up("cannot pass " + one.name + " on");
  }
  int place = kFirstFd;
  for (const int fd : aside) {
    if (dup2(fd, place) < 0) give_up("cannot pass a descriptor on");
    ++place;
  }
}

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

void set_environment(const ChildSetup& setup, const std::vector<KeptFds::Kept>& kept) {
  const std::string pid = std::to_string(getpid());
  set("NOTIFY_SOCKET", setup.notify_socket);
  set("FDSTORE", std::to_string(setup.fds_max));
  set("WATCHDOG_PID", pid);
  set("WATCHDOG_USEC", std::to_string(setup.watchdog / 1000));
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
  if (kept.empty()) return;
  std::string names;
  for (const KeptFds::Kept& one : kept) names += (names.empty() ? "" : ":") + one.name;
  set("LISTEN_PID", pid);
  set("LISTEN_FDS", std::to_string(kept.size()));
  set("LISTEN_FDNAMES", names);
}

// Before anything else, and then a look whether the keeper died even before.
void end_with(pid_t keeper) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != keeper) _exit(kCannotRun);
}

[[noreturn]] void run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  give_up("cannot run " + command.front());
}

[[noreturn]] void become(const ChildSetup& setup, const std::vector<KeptFds::Kept>& kept,
                         pid_t keeper) {
  end_with(keeper);
  // Ctrl-C is for the keeper, which passes it on: the second SIGINT would stop without a drain.
  setpgid(0, 0);
  // gradringd blocks SIGHUP itself; one that came sooner would end it.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGHUP);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  signal(SIGPIPE, SIG_DFL);
  set_environment(setup, kept);
  line_up(kept);
  run(setup.command);
}

tl::expected<pid_t, std::string> forked(pid_t pid) {
  if (pid < 0) return tl::unexpected(fmt::format("cannot fork: {}", std::strerror(errno)));
  return pid;
}

}  // namespace

tl::expected<pid_t, std::string> start_child(const ChildSetup& setup,
                                             const std::vector<KeptFds::Kept>& kept) {
  const pid_t keeper = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(setup, kept, keeper);
  return forked(pid);
}

tl::expected<pid_t, std::string> start_check(const std::vector<std::string>& command) {
  const pid_t keeper = getpid();
  const pid_t pid = fork();
  if (pid != 0) return forked(pid);
  end_with(keeper);
  setpgid(0, 0);  // as the child: Ctrl-C is for the keeper
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::vector<std::string> words = command;
  words.emplace_back("--check-config");
  run(words);
}

}  // namespace gradring::keep
