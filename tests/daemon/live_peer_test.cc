// Daemons among one another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "proto/verdict.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/peer_seen.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class LivePairTest : public testing::Test {
 protected:
  static std::vector<std::string> flags(int peer, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"--peer", at(peer), "--suspect", "150ms", "--decide", "450ms"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  const int port_a_ = free_port(), port_b_ = free_port();
  LiveDaemon a_{flags(port_b_), "a", port_a_};
  LiveDaemon b_{flags(port_a_), "b", port_b_};
};

TEST_F(LivePairTest, FindOneAnotherAndAdd) {
  RawTrainer x(a_.runtime_dir()), y(b_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&x, &y}));
  constexpr uint64_t kCount = 300000;
  const auto mx = x.allocate(kCount * 4), my = y.allocate(kCount * 4);
  std::fill_n(mx.data, kCount, 1.0f);
  std::fill_n(my.data, kCount, 2.0f);
  x.submit(RawTrainer::allreduce(mx, kCount, 0));
  y.submit(RawTrainer::allreduce(my, kCount, 0));
  EXPECT_EQ(x.completion().verdict(), static_cast<uint32_t>(Verdict::kOk));
  EXPECT_EQ(y.completion().verdict(), static_cast<uint32_t>(Verdict::kOk));
  EXPECT_EQ(std::count(mx.data, mx.data + kCount, 3.0f), static_cast<ptrdiff_t>(kCount));
  EXPECT_EQ(std::count(my.data, my.data + kCount, 3.0f), static_cast<ptrdiff_t>(kCount));

  // Who is where, asked on one node and told by both.
  wire::ClientMessage query;
  query.mutable_query()->set_what(wire::Query::JOB);
  query.mutable_query()->set_job("job");
  const wire::JobReport job = x.ask(query).reply().job();
  EXPECT_EQ(job.silent_nodes_size(), 0);
  ASSERT_EQ(job.ranks_size(), 2);
  EXPECT_EQ(job.ranks(0).node(), "a");
  EXPECT_EQ(job.ranks(1).node(), "b");
  EXPECT_EQ(job.ranks(1).ops_submitted(), 1u);
  EXPECT_EQ(job.ranks(1).pid(), getpid());
}

TEST_F(LivePairTest, SmallOpsShareMessages) {
  RawTrainer x(a_.runtime_dir()), y(b_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&x, &y}));
  const auto mx = x.allocate(4096), my = y.allocate(4096);
  constexpr uint64_t kOps = 400;
  for (uint64_t i = 0; i < kOps; ++i) {
    x.submit(RawTrainer::allreduce(mx, 16, i));
    y.submit(RawTrainer::allreduce(my, 16, i));
  }
  for (uint64_t i = 0; i < kOps; ++i) {
    ASSERT_EQ(x.completion().verdict(), static_cast<uint32_t>(Verdict::kOk));
    ASSERT_EQ(y.completion().verdict(), static_cast<uint32_t>(Verdict::kOk));
  }
  EXPECT_TRUE(becomes(x, [&](const wire::PeerReport&) { return x.counter("bundles_sent") > 0; }));
  EXPECT_GE(x.counter("frames_bundled"), 2 * x.counter("bundles_sent"));
}

TEST_F(LivePairTest, AKilledDaemonEndsTheJobAtOnceAndComesBack) {
  RawTrainer x(a_.runtime_dir());
  {
    RawTrainer y(b_.runtime_dir());
    ASSERT_TRUE(form_job("job", {&x, &y}));
    const auto memory = x.allocate(4096);
    x.submit(RawTrainer::allreduce(memory, 16, 0));
    const auto start = Clock::now();
    b_.signal(SIGKILL);
    const wire::Completion completion = x.completion();
    EXPECT_LT(Clock::now() - start, 500ms);
    EXPECT_EQ(completion.failure().cause(), static_cast<uint32_t>(Cause::kPeerLost));
    EXPECT_EQ(completion.failure().blame().node(), "b");
  }
  EXPECT_TRUE(becomes(x, "lost"));
  EXPECT_TRUE(x.leave().has_left());
  b_.stop();
  b_.start();
  EXPECT_TRUE(becomes(x, "up"));
  RawTrainer y(b_.runtime_dir());
  EXPECT_TRUE(form_job("job", {&x, &y}));
}

TEST_F(LivePairTest, ASilentDaemonIsSuspectedThenGivenUpAndWelcomeAgain) {
  RawTrainer x(a_.runtime_dir()), y(b_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&x, &y}));
  const auto memory = x.allocate(4096);
  x.submit(RawTrainer::allreduce(memory, 16, 0));
  b_.signal(SIGSTOP);
  EXPECT_TRUE(becomes(x, "suspect"));
  wire::ClientMessage status;
  status.mutable_query()->set_what(wire::Query::STATUS);
  EXPECT_EQ(x.ask(status).reply().status().peers_up(), 0u) << "one that is suspect is not up";
  const wire::Completion completion = x.completion();
  EXPECT_EQ(completion.failure().cause(), static_cast<uint32_t>(Cause::kPeerSilent));
  EXPECT_EQ(completion.failure().blame().node(), "b");
  EXPECT_THAT(completion.message(), HasSubstr("silent for 0."));
  b_.signal(SIGCONT);
  EXPECT_TRUE(becomes(x, "up"));
  // The woken daemon hears that the job is over, and tells its own trainer.
  const auto closed = y.receive();
  EXPECT_TRUE(closed && closed->has_closed());
}

TEST_F(LivePairTest, ATrainersDeathIsKnownOnAllNodesWithItsSignal) {
  RawTrainer x(a_.runtime_dir());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    RawTrainer y(b_.runtime_dir());
    const bool joined = y.finish_join(y.begin_join("job", 1, 2)).has_joined();
    if (write(ready[1], joined ? "y" : "n", 1) == 1) pause();
    _exit(0);
  }
  ASSERT_TRUE(x.finish_join(x.begin_join("job", 0, 2)).has_joined());
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const auto memory = x.allocate(4096);
  x.submit(RawTrainer::allreduce(memory, 16, 0));
  std::this_thread::sleep_for(20ms);
  const auto start = Clock::now();
  kill(child, SIGKILL);
  const wire::Completion completion = x.completion();
  EXPECT_LT(Clock::now() - start, 500ms);
  EXPECT_EQ(completion.failure().cause(), static_cast<uint32_t>(Cause::kTrainerDied));
  EXPECT_EQ(completion.failure().blame().rank(), 1u);
  EXPECT_EQ(completion.failure().blame().node(), "b");
  EXPECT_EQ(completion.failure().blame().pid(), child);
  // This test has not waited for its child yet, so how it ended can still be read.
  EXPECT_THAT(completion.message(), HasSubstr("killed by signal 9"));
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace gradring::daemon
