// How gradringd starts, refuses to start, and stops.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "proto/status.h"
#include "proto/verdict.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

// Exit 2 with one line, and nothing left running or lying about.
void expect_refusal(const std::vector<std::string>& flags, const std::string& words) {
  const Ended ended = run_gradringd(flags);
  EXPECT_EQ(ended.status, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr(words));
  EXPECT_THAT(ended.output, testing::StartsWith("gradringd: "));
  EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1) << ended.output;
}

std::vector<std::string> flags_for(const Scratch& scratch) {
  return {"--config",          "/dev/null", "--runtime-dir",
          scratch.path("run"), "--listen",  "127.0.0.1:" + std::to_string(free_port())};
}

TEST(LiveStart, AWrongConfigurationIsOneLineAndExit2) {
  const Scratch scratch;
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = flags_for(scratch);
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  expect_refusal(with({"--colour=red"}), "--colour");
  expect_refusal(with({"--slots=0"}), "--slots");
  expect_refusal(with({"--net-device=nosuch0"}), "nosuch0");
  expect_refusal(with({"--socket-group=nosuchgroup"}), "nosuchgroup");
  scratch.write("bad.conf", "slots = 4\nslices = 9\n");
  expect_refusal({"--config", scratch.path("bad.conf")}, "unknown key 'slices'");
  expect_refusal({"--config", "/dev/null", "--runtime-dir", "/proc/nowhere"}, "runtime-dir");
  expect_refusal({"--config", "/dev/null", "--runtime-dir", "/nowhere/run"},
                 "choose another, as in --runtime-dir ");
  scratch.write("file", "");
  expect_refusal({"--config", "/dev/null", "--runtime-dir", scratch.path("file")},
                 "not a directory");
}

TEST(LiveStart, CheckConfigSaysOkAndTouchesNothing) {
  const Scratch scratch;
  std::vector<std::string> flags = flags_for(scratch);
  flags.emplace_back("--check-config");
  const Ended good = run_gradringd(flags);
  EXPECT_EQ(good.status, 0) << good.output;
  EXPECT_THAT(good.output, testing::StartsWith("OK"));
  EXPECT_NE(access(scratch.path("run").c_str(), F_OK), 0);
  flags[3] += "/";
  EXPECT_EQ(run_gradringd(flags).status, 0) << "a folder may be written so";
  flags.emplace_back("--net-device=nosuch0");
  expect_refusal(flags, "nosuch0");
  flags.back() = "--socket-group=nosuchgroup";
  expect_refusal(flags, "there is no group nosuchgroup");
}

TEST(LiveStart, HelpSaysWhatEachOptionTakes) {
  const Ended help = run_gradringd({"--help"});
  EXPECT_THAT(help.output, HasSubstr("--insecure [=BOOL(=true)]"));
  EXPECT_THAT(help.output, testing::Not(HasSubstr(" arg ")));
}

TEST(LiveStart, ASecondDaemonOnTheDirectoryIsRefusedAndTheFirstGoesOn) {
  LiveDaemon first;
  expect_refusal({"--config", "/dev/null", "--runtime-dir", first.runtime_dir(), "--listen",
                  "127.0.0.1:" + std::to_string(free_port())},
                 std::to_string(first.pid()));
  RawTrainer trainer(first.runtime_dir());
  EXPECT_TRUE(trainer.join("job", 0, 1).has_joined());
}

TEST(LiveStart, AKeeperRefusesWhatItsDaemonWould) {
  const Scratch scratch;
  std::vector<std::string> flags = flags_for(scratch);
  flags.insert(flags.end(), {"--keep", "--slots=0"});
  expect_refusal(flags, "--slots");
  LiveDaemon kept({"--keep"});
  expect_refusal({"--keep", "--config", "/dev/null", "--runtime-dir", kept.runtime_dir()},
                 std::to_string(kept.pid()));
  const Ended busy = run_gradringd({"--keep", "--config", "/dev/null", "--runtime-dir",
                                    scratch.path("run"), "--listen", kept.listen()});
  EXPECT_EQ(busy.status, 2);
  EXPECT_THAT(busy.output, HasSubstr(kept.listen() + " is in use"));
  {
    RawTrainer trainer(kept.runtime_dir());
    EXPECT_TRUE(trainer.join("job", 0, 1).has_joined());
  }
  EXPECT_EQ(kept.stop().status, 0);
}

TEST(LiveStart, APortInUseIsNamed) {
  LiveDaemon first;
  const Scratch scratch;
  expect_refusal(
      {"--config", "/dev/null", "--runtime-dir", scratch.path("run"), "--listen", first.listen()},
      first.listen() + " is in use");
  EXPECT_NE(access(scratch.path("run/attach.sock").c_str(), F_OK), 0) << "half started";
}

TEST(LiveStart, APortForMetricsThatIsInUseIsNamed) {
  LiveDaemon first;
  const Scratch scratch;
  std::vector<std::string> flags = flags_for(scratch);
  flags.insert(flags.end(), {"--metrics", first.listen()});
  expect_refusal(flags, "metrics: cannot listen at " + first.listen() + ": it is in use");
  EXPECT_NE(access(scratch.path("run/attach.sock").c_str(), F_OK), 0) << "half started";
}

TEST(LiveStart, StaleSocketsOfAKilledDaemonAreReplaced) {
  LiveDaemon daemon;
  daemon.signal(SIGKILL);
  while (daemon.runs()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(access((daemon.runtime_dir() + "/attach.sock").c_str(), F_OK), 0);
  daemon.stop();
  daemon.start();
  RawTrainer trainer(daemon.runtime_dir());
  EXPECT_TRUE(trainer.join("job", 0, 1).has_joined());
}

TEST(LiveStart, SocketsHaveTheModeThatWasAskedFor) {
  LiveDaemon open_to_all, narrow({"--socket-mode", "0640"});
  struct stat status {};
  for (const char* name : {"/attach.sock", "/control.sock"}) {
    ASSERT_EQ(stat((open_to_all.runtime_dir() + name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0666u);
    ASSERT_EQ(stat((narrow.runtime_dir() + name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0640u);
  }
}

TEST(LiveStart, AnIdleDaemonStopsAtOnceAndCleansUp) {
  LiveDaemon daemon;
  RawTrainer idle(daemon.runtime_dir());
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = daemon.stop();
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  EXPECT_NE(access((daemon.runtime_dir() + "/attach.sock").c_str(), F_OK), 0);
  EXPECT_NE(access((daemon.runtime_dir() + "/control.sock").c_str(), F_OK), 0);
}

TEST(LiveStart, DrainingLetsJobsEndAndTakesNoNewOnes) {
  LiveDaemon daemon;
  RawTrainer running(daemon.runtime_dir()), late(daemon.runtime_dir());
  ASSERT_TRUE(form_job("job", {&running}));
  const auto memory = running.allocate(4096);
  daemon.signal(SIGTERM);
  while (daemon.log().find("draining") == std::string::npos) std::this_thread::sleep_for(1ms);
  const auto refused = late.join("new", 0, 1);
  EXPECT_EQ(refused.refused().code(), static_cast<uint32_t>(Code::kUnavailable));
  running.submit(RawTrainer::allreduce(memory, 16, 0));
  EXPECT_EQ(running.completion().verdict(), static_cast<uint32_t>(Verdict::kOk));
  EXPECT_TRUE(daemon.runs());
  EXPECT_TRUE(running.leave().has_left());
  EXPECT_EQ(daemon.stop().status, 0);
}

TEST(LiveStart, ToldOfARestartItDrainsWhereNobodyKeepsWhatTheNextOneNeeds) {
  LiveDaemon daemon({"--restart-grace", "20s"});
  RawTrainer running(daemon.runtime_dir());
  ASSERT_TRUE(form_job("job", {&running}));
  daemon.signal(SIGUSR1);
  while (daemon.log().find("draining") == std::string::npos) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(daemon.runs());
  EXPECT_TRUE(running.leave().has_left());
  EXPECT_EQ(daemon.stop().status, 0);
}

TEST(LiveStart, ASecondSignalFailsWhatRunsAndTellsEverybody) {
  LiveDaemon daemon;
  RawTrainer a(daemon.runtime_dir()), b(daemon.runtime_dir());
  ASSERT_TRUE(form_job("job", {&a, &b}));
  const auto memory = a.allocate(4096);
  a.submit(RawTrainer::allreduce(memory, 16, 0));
  std::this_thread::sleep_for(50ms);
  daemon.signal(SIGTERM);
  while (daemon.log().find("draining") == std::string::npos) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(daemon.runs());
  const Ended ended = daemon.stop();
  EXPECT_EQ(ended.status, 0) << ended.output;
  const wire::Completion completion = a.completion();
  EXPECT_EQ(completion.failure().cause(), static_cast<uint32_t>(Cause::kDrained));
  EXPECT_EQ(completion.failure().blame().node(), "live");
  const auto closed = b.receive();
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->closed().failure().cause(), static_cast<uint32_t>(Cause::kDrained));
}

TEST(LiveStart, ADrainHasAnEnd) {
  LiveDaemon daemon({"--drain-timeout", "300ms"});
  RawTrainer a(daemon.runtime_dir());
  ASSERT_TRUE(form_job("job", {&a}));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(daemon.stop().status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(LiveStart, SighupRereadsWhatCanBeReread) {
  const Scratch scratch;
  scratch.write("conf", "max-sessions = 1\n");
  LiveDaemon daemon({"--config", scratch.path("conf")});
  RawTrainer first(daemon.runtime_dir());
  {
    RawAttach second(daemon.runtime_dir());
    EXPECT_TRUE(second.hello(1)->has_refused());
  }
  scratch.write("conf", "max-sessions = nonsense\n");
  daemon.signal(SIGHUP);
  while (daemon.log().find("not reread") == std::string::npos) std::this_thread::sleep_for(1ms);
  scratch.write("conf", "max-sessions = 2\n");
  daemon.signal(SIGHUP);
  while (daemon.log().find("info: reread") == std::string::npos) std::this_thread::sleep_for(1ms);
  EXPECT_NE(daemon.log().find("no other setting has changed"), std::string::npos);
  RawAttach second(daemon.runtime_dir());
  EXPECT_TRUE(second.hello(1)->has_welcome());
  // Who changed something else is told that it waits.
  scratch.write("conf", "max-sessions = 3\nslots = 32\ndecide = 9s\n");
  daemon.signal(SIGHUP);
  const std::string waiting = "not before a restart: decide, slots\n";
  for (int i = 0; i < 5000 && daemon.log().find(waiting) == std::string::npos; ++i)
    std::this_thread::sleep_for(1ms);
  EXPECT_NE(daemon.log().find(waiting), std::string::npos) << daemon.log();
}

TEST(LiveStart, SystemdIsToldWhenTheDaemonIsReadyAndThatItLives) {
  const Scratch scratch;
  const std::string path = scratch.path("notify");
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_GE(socket.get(), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const timeval patience{10, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const auto told = [&socket] {
    std::string text(4096, '\0');
    const ssize_t size = recv(socket.get(), text.data(), text.size(), 0);
    text.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return text;
  };
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  setenv("WATCHDOG_USEC", "1000000", 1);
  LiveDaemon daemon;
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  EXPECT_THAT(told(), HasSubstr("FDNAME=node"));
  EXPECT_THAT(told(), HasSubstr("FDNAME=control.sock"));
  EXPECT_THAT(told(), HasSubstr("FDNAME=attach.sock"));
  const std::string ready = told();
  EXPECT_THAT(ready, HasSubstr("READY=1"));
  EXPECT_THAT(ready, HasSubstr("STATUS=node live"));
  EXPECT_EQ(told(), "WATCHDOG=1");
  EXPECT_EQ(told(), "WATCHDOG=1");
  daemon.stop();
  std::string text = told();
  for (; text.find("STOPPING=1") == std::string::npos; text = told()) {
    ASSERT_EQ(text, "WATCHDOG=1");
  }
  EXPECT_THAT(text, HasSubstr("EXTEND_TIMEOUT_USEC=")) << "a drain may take longer than a stop";
  EXPECT_EQ(told(), "FDSTOREREMOVE=1\nFDNAME=control.sock");
  EXPECT_EQ(told(), "FDSTOREREMOVE=1\nFDNAME=attach.sock");
}

}  // namespace
}  // namespace gradring::daemon
