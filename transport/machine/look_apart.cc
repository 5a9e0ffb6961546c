#include "transport/machine/look_apart.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace gradring::machine {
namespace {

constexpr size_t kReportBytesMax = 8 << 20;  // some thousand devices

// In the child. Whatever a library prints there goes nowhere.
[[noreturn]] void look_and_tell(const LookOptions& options, int to) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC); nowhere >= 0) {
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, standard);
  }
  const std::string bytes = look_and_report(options).SerializeAsString();
  size_t told = 0;
  while (told < bytes.size()) {
    const ssize_t count = write(to, bytes.data() + told, bytes.size() - told);
    if (count < 0 && errno != EINTR) break;
    if (count > 0) told += static_cast<size_t>(count);
  }
  _exit(0);
}

}  // namespace

void LookApart::start(const LookOptions& options) {
  end();
  bytes_.clear();
  report_.Clear();
  recording_ = options.recording;
  report_.set_recording(recording_);
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(fmt::format("pipe: {}", std::strerror(errno)));
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[0]);
    look_and_tell(options, ends[1]);
  }
  const int error = errno;
  close(ends[1]);
  fd_ = ends[0];
  if (pid_ < 0) return fail(fmt::format("fork: {}", std::strerror(error)));
  fcntl(fd_, F_SETFL, O_NONBLOCK);
  report_.set_fault("it is still being looked at; ask again in a moment");
}

bool LookApart::read() {
  std::array<char, 65536> part{};
  while (!over()) {
    const ssize_t count = ::read(fd_, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count > 0) {
      bytes_.append(part.data(), static_cast<size_t>(count));
      if (bytes_.size() > kReportBytesMax) fail("there is more of it than can be told");
      continue;
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFSIGNALED(status)) {
      fail(fmt::format(
          "looking at it ended by signal {} ({}): a driver, or the recording, is broken",
          WTERMSIG(status), strsignal(WTERMSIG(status))));
    } else if (bytes_.empty() || !report_.ParseFromString(bytes_)) {
      fail("looking at it ended without a result");
    }
    end();
  }
  return true;
}

void LookApart::give_up() {
  if (!over()) fail("looking at it took too long: does nvidia-smi, or lstopo, hang as well?");
}

void LookApart::wait(int milliseconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(milliseconds);
  while (!read()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return give_up();
    pollfd item{fd_, POLLIN, 0};
    poll(&item, 1, static_cast<int>(left.count()) + 1);
  }
}

void LookApart::fail(const std::string& why) {
  end();
  report_.Clear();
  report_.set_recording(recording_);
  report_.set_fault(why);
}

// A child that hangs in its driver dies when the driver lets it: nobody waits for that, and whoever
// inherits our children buries it.
void LookApart::end() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    constexpr int kPatienceMs = 100;
    for (int i = 0; i < kPatienceMs && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) usleep(1000);
    pid_ = -1;
  }
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace gradring::machine
