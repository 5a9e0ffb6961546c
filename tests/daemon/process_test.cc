#include "daemon/control/door/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
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

// A kernel that knows who connected, and cannot name it any more, is not asked for whoever has that
// number now.
TEST(Process, OfNobodyThereIsNoPidfd) {
  const Fd none(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));  // has no process at its other end
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  constexpr int kSoPeerPidfdOfLinux = 77;
  ASSERT_NE(getsockopt(none.get(), SOL_SOCKET, kSoPeerPidfdOfLinux, &pidfd, &size), 0);
  if (errno == ENOPROTOOPT) GTEST_SKIP() << "this kernel does not know";
  EXPECT_FALSE(open_pidfd(none.get(), getpid()));
}

}  // namespace
}  // namespace gradring::daemon
