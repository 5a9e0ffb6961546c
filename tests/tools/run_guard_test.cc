// The guard of gradring-run, and what is put under it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "tools/run/guard.h"
#include "tools/run/process.h"

namespace gradring::tools {
namespace {

Process sleeper() {
  Process process;
  process.label = "sleeper";
  process.command = {"/bin/sleep", "100"};
  return process;
}

TEST(Guard, IsToldOfAProcessBeforeItsProgramRuns) {
  std::array<int, 2> door{};
  ASSERT_EQ(pipe2(door.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const auto child = start(sleeper(), door[1]);
  ASSERT_TRUE(child) << child.error();
  // start() returns when the program runs, and by then the word is there.
  pid_t group = -1;
  EXPECT_EQ(read(door[0], &group, sizeof group), ssize_t{sizeof group});
  EXPECT_EQ(group, child->pid);
  kill(-child->pid, SIGKILL);
  waitpid(child->pid, nullptr, 0);
  for (const int end : door) close(end);
}

TEST(Guard, ThatIsDismissedKillsNobody) {
  pid_t pid = -1;
  {
    const Guard guard;
    const auto child = start(sleeper(), guard.door());
    ASSERT_TRUE(child) << child.error();
    pid = child->pid;
  }
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0) << "it lives";
  kill(-pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST(Guard, IsNoConditionOfStarting) {
  const auto child = start(sleeper(), -1);
  ASSERT_TRUE(child) << child.error();
  kill(-child->pid, SIGKILL);
  waitpid(child->pid, nullptr, 0);
}

}  // namespace
}  // namespace gradring::tools
