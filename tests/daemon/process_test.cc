#include "daemon/control/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "daemon/core/recovery.h"

namespace gradring::daemon {
namespace {

// Of a child that was sent this signal and that nobody has waited for.
std::optional<std::string> end_by(int signal) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const Fd pidfd = open_pidfd_of(child);
  kill(child, signal);
  pollfd ended{pidfd.get(), POLLIN, 0};
  poll(&ended, 1, -1);
  auto how = how_it_ended(pidfd.get(), child);
  waitpid(child, nullptr, 0);
  return how;
}

TEST(Process, TellsHowItEnded) {
  EXPECT_EQ(end_by(SIGKILL), "killed by signal 9 (SIGKILL)");
  EXPECT_EQ(end_by(SIGTERM), core::kEndedOnRequest) << "by which blame goes elsewhere";
}

}  // namespace
}  // namespace gradring::daemon
