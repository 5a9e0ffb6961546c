#include "transport/machine/look_apart.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

namespace gradring::machine {
namespace {

constexpr size_t kReportBytesMax = 8 << 20;  // some thousand devices

// In the child. Whatever a library prints there goes nowhere.
int look_and_tell(const LookOptions& options, int to) {
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
  return 0;
}

}  // namespace

void LookApart::start(const LookOptions& options) {
  bytes_.clear();
  report_.Clear();
  recording_ = options.recording;
  report_.set_recording(recording_);
  const std::string wrong = child_.start([&](int to) { return look_and_tell(options, to); });
  if (!wrong.empty()) return fail(wrong);
  report_.set_fault("it is still being looked at; ask again in a moment");
}

bool LookApart::read() {
  std::array<char, 65536> part{};
  while (!over()) {
    const ssize_t count = ::read(fd(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count > 0) {
      bytes_.append(part.data(), static_cast<size_t>(count));
      if (bytes_.size() > kReportBytesMax) fail("there is more of it than can be told");
      continue;
    }
    const std::optional<int> status = child_.status();
    if (status && WIFSIGNALED(*status)) {
      fail(fmt::format(
          "looking at it ended by signal {} ({}): a driver, or the recording, is broken",
          WTERMSIG(*status), strsignal(WTERMSIG(*status))));
    } else if (bytes_.empty() || !report_.ParseFromString(bytes_)) {
      fail("looking at it ended without a result");
    }
    child_.end();
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
    pollfd item{fd(), POLLIN, 0};
    poll(&item, 1, static_cast<int>(left.count()) + 1);
  }
}

void LookApart::fail(const std::string& why) {
  child_.end();
  report_.Clear();
  report_.set_recording(recording_);
  report_.set_fault(why);
}

}  // namespace gradring::machine
