#include "tests/device/other_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>

extern char** environ;

namespace gradring::device {
namespace {

constexpr int kPatienceMs = 60'000;

// False: closed, or silent for too long.
bool read_all(int fd, void* message, size_t bytes, int patience_ms) {
  auto* at = static_cast<char*>(message);
  while (bytes > 0) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, patience_ms) <= 0) return false;
    const ssize_t got = ::read(fd, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* message, size_t bytes) {
  const auto* at = static_cast<const char*>(message);
  while (bytes > 0) {
    const ssize_t put = ::write(fd, at, bytes);
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<size_t>(put);
  }
  return true;
}

}  // namespace

OtherProcess::OtherProcess(const std::string& part) : part_(part) {
  std::signal(SIGPIPE, SIG_IGN);
  int down[2], up[2];
  if (::pipe2(down, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  if (::pipe2(up, O_CLOEXEC) != 0) {
    ::close(down[0]);
    ::close(down[1]);
    throw std::runtime_error("no pipe");
  }
  // Its answers go through its standard output; what it says to people through the other one.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, down[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, up[1], STDOUT_FILENO);
  std::string program = "/proc/self/exe", flag = "--be", name = part;
  std::array<char*, 4> arguments = {program.data(), flag.data(), name.data(), nullptr};
  const int failed =
      ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(down[0]);
  ::close(up[1]);
  to_ = down[1];
  from_ = up[0];
  if (failed != 0) {
    ::close(to_);
    ::close(from_);
    throw std::runtime_error("could not start another process of this program");
  }
}

OtherProcess::~OtherProcess() {
  ::close(to_);
  ::close(from_);
  if (pid_ < 0) return;
  constexpr int kChecks = 100;
  for (int i = 0; i < kChecks; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
    ::usleep(100'000);
  }
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void OtherProcess::wait() {
  char end = 0;
  pollfd closed{from_, POLLIN, 0};
  if (::poll(&closed, 1, kPatienceMs) <= 0 || ::read(from_, &end, 1) > 0) {
    throw std::runtime_error("the " + part_ + " does not end");
  }
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void OtherProcess::tell(const void* message, size_t bytes) {
  if (!write_all(to_, message, bytes)) throw std::runtime_error("the " + part_ + " has ended");
}

void OtherProcess::hear(void* message, size_t bytes) {
  if (read_all(from_, message, bytes, kPatienceMs)) return;
  throw std::runtime_error("the " + part_ + " has ended, or says nothing");
}

bool hear_from_parent(void* message, size_t bytes) {
  return read_all(STDIN_FILENO, message, bytes, -1);
}

void tell_parent(const void* message, size_t bytes) { write_all(STDOUT_FILENO, message, bytes); }

}  // namespace gradring::device
