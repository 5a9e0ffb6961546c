#include "transport/machine/apart.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace gradring::machine {
namespace {

// Waits until the child's end of the pipe is closed. What came before is left out.
void wait_for_end(const Apart& apart) {
  char part[64];
  for (ssize_t count = -1; count != 0; count = read(apart.fd(), part, sizeof part)) {
    pollfd item{apart.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&item, 1, 10'000), 1);
  }
}

TEST(Apart, TellsHowItEnded) {
  Apart apart;
  ASSERT_EQ(apart.start([](int to) { return write(to, "7", 1) == 1 ? 7 : 1; }), "");
  wait_for_end(apart);
  const auto status = apart.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(WEXITSTATUS(*status), 7);
  ASSERT_EQ(apart.start([](int) { return raise(SIGKILL); }), "");
  wait_for_end(apart);
  const auto killed = apart.status();
  ASSERT_TRUE(killed);
  EXPECT_EQ(WTERMSIG(*killed), SIGKILL);
}

TEST(Apart, NobodyWaitsForOneThatHangsOnItsWayOut) {
  Apart apart;
  ASSERT_EQ(apart.start([](int to) {
    close(to);
    return pause();
  }),
            "");
  wait_for_end(apart);
  EXPECT_FALSE(apart.status());
  const pid_t child = apart.child();
  apart.end();
  EXPECT_TRUE(apart.over());
  EXPECT_NE(kill(child, 0), 0) << "it is gone, and buried";
}

}  // namespace
}  // namespace gradring::machine
