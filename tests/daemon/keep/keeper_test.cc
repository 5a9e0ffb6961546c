#include "daemon/keep/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tests/daemon/next_life.h"
#include "tests/daemon/scratch.h"

namespace gradring::keep {
namespace {

using core::kMillisecond;
using core::kSecond;
using daemon::FakeManager;
using daemon::Scratch;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

// Test machines are slow; a good keeper takes 10 ms.
constexpr auto kPatience = 20s;

constexpr int kCannotUnshare = 77;

// Returns in a child that is process 1 of a pid namespace; this process ends with it.
void become_process_one() {
  if (unshare(CLONE_NEWPID) != 0) _exit(kCannotUnshare);
  const pid_t pid = fork();
  if (pid == 0) return;
  int status = 0;
  waitpid(pid, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 127);
}

// A keeper in a process of its own, with a child that has a script for each of its lives.
class Keeper {
 public:
  explicit Keeper(const std::vector<std::string>& scripts,
                  const std::function<void(KeeperOptions*)>& change = {},
                  bool as_process_one = false) {
    options_.command = {SCRIPTED_CHILD, scratch_.path("notes")};
    options_.command.insert(options_.command.end(), scripts.begin(), scripts.end());
    options_.notify_socket = scratch_.path("keeper.sock");
    options_.restart.pause = 20 * kMillisecond;
    if (change) change(&options_);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    if (freopen(scratch_.path("log").c_str(), "a", stdout) == nullptr) _exit(127);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    if (as_process_one) become_process_one();
    _exit(run_keeper(options_));
  }
  ~Keeper() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  std::string notes() const { return text_of("notes"); }
  std::string log() const { return text_of("log"); }
  const std::string& socket() const { return options_.notify_socket; }

  void write(const std::string& name) const { scratch_.write(name, ""); }
  void remove(const std::string& name) const { unlink(scratch_.path(name).c_str()); }

  // Until the child has noted this; returns all notes.
  std::string wait_for(const std::string& words) const { return wait_for("notes", words); }
  void wait_for_log(const std::string& words) const { wait_for("log", words); }

  // Exit status; 128 + N: killed by N; -1: did not end.
  int wait() {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > until) return -1;
      std::this_thread::sleep_for(2ms);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Its pid in its first life.
  pid_t child() const {
    const std::string before = "life 1 pid ", text = wait_for(before);
    return std::stoi(text.substr(text.find(before) + before.size()));
  }

 private:
  std::string wait_for(const std::string& name, const std::string& words) const {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (text_of(name).find(words) == std::string::npos) {
      if (std::chrono::steady_clock::now() > until) {
        ADD_FAILURE() << "no '" << words << "' in:\n" << notes() << log();
        break;
      }
      std::this_thread::sleep_for(2ms);
    }
    return text_of(name);
  }
  std::string text_of(const std::string& name) const {
    std::ifstream file(scratch_.path(name));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  Scratch scratch_;
  KeeperOptions options_;
  pid_t pid_ = -1;
};

bool runs(pid_t pid) { return kill(pid, 0) == 0; }

TEST(Keeper, ACleanEndIsTheEndAndLeavesNothing) {
  Keeper keeper({"ready exit 0"});
  EXPECT_EQ(keeper.wait(), 0) << keeper.log();
  EXPECT_THAT(keeper.notes(), HasSubstr("life 1 "));
  EXPECT_THAT(keeper.notes(), Not(HasSubstr("life 2 ")));
  EXPECT_NE(access(keeper.socket().c_str(), F_OK), 0);
}

TEST(Keeper, WhatWasStoredIsThereInTheNextLife) {
  Keeper keeper({"store a one store b two remove a store c three kill 9",
                 "remove b store d four exit 1", "exit 0"});
  EXPECT_EQ(keeper.wait(), 0) << keeper.log();
  EXPECT_THAT(keeper.notes(), HasSubstr("life 1 pid "));
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 1 .* fds - .*\nkept\n"));
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 2 .* fds 2 .*\nkept b=two c=three\n"));
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 3 .* fds 2 .*\nkept c=three d=four\n"));
  EXPECT_THAT(keeper.log(), HasSubstr("killed by signal 9 (Killed)"));
  EXPECT_THAT(keeper.log(), HasSubstr("exited with status 1"));
}

TEST(Keeper, ThousandsAreKeptThroughManyLives) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 8400) GTEST_SKIP() << "may have " << limit.rlim_cur << " files open";
  Keeper keeper({"store-many 4000 kill 9", "store last x kill 9", "exit 0"});
  EXPECT_EQ(keeper.wait(), 0) << keeper.log();
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 2 .* fds 4000 most 4096\n"));
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 3 .* fds 4001 most 4096\n"));
}

TEST(Keeper, ALimitIsToldInWords) {
  Keeper keeper({"store a 1 store b 2 store c 3 kill 9", "exit 0"},
                [](KeeperOptions* options) { options->fds_max = 2; });
  EXPECT_EQ(keeper.wait(), 0);
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 2 .* most 2\nkept a=1 b=2\n"));
  EXPECT_THAT(keeper.log(), HasSubstr("c is not kept: 2 descriptors"));
}

TEST(Keeper, WhatHangsUpWithTheChildIsLetGo) {
  Keeper keeper({"store-pair watched poll store-pair unwatched no barrier kill 9", "exit 0"});
  EXPECT_EQ(keeper.wait(), 0);
  EXPECT_THAT(keeper.notes(), HasSubstr("barrier passed"));
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 2 .*\nkept unwatched=socket\n"));
}

TEST(Keeper, OnlyItsChildIsListenedTo) {
  Keeper keeper({"store mine 1 stranger barrier kill 9", "exit 0"});
  EXPECT_EQ(keeper.wait(), 0);
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 2 .*\nkept mine=1\n"));
}

TEST(Keeper, HostileWordsDoNoHarm) {
  Keeper keeper(
      {"say FDSTORE=1 say FDSTOREREMOVE=1 say WATCHDOG=7 say BARRIER=1 say = "
       "store a:b 1 store ok 2 barrier kill 9",
       "exit 0"});
  EXPECT_EQ(keeper.wait(), 0);
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 2 .*\nkept ok=2 stored=1\n"));
}

TEST(Keeper, AWrongConfigurationIsNotTriedAgain) {
  Keeper keeper({"exit 2"});
  EXPECT_EQ(keeper.wait(), 2);
  EXPECT_THAT(keeper.notes(), Not(HasSubstr("life 2 ")));
  EXPECT_THAT(keeper.log(), HasSubstr("configuration"));
}

TEST(Keeper, ADaemonThatCannotRunIsGivenUpInWords) {
  Keeper keeper({"kill 11"});
  EXPECT_EQ(keeper.wait(), 1);
  EXPECT_THAT(keeper.notes(), HasSubstr("life 5 "));
  EXPECT_THAT(keeper.notes(), Not(HasSubstr("life 6 ")));
  EXPECT_THAT(keeper.log(), HasSubstr("5 times within 10 s"));
}

TEST(Keeper, AProgramThatIsNotThereIsNamed) {
  Keeper keeper({}, [](KeeperOptions* options) { options->command = {"/nowhere/gradringd"}; });
  EXPECT_EQ(keeper.wait(), 1);
  EXPECT_THAT(keeper.log(), HasSubstr("cannot run /nowhere/gradringd: No such file"));
}

TEST(Keeper, SignalsReachTheChildAndItsEndIsTheKeepers) {
  for (const auto& [number, name] :
       {std::pair{SIGTERM, "Terminated"}, {SIGINT, "Interrupt"}, {SIGHUP, "Hangup"}}) {
    Keeper keeper({"ready catch exit 0"});
    keeper.wait_for("catches");
    keeper.signal(number);
    EXPECT_EQ(keeper.wait(), 0);
    EXPECT_THAT(keeper.notes(), HasSubstr(std::string("caught ") + name));
  }
}

TEST(Keeper, ADeathAfterSigtermIsTheEndAndSaid) {
  Keeper keeper({"catch kill 9"});
  keeper.wait_for("catches");
  keeper.signal(SIGTERM);
  EXPECT_EQ(keeper.wait(), 1);
  EXPECT_THAT(keeper.notes(), Not(HasSubstr("life 2 ")));
}

TEST(Keeper, SigtermBetweenTwoLivesIsTheEnd) {
  Keeper keeper({"kill 9"}, [](KeeperOptions* options) { options->restart.pause = 60 * kSecond; });
  keeper.wait_for("kept");
  while (keeper.log().find("starting it again") == std::string::npos) {
    std::this_thread::sleep_for(2ms);
  }
  keeper.signal(SIGTERM);
  EXPECT_EQ(keeper.wait(), 0);
  EXPECT_THAT(keeper.notes(), Not(HasSubstr("life 2 ")));
}

TEST(Keeper, Sigusr1RestartsAtOnceAndIsNotAFailure) {
  std::vector<std::string> scripts(8, "ready store a 1 hang");
  scripts.emplace_back("exit 0");
  Keeper keeper(scripts, [](KeeperOptions* options) { options->restart.pause = 60 * kSecond; });
  for (int life = 1; life <= 8; ++life) {
    std::string all = "life " + std::to_string(life) + " ";
    keeper.wait_for(all);
    while (keeper.notes().find("hangs", keeper.notes().find(all)) == std::string::npos) {
      std::this_thread::sleep_for(1ms);
    }
    keeper.signal(SIGUSR1);
  }
  EXPECT_EQ(keeper.wait(), 0) << keeper.log();
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 9 .*\nkept a=1 "));
}

// `pkill -USR1 gradringd` reaches both, and whoever takes the pid of the lock file the child alone.
TEST(Keeper, AChildThatMadeWayIsFollowedByAnother) {
  for (const bool both : {true, false}) {
    Keeper keeper({"ready store a 1 catch exit 75", "ready feed 300 exit 0"});
    keeper.wait_for("catches");
    if (both) {
      keeper.write("notes.slow");  // the check is not over when the child is
      keeper.signal(SIGUSR1);
      keeper.wait_for_log("told to restart");
    }
    kill(keeper.child(), SIGTERM);
    keeper.wait_for("life 2 ");
    EXPECT_EQ(keeper.wait(), 0) << keeper.log();
    EXPECT_THAT(keeper.notes(), ContainsRegex("life 2 .*\nkept a=1"));
    EXPECT_THAT(keeper.notes(), Not(HasSubstr("life 3 ")));
  }
}

TEST(Keeper, ADaemonIsNotReplacedByOneThatCouldNotStart) {
  Keeper keeper({"ready store a 1 hang", "exit 0"});
  keeper.wait_for("hangs");
  keeper.write("notes.wrong");
  keeper.signal(SIGUSR1);
  keeper.wait_for_log("goes on, as `");
  EXPECT_THAT(keeper.log(), ContainsRegex("--check-config` ended with exit status 2"));
  EXPECT_TRUE(runs(keeper.child()));
  keeper.remove("notes.wrong");
  keeper.signal(SIGUSR1);
  EXPECT_EQ(keeper.wait(), 0) << keeper.log();
  EXPECT_THAT(keeper.notes(), ContainsRegex("life 2 .*\nkept a=1"));
}

TEST(Keeper, ACheckWithoutEndIsEndedWithIt) {
  Keeper keeper({"ready hang"});
  keeper.wait_for("hangs");
  keeper.write("notes.slow");
  keeper.signal(SIGUSR1);
  keeper.wait_for_log("told to restart");
  keeper.signal(SIGTERM);
  EXPECT_EQ(keeper.wait(), 0) << keeper.log();
  EXPECT_THAT(keeper.notes(), Not(HasSubstr("life 2 ")));
}

// Both come while it is busy: the child that was to be replaced is its last.
TEST(Keeper, SigtermBehindSigusr1IsTheEnd) {
  Keeper keeper({"ready hang"});
  keeper.wait_for("hangs");
  for (const int number : {SIGSTOP, SIGUSR1, SIGTERM, SIGCONT}) keeper.signal(number);
  EXPECT_EQ(keeper.wait(), 0) << keeper.log();
  EXPECT_THAT(keeper.notes(), Not(HasSubstr("life 2 ")));
}

TEST(Keeper, AChildThatStopsFeedingIsAborted) {
  Keeper keeper({"ready feed 400 stop", "exit 0"},
                [](KeeperOptions* options) { options->watchdog = 200 * kMillisecond; });
  EXPECT_EQ(keeper.wait(), 0) << keeper.log();
  EXPECT_THAT(keeper.notes(), HasSubstr("watchdog 200000 "));
  EXPECT_THAT(keeper.notes(), HasSubstr("fed"));
  EXPECT_THAT(keeper.log(), HasSubstr("does not feed its watchdog"));
  EXPECT_THAT(keeper.log(), HasSubstr("killed by signal 6"));
}

TEST(Keeper, AChildThatIsNeverReadyIsAborted) {
  Keeper keeper({"hang", "exit 0"},
                [](KeeperOptions* options) { options->start_time = 100 * kMillisecond; });
  EXPECT_EQ(keeper.wait(), 0) << keeper.log();
  EXPECT_THAT(keeper.log(), HasSubstr("does not become ready"));
}

TEST(Keeper, WhoeverSleptBlamesNobody) {
  Keeper keeper({"ready feed 100 hang"},
                [](KeeperOptions* options) { options->watchdog = 500 * kMillisecond; });
  keeper.wait_for("life 1 ");
  keeper.signal(SIGSTOP);
  keeper.wait_for("hangs");
  std::this_thread::sleep_for(1700ms);
  keeper.signal(SIGCONT);
  std::this_thread::sleep_for(200ms);
  EXPECT_THAT(keeper.log(), Not(HasSubstr("watchdog"))) << "it had no chance to hear the child";
}

TEST(Keeper, TheChildDiesWithIt) {
  Keeper keeper({"ready hang"});
  keeper.wait_for("hangs");
  const pid_t child = keeper.child();
  ASSERT_GT(child, 1);
  keeper.signal(SIGKILL);
  EXPECT_EQ(keeper.wait(), 128 + SIGKILL);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (runs(child) && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(2ms);
  EXPECT_FALSE(runs(child));
}

TEST(Keeper, TellsItsOwnManagerWhenTheChildIsReady) {
  FakeManager manager;
  Keeper keeper({"ready exit 0"});
  EXPECT_EQ(keeper.wait(), 0);
  EXPECT_EQ(manager.heard(), "READY=1|STATUS=scripted|");
  EXPECT_EQ(manager.heard(), "");
}

TEST(Keeper, AsProcessOneItReapsOrphans) {
  Keeper keeper({"orphan feed 200 orphaned exit 0"}, {}, /*as_process_one=*/true);
  const int status = keeper.wait();
  if (status == kCannotUnshare) GTEST_SKIP() << "cannot make a pid namespace";
  EXPECT_EQ(status, 0) << keeper.log();
  // In its own namespace; a sanitizer's thread may have had the first number.
  EXPECT_THAT(keeper.notes(), testing::ContainsRegex("life 1 pid [2-9] "));
  EXPECT_THAT(keeper.notes(), HasSubstr("orphan is reaped"));
}

}  // namespace
}  // namespace gradring::keep
