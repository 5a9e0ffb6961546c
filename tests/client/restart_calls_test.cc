#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client/restart.h"

// Every other call, and forks, while the daemon restarts.
namespace gradring::test {
namespace {

using ::testing::HasSubstr;

class RestartDuring : public Restart {
 protected:
  // Kills the daemon, lets `call` begin, and brings the daemon back.
  template <class Call>
  void over_a_restart(Call call) {
    daemon_.die(Listeners::kKept);
    std::thread trainer(call);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    daemon_.come_back();
    trainer.join();
  }
};

TEST_F(RestartDuring, AnAllocation) {
  over_a_restart([&] {
    auto* memory = alloc(comm_, 4096);
    memory[4095] = 1;
  });
  expect_all_well();
}

// Sending fails a moment before reading does.
TEST_F(RestartDuring, AnAllocationWhileTheDaemonsSocketsClose) {
  daemon_.refuse_attach();
  std::thread trainer([&] { alloc(comm_, 4096); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  daemon_.thaw();
  restart();
  trainer.join();
  EXPECT_EQ(daemon_.segments(), 1u);
  expect_all_well();
}

TEST_F(RestartDuring, AnAllocationThatWasAskedForBefore) {
  daemon_.freeze();
  std::thread trainer([&] { alloc(comm_, 4096); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  restart();
  trainer.join();
  EXPECT_EQ(daemon_.segments(), 1u);
}

// Of which the socket took some before, and takes some after; each is granted once.
TEST_F(RestartDuring, MoreAllocationsThanTheSocketHolds) {
  daemon_.freeze();
  std::vector<std::thread> trainers;
  for (size_t i = 0; i < kManyThreads; ++i) {
    trainers.emplace_back([&] { alloc<unsigned char>(comm_, 1); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  restart();
  for (std::thread& trainer : trainers) trainer.join();
  EXPECT_EQ(daemon_.segments(), kManyThreads);
  expect_all_well();
}

TEST_F(RestartDuring, ARegistration) {
  std::vector<float> values(64);
  over_a_restart([&] {
    EXPECT_EQ(gradring_register(comm_.get(), values.data(), 64 * sizeof(float)), GRADRING_OK);
  });
  EXPECT_EQ(gradring_unregister(comm_.get(), values.data()), GRADRING_OK);
  EXPECT_EQ(daemon_.segments(), 0u);
}

TEST_F(RestartDuring, AFree) {
  auto* memory = alloc(comm_, 4096);
  over_a_restart([&] { EXPECT_EQ(gradring_free(comm_.get(), memory), GRADRING_OK); });
  EXPECT_EQ(daemon_.segments(), 0u);
}

// The daemon freed it and died before it could say so.
TEST_F(RestartDuring, AFreeThatWasDoneBefore) {
  auto* memory = alloc(comm_, 4096);
  daemon_.freeze();
  daemon_.set([](Script& script) { script.refuse_free = refusal(Code::kNotFound, "no segment"); });
  std::thread trainer(
      [&] { EXPECT_EQ(gradring_free(comm_.get(), memory), GRADRING_OK) << gradring_last_error(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  restart();
  trainer.join();
  EXPECT_EQ(gradring_free(comm_.get(), memory), GRADRING_ERR_NOT_FOUND)
      << "it is gone here as well";
}

TEST_F(RestartDuring, AJoin) {
  daemon_.set([](Script& script) { script.answer_join = false; });
  std::thread trainer([&] { comm_ = open(daemon_); });
  ASSERT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kJoin, 2).size(), 2u);
  daemon_.set([](Script& script) { script.answer_join = true; });
  restart();
  trainer.join();
  const auto joins = daemon_.wait_for_messages(wire::ClientMessage::kJoin, 3);
  ASSERT_EQ(joins.size(), 3u);
  EXPECT_EQ(joins[2].SerializeAsString(), joins[1].SerializeAsString());
  expect_all_well();
}

// The view comes before the answer, which may have a newer one.
TEST_F(RestartDuring, AJoinThatTheDaemonHadAnswered) {
  daemon_.set([](Script& script) { script.answer_join = false; });
  std::thread trainer([&] { comm_ = open(daemon_); });
  ASSERT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kJoin, 2).size(), 2u);
  wire::DaemonMessage told;
  told.mutable_view_changed()->set_job(kFakeJob);
  *told.mutable_view_changed()->mutable_view() = view_of("job", 2, {0, 1}, true);
  daemon_.set([&](Script& script) {
    script.answer_join = true;
    script.say_after_open = told;
    script.view = view_of("job", 3, {0, 1}, true);
  });
  restart();
  trainer.join();
  EXPECT_EQ(gradring_epoch(comm_.get()), 3u);
}

TEST_F(RestartDuring, AJoinPoint) {
  std::thread trainer([&] {
    EXPECT_EQ(gradring_join_point(comm_.get(), nullptr, nullptr), GRADRING_OK)
        << gradring_last_error();
  });
  ++submits_;
  ASSERT_EQ(operations().size(), 1u);
  daemon_.set([](Script& script) { script.complete = true; });
  restart();
  trainer.join();
  expect_all_well();
}

TEST_F(RestartDuring, ACloseIsStillALeave) {
  daemon_.set([](Script& script) { script.answer_leave = false; });
  std::thread trainer([&] { comm_.reset(); });
  ASSERT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kLeave, 1).size(), 1u);
  daemon_.set([](Script& script) { script.answer_leave = true; });
  restart();
  const auto leaves = daemon_.wait_for_messages(wire::ClientMessage::kLeave, 2);
  trainer.join();
  ASSERT_EQ(leaves.size(), 2u);
  EXPECT_EQ(leaves[1].leave().job(), kFakeJob);
}

// Else it is the death of this rank to the next daemon, and to the others.
TEST_F(RestartDuring, ALeaveThatNobodyHeardIsSaidByClose) {
  daemon_.die(Listeners::kKept);
  EXPECT_EQ(gradring_abort(comm_.get(), "no such batch"), GRADRING_ERR_DEADLINE);
  daemon_.come_back();
  comm_.reset();
  const auto leaves = daemon_.wait_for_messages(wire::ClientMessage::kLeave, 1);
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_EQ(leaves.back().leave().failed(), "no such batch");
}

TEST_F(RestartDuring, ALeaveThatIsLostWithADaemonIsSaidByClose) {
  daemon_.set([](Script& script) { script.answer_leave = false; });
  EXPECT_EQ(gradring_leave(comm_.get()), GRADRING_ERR_DEADLINE);
  daemon_.set([](Script& script) { script.answer_leave = true; });
  restart();
  comm_.reset();
  EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kLeave, 2).size(), 2u);
}

TEST_F(RestartDuring, ACloseDoesNotWaitForTheDaemonToComeBack) {
  submit_barrier();
  for (const Listeners listeners : {Listeners::kKept, Listeners::kGone}) {
    daemon_.die(listeners);
    const auto start = Clock::now();
    comm_.reset();
    EXPECT_LT(ms_since(start), 2000 + kSoonMs);
    daemon_.come_back();
    comm_ = open(daemon_);
  }
}

TEST_F(RestartDuring, ACloseEndsTheWaitsOfOthers) {
  const gradring_request request = submit_barrier();
  daemon_.die(Listeners::kGone);
  std::thread waiter([&, comm = comm_.get()] {
    EXPECT_EQ(gradring_wait(comm, request, -1, nullptr), GRADRING_ERR_UNAVAILABLE);
    EXPECT_THAT(gradring_last_error(), HasSubstr("closed by another thread"));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  comm_.reset();
  waiter.join();
}

TEST_F(RestartDuring, AForkLeavesTheSessionToTheParent) {
  const gradring_request request = submit_barrier();
  const auto in_child = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      // A child that goes on for ever would be one that looks for the daemon too.
      ::alarm(10);
      if (gradring_barrier(comm_.get()) != GRADRING_ERR_FORKED) ::_exit(1);
      gradring_close(comm_.release());
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  };
  std::atomic<bool> stop = false;
  std::thread waiter([&] {
    while (!stop) static_cast<void>(gradring_wait(comm_.get(), request, 30, nullptr));
  });
  for (const Listeners listeners : {Listeners::kKept, Listeners::kGone}) {
    daemon_.die(listeners);
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
      in_child();
    }
    daemon_.come_back();
    in_child();
    submitted_again();
    in_child();
  }
  stop = true;
  waiter.join();
  EXPECT_EQ(daemon_.wait_for_hellos(0).size(), 3u) << "of the parent, and no child";
  daemon_.complete(operations().at(0));
  wait_good(request);
}

TEST_F(RestartDuring, LivelyTrafficOfManyThreads) {
  daemon_.set([](Script& script) { script.complete = true; });
  std::atomic<bool> stop = false;
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      auto* memory = alloc(comm_, 16);
      while (!stop) {
        memory[0] = 1;
        EXPECT_EQ(
            gradring_allreduce(comm_.get(), memory, memory, 16, GRADRING_FLOAT32, GRADRING_SUM),
            GRADRING_OK)
            << gradring_last_error();
        EXPECT_EQ(memory[0], 2);
        auto* more = alloc(comm_, 1);
        EXPECT_EQ(gradring_free(comm_.get(), more), GRADRING_OK) << gradring_last_error();
        ++done;
      }
    });
  }
  for (int i = 0; i < 12; ++i) {
    const int before = done;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    daemon_.die(i % 2 == 0 ? Listeners::kKept : Listeners::kGone);
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * (i % 4)));
    daemon_.come_back();
    const auto start = Clock::now();
    while (done < before + 10 && ms_since(start) < 10'000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_GE(done, before + 10) << "nothing goes on after restart " << i;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace gradring::test
