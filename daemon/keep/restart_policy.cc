#include "daemon/keep/restart_policy.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "daemon/keep/exit_status.h"

namespace gradring::keep {
namespace {

constexpr int kGaveUp = 1;

// What ends a process that was asked to end before it could catch the signal. systemd calls it
// clean.
bool is_request(int signal) {
  return signal == SIGHUP || signal == SIGINT || signal == SIGTERM || signal == SIGPIPE;
}

std::string describe(int wait_status) {
  if (WIFEXITED(wait_status)) return fmt::format("exited with status {}", WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  return fmt::format("was killed by signal {} ({})", signal, sigdescr_np(signal));
}

}  // namespace

void RestartPolicy::started(Time now) {
  starts_.push_back(now);
  if (starts_.size() > options_.starts_max) starts_.pop_front();
}

RestartPolicy::Verdict RestartPolicy::ended(int wait_status, Time now) const {
  Verdict verdict;
  verdict.why = describe(wait_status);
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return verdict;
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kMadeWay) {
    verdict.restart = true;
    verdict.at = now;
    return verdict;
  }
  if (WIFSIGNALED(wait_status) && is_request(WTERMSIG(wait_status))) return verdict;
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kWrongConfiguration) {
    verdict.status = kWrongConfiguration;
    verdict.why += ": its configuration is wrong, and starting it again would not mend that";
    return verdict;
  }
  if (starts_.size() >= options_.starts_max && now - starts_.front() < options_.interval) {
    verdict.status = kGaveUp;
    verdict.why += fmt::format(
        ": it was started {} times within {} s, so it is not started again; find the reason in "
        "what it says above",
        starts_.size(), options_.interval / core::kSecond);
    return verdict;
  }
  verdict.restart = true;
  verdict.at = now + options_.pause;
  return verdict;
}

}  // namespace gradring::keep
