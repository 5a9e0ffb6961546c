#include "tools/ctl/bundle/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace gradring::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kOutputMax = 32 << 20;
constexpr size_t kComplaintMax = 300;

// Both ends; closed with it.
class Pipe {
 public:
  Pipe() { good_ = pipe2(ends_.data(), O_CLOEXEC) == 0; }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool good() const { return good_; }
  int end(size_t which) const { return ends_[which]; }
  void close_end(size_t which) {
    if (ends_[which] >= 0) close(ends_[which]);
    ends_[which] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  bool good_ = false;
};

// 0, or an errno.
int spawn(const std::vector<std::string>& command, const Pipe& out, const Pipe& err, pid_t* pid) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.end(1), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.end(1), STDERR_FILENO);
  const int error = posix_spawnp(pid, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// False at the end of the stream.
bool read_some(int fd, std::string* to, size_t most) {
  std::array<char, 65536> buffer{};
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR;
  const size_t room = most - std::min(to->size(), most);
  to->append(buffer.data(), std::min(static_cast<size_t>(count), room));
  return count > 0;
}

// False if it did not end in time.
bool read_all(Pipe* out, Pipe* err, std::string* output, std::string* complaint,
              Clock::time_point deadline) {
  out->close_end(1);
  err->close_end(1);
  std::array<pollfd, 2> fds{{{out->end(0), POLLIN, 0}, {err->end(0), POLLIN, 0}}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    if (poll(fds.data(), fds.size(), static_cast<int>(left)) < 0 && errno != EINTR) return false;
    if (fds[0].revents != 0 && !read_some(fds[0].fd, output, kOutputMax)) fds[0].fd = -1;
    if (fds[1].revents != 0 && !read_some(fds[1].fd, complaint, kComplaintMax)) fds[1].fd = -1;
    for (pollfd& fd : fds) fd.revents = 0;
  }
  return true;
}

}  // namespace

tl::expected<std::string, std::string> output_of(const std::vector<std::string>& command,
                                                 std::chrono::seconds patience) {
  Pipe out, err;
  if (!out.good() || !err.good()) {
    return tl::unexpected(fmt::format("no pipe for {}: {}", command[0], std::strerror(errno)));
  }
  pid_t pid = 0;
  if (const int error = spawn(command, out, err, &pid); error != 0) {
    return tl::unexpected(fmt::format("cannot run {}: {}", command[0], std::strerror(error)));
  }
  std::string output, complaint;
  const bool ended = read_all(&out, &err, &output, &complaint, Clock::now() + patience);
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return tl::unexpected(fmt::format("{} took longer than {} s", command[0], patience.count()));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  complaint.erase(complaint.find_last_not_of(" \n") + 1);
  return tl::unexpected(
      fmt::format("{} failed{}{}", command[0], complaint.empty() ? "" : ": ", complaint));
}

}  // namespace gradring::tools
