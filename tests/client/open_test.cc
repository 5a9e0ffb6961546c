#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::HasSubstr;

// Runs `body` in a forked child as a user without rights; its return value is the exit status.
template <class Body>
int as_nobody(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(100);
    ::_exit(body());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Open, TellsRankSizeNodeAndPlace) {
  FakeDaemon daemon;
  const Comm comm = open(daemon, 2, 4);
  EXPECT_EQ(gradring_rank(comm.get()), 2);
  EXPECT_EQ(gradring_size(comm.get()), 4);
  EXPECT_STREQ(gradring_node(comm.get()), "fake");
  EXPECT_EQ(gradring_epoch(comm.get()), 1u);
  // Ranks 1, 2 and 3 are on this node, so rank 2 is the second of three.
  EXPECT_EQ(gradring_local_size(comm.get()), 3);
  EXPECT_EQ(gradring_local_rank(comm.get()), 1);
}

// An answer to a connection that was given up for another is lost.
TEST(Open, WaitsForADaemonThatTakesItsTimeForEachConnection) {
  FakeDaemon daemon;
  daemon.set([](auto& script) { script.open_takes = std::chrono::milliseconds(700); });
  EXPECT_NE(open(daemon, 0, 1), nullptr);
}

// libzmq itself would end the process.
TEST(Open, WithoutDescriptorsIsRefusedAtWhicheverItIs) {
  FakeDaemon daemon;
  int refused = 0;
  for (int more = 0; more < 30; ++more) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close_range(3, ~0U, 0);
      const auto files = rlim_t{3} + static_cast<rlim_t>(more);
      const rlimit limit{files, files};
      ::setrlimit(RLIMIT_NOFILE, &limit);
      const gradring_options options = options_for(daemon.runtime_dir(), 0, 1);
      gradring_comm* comm = nullptr;
      ::_exit(gradring_open(&options, &comm) == GRADRING_OK ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << more << " descriptors: signal " << WTERMSIG(status);
    refused += WEXITSTATUS(status);
  }
  EXPECT_GE(refused, 16);
  EXPECT_LT(refused, 30);
}

TEST(Open, KeepsTheLocalRankThatTheLauncherGave) {
  FakeDaemon daemon;
  gradring_options options = options_for(daemon.runtime_dir(), 2, 4);
  options.local_rank = 5;
  gradring_comm* comm = nullptr;
  ASSERT_EQ(gradring_open(&options, &comm), GRADRING_OK);
  EXPECT_EQ(gradring_local_rank(comm), 5);
  gradring_close(comm);
}

TEST(Open, SaysToTheDaemonWhoJoinsWhat) {
  FakeDaemon daemon;
  gradring_options options = options_for(daemon.runtime_dir(), 1, 3);
  options.token = "launch 8";
  options.join_timeout_ms = 1500;
  gradring_comm* comm = nullptr;
  ASSERT_EQ(gradring_open(&options, &comm), GRADRING_OK);
  const auto joins = daemon.wait_for_messages(wire::ClientMessage::kJoin, 1);
  ASSERT_EQ(joins.size(), 1u);
  EXPECT_EQ(joins[0].protocol(), kClientProtocols.newest);
  EXPECT_EQ(joins[0].join().job(), "job");
  EXPECT_EQ(joins[0].join().token(), "launch 8");
  EXPECT_EQ(joins[0].join().rank(), 1u);
  EXPECT_EQ(joins[0].join().size(), 3u);
  EXPECT_EQ(joins[0].join().policy(), "fail");
  EXPECT_EQ(joins[0].join().timeout_ms(), 1500u);
  gradring_close(comm);
  EXPECT_EQ(daemon.wait_for_messages(wire::ClientMessage::kLeave, 1).size(), 1u);
}

TEST(Open, RefusesAWireTypeThatDoesNotExist) {
  FakeDaemon daemon;
  gradring_options options = options_for(daemon.runtime_dir());
  options.wire = "bf8";
  const Refusal refusal = open_refused(options);
  EXPECT_EQ(refusal.code, GRADRING_ERR_INVALID);
  EXPECT_THAT(refusal.message, HasSubstr("'bf8' is none of native, fp16, bf16 and int8"));
}

TEST(Open, WithoutADaemonSaysAtOnceWhereItLookedAndHowToStartOne) {
  const auto start = Clock::now();
  const Refusal refused = open_refused(options_for("/tmp/gradring-nobody-is-here"));
  EXPECT_LT(ms_since(start), kSoonMs);
  EXPECT_EQ(refused.code, GRADRING_ERR_UNAVAILABLE);
  EXPECT_THAT(refused.message, HasSubstr("/tmp/gradring-nobody-is-here/attach.sock"));
  EXPECT_THAT(refused.message, HasSubstr("no such file"));
  EXPECT_THAT(refused.message, HasSubstr("`gradringd --runtime-dir /tmp/gradring-nobody-is-here`"));
}

TEST(Open, InTheDefaultDirectoryNamesTheService) {
  if (std::filesystem::exists("/run/gradring/attach.sock")) GTEST_SKIP() << "a daemon runs here";
  gradring_options options = options_for("unused");
  options.runtime_dir = nullptr;
  EXPECT_THAT(open_refused(options).message, HasSubstr("`systemctl start gradringd`"));
}

TEST(Open, AtTheSocketOfADeadDaemonSaysConnectionRefused) {
  FakeDaemon daemon;
  daemon.die();
  const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
  EXPECT_EQ(refused.code, GRADRING_ERR_UNAVAILABLE);
  EXPECT_THAT(refused.message, HasSubstr("connection refused"));
  EXPECT_THAT(refused.message, HasSubstr(daemon.runtime_dir() + "/attach.sock"));
}

TEST(Open, WithoutPermissionSaysSo) {
  FakeDaemon daemon;
  ASSERT_EQ(::chmod(daemon.runtime_dir().c_str(), 0), 0);
  const int status = as_nobody([&] {
    const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
    if (refused.code != GRADRING_ERR_UNAVAILABLE) return 1;
    return refused.message.find("permission denied") != std::string::npos ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
  ::chmod(daemon.runtime_dir().c_str(), 0700);
}

TEST(Open, WithoutPermissionOnTheControlSocketSaysSoToo) {
  FakeDaemon daemon;
  ASSERT_EQ(::chmod(daemon.runtime_dir().c_str(), 0755), 0);
  ASSERT_EQ(::chmod((daemon.runtime_dir() + "/attach.sock").c_str(), 0777), 0);
  ASSERT_EQ(::chmod((daemon.runtime_dir() + "/control.sock").c_str(), 0), 0);
  const int status = as_nobody([&] {
    const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
    if (refused.message.find("permission denied") == std::string::npos) return 1;
    if (refused.message.find("the sockets' group, which `ls -l " + daemon.runtime_dir() +
                             "` names") == std::string::npos)
      return 3;
    return refused.message.find("control.sock") != std::string::npos ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}

TEST(Open, InADirectoryWithTooLongAPathSaysHowLongItMayBe) {
  const std::string directory = "/tmp/" + std::string(120, 'x');
  const Refusal refused = open_refused(options_for(directory));
  EXPECT_EQ(refused.code, GRADRING_ERR_INVALID);
  EXPECT_THAT(refused.message, HasSubstr("107"));
}

TEST(Open, PassesOnWhatTheDaemonSaysAboutVersions) {
  FakeDaemon daemon;
  daemon.set([](Script& script) {
    script.refuse_hello = refusal(Code::kIncompatible, "this daemon speaks client protocol 2");
  });
  const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
  EXPECT_EQ(refused.code, GRADRING_ERR_INCOMPATIBLE);
  EXPECT_EQ(refused.message, "this daemon speaks client protocol 2");
}

TEST(Open, PassesOnWhyThereIsNoRoom) {
  FakeDaemon daemon;
  daemon.set([](Script& script) {
    script.refuse_connection = refusal(Code::kResourceExhausted, "100 trainers are here already");
  });
  for (int i = 0; i < 20; ++i) {
    const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
    EXPECT_EQ(refused.code, GRADRING_ERR_EXHAUSTED);
    EXPECT_EQ(refused.message, "100 trainers are here already");
  }
}

TEST(Open, EndsWhenTheDaemonDiesDuringTheHello) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.answer_hello = false; });
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    daemon.die();
  });
  const auto start = Clock::now();
  const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
  killer.join();
  EXPECT_LT(ms_since(start), kSoonMs);
  EXPECT_EQ(refused.code, GRADRING_ERR_UNAVAILABLE);
  EXPECT_THAT(refused.message, HasSubstr("closed the connection without a word"));
  EXPECT_THAT(refused.message, HasSubstr(daemon.runtime_dir() + "/attach.sock"));
}

// Its keeper holds the listening sockets: at which moment of the handshake it ends is chance.
TEST(Open, WaitsForTheNextLifeOfADaemonThatEndsMeanwhile) {
  for (const uint32_t grace_ms : {0u, 5000u}) {
    for (bool Script::*unanswered : {&Script::answer_hello, &Script::answer_open}) {
      FakeDaemon daemon;
      daemon.set([&](Script& script) {
        script.restart_grace_ms = grace_ms;
        script.*unanswered = false;
      });
      std::thread keeper([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        daemon.set([&](Script& script) { script.*unanswered = true; });
        daemon.die(Listeners::kKept);
        if (grace_ms == 0) daemon.forget();
        daemon.come_back();
      });
      const Comm comm = open(daemon, 0, 1);
      keeper.join();
      EXPECT_EQ(gradring_size(comm.get()), 1) << grace_ms;
    }
  }
}

TEST(Open, RefusesADaemonOfAnotherProtocol) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.protocol = kClientProtocols.newest + 1; });
  const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
  EXPECT_EQ(refused.code, GRADRING_ERR_INCOMPATIBLE);
  EXPECT_THAT(refused.message, HasSubstr("node fake (gradringd 9.9.9) speaks client protocol 2"));
}

TEST(Open, IsNoSuccessEvenIfARefusalSaysCode0) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.refuse_hello = refusal(Code::kOk, "no"); });
  EXPECT_EQ(open_refused(options_for(daemon.runtime_dir())).code, GRADRING_ERR_INTERNAL);
}

TEST(Open, PassesOnWhyAJoinIsRefused) {
  FakeDaemon daemon;
  const std::pair<Code, gradring_code> cases[] = {
      {Code::kDeadlineExceeded, GRADRING_ERR_DEADLINE},
      {Code::kAborted, GRADRING_ERR_FAILED},
      {Code::kPermissionDenied, GRADRING_ERR_PERMISSION}};
  for (const auto& [code, expected] : cases) {
    daemon.set([&, wanted = code](Script& script) {
      script.refuse_join = refusal(wanted, "rank 3 is missing");
    });
    const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
    EXPECT_EQ(refused.code, expected);
    EXPECT_EQ(refused.message, "rank 3 is missing");
  }
}

TEST(Open, PassesOnWhyASessionIsRefused) {
  FakeDaemon daemon;
  daemon.set([](Script& script) {
    script.refuse_open = refusal(Code::kPermissionDenied, "wrong secret");
  });
  const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
  EXPECT_EQ(refused.code, GRADRING_ERR_PERMISSION);
  EXPECT_EQ(refused.message, "wrong secret");
}

TEST(Open, EndsWhenTheDaemonDiesDuringTheJoin) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.answer_join = false; });
  std::thread killer([&] {
    daemon.wait_for_messages(wire::ClientMessage::kJoin, 1);
    daemon.die();
  });
  const Refusal refused = open_refused(options_for(daemon.runtime_dir()));
  killer.join();
  EXPECT_EQ(refused.code, GRADRING_ERR_UNAVAILABLE);
  EXPECT_THAT(refused.message, HasSubstr("went away"));
}

TEST(Open, FailsOrTheFirstOpDoesIfTheJobFailsInThatMoment) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.close_after_join = true; });
  for (int i = 0; i < 3; ++i) {
    const gradring_options options = options_for(daemon.runtime_dir());
    gradring_comm* comm = nullptr;
    gradring_code code = gradring_open(&options, &comm);
    // The news may arrive together with the answer or after it.
    daemon.set([](Script& script) { script.complete = false; });
    if (code == GRADRING_OK) code = gradring_barrier(comm);
    EXPECT_EQ(code, GRADRING_ERR_FAILED);
    EXPECT_THAT(gradring_last_error(), HasSubstr("rank 1 died"));
    gradring_close(comm);
  }
}

TEST(Open, GivesUpOnADaemonThatDoesNotAnswerTheJoin) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.answer_join = false; });
  gradring_options options = options_for(daemon.runtime_dir());
  options.join_timeout_ms = 1;
  const auto start = Clock::now();
  const Refusal refused = open_refused(options);
  EXPECT_EQ(refused.code, GRADRING_ERR_DEADLINE);
  // The daemon's own refusal, which names the missing ranks, gets five seconds more.
  EXPECT_GE(ms_since(start), 4900);
  EXPECT_LT(ms_since(start), 5000 + kSoonMs);
}

TEST(Open, RefusesNonsenseAndNamesIt) {
  const std::string directory = "/tmp/unused";
  const auto refused_with = [&](auto change) {
    gradring_options options = options_for(directory);
    change(options);
    const Refusal refused = open_refused(options);
    EXPECT_EQ(refused.code, GRADRING_ERR_INVALID);
    return refused.message;
  };
  EXPECT_THAT(refused_with([](auto& options) { options.rank = -1; }), HasSubstr("GRADRING_RANK"));
  EXPECT_THAT(refused_with([](auto& options) { options.size = -1; }), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(refused_with([](auto& options) { options.job = nullptr; }),
              HasSubstr("GRADRING_JOB"));
  EXPECT_THAT(refused_with([](auto& options) { options.job = "\xff"; }), HasSubstr("UTF-8"));
  EXPECT_THAT(refused_with([](auto& options) { options.rank = 2; }),
              HasSubstr("rank 2 does not exist in a job of size 2"));
  EXPECT_THAT(refused_with([](auto& options) { options.size = 0; }), HasSubstr("size 0"));
  EXPECT_THAT(refused_with([](auto& options) { options.join_timeout_ms = -1; }),
              HasSubstr("join_timeout_ms"));
  EXPECT_THAT(refused_with([](auto& options) { options.struct_size = 0; }),
              HasSubstr("struct_size"));
  EXPECT_THAT(refused_with([](auto& options) { options.struct_size = 57; }),
              HasSubstr("struct_size is 57, which no such structure has"));
}

TEST(Open, RefusesOptionsOfANewerLibraryUnlessTheyAreUnused) {
  struct Newer {
    gradring_options options;
    uint64_t new_field;
  } newer{};
  const std::string directory = "/tmp/gradring-nobody-is-here";
  newer.options = options_for(directory);
  newer.options.struct_size = sizeof(newer);
  EXPECT_EQ(open_refused(newer.options).code, GRADRING_ERR_UNAVAILABLE);
  newer.new_field = 1;
  EXPECT_EQ(open_refused(newer.options).code, GRADRING_ERR_INCOMPATIBLE);
}

TEST(Open, RefusesNullPointers) {
  gradring_comm* comm = nullptr;
  EXPECT_EQ(gradring_open(nullptr, &comm), GRADRING_ERR_INVALID);
  EXPECT_EQ(gradring_open(nullptr, nullptr), GRADRING_ERR_INVALID);
  EXPECT_EQ(gradring_barrier(nullptr), GRADRING_ERR_INVALID);
  EXPECT_EQ(gradring_rank(nullptr), -1);
  gradring_close(nullptr);
}

}  // namespace
}  // namespace gradring::test
