#include "tests/client/restart.h"

#include <atomic>
#include <numeric>

// Ops over a restart of the daemon.
namespace gradring::test {
namespace {

using ::testing::HasSubstr;

class RestartWith : public Restart, public ::testing::WithParamInterface<Listeners> {};
INSTANTIATE_TEST_SUITE_P(Listeners, RestartWith,
                         ::testing::Values(Listeners::kKept, Listeners::kGone),
                         [](const auto& with) {
                           return with.param == Listeners::kKept ? "Kept" : "Gone";
                         });

TEST_P(RestartWith, AnOpUnderWayIsSubmittedAgainAndEndsWell) {
  auto* memory = alloc(comm_, 16);
  memory[1] = 4;
  const gradring_request request = submit(comm_, sum_of(memory, memory, 16));
  ++submits_;
  const wire::Operation before = operations().at(0);
  std::thread trainer([&] { wait_good(request); });
  daemon_.die(GetParam());
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  daemon_.come_back();
  const wire::Submit again = submitted_again();
  EXPECT_EQ(again.job(), kFakeJob);
  ASSERT_EQ(again.operations_size(), 1);
  EXPECT_EQ(again.operations(0).SerializeAsString(), before.SerializeAsString());
  daemon_.complete(before);
  trainer.join();
  EXPECT_EQ(memory[1], 8);
  expect_all_well();
}

TEST_P(RestartWith, NobodyLooksAndTheNextCallFindsTheWay) {
  restart(GetParam());
  expect_all_well();
  const auto hellos = daemon_.wait_for_hellos(2);
  ASSERT_EQ(hellos.size(), 2u);
  EXPECT_FALSE(hellos[0].has_resume());
  EXPECT_EQ(hellos[1].resume().session(), 1u);
  EXPECT_EQ(hellos[1].resume().secret(), "secret of 1");
}

TEST_P(RestartWith, ItHappensTwiceInARow) {
  const gradring_request request = submit_barrier();
  for (int i = 0; i < 2; ++i) {
    restart(GetParam());
    ASSERT_EQ(drive(request).operations_size(), 1);
  }
  daemon_.complete(operations().at(0));
  wait_good(request);
  expect_all_well();
}

TEST_F(Restart, ACompletionThatWasLostIsTakenFromTheNextLife) {
  auto* memory = alloc(comm_, 16);
  memory[1] = 4;
  const gradring_request request = submit(comm_, sum_of(memory, memory, 16));
  ++submits_;
  daemon_.finish(operations().at(0));
  restart();
  drive(request);
  daemon_.send(end_of(request));
  wait_good(request);
  EXPECT_EQ(memory[1], 8);
}

TEST_F(Restart, ACompletionMayBeToldInBothLives) {
  const gradring_request first = submit_barrier();
  const gradring_request second = submit_barrier();
  const auto open = operations();
  daemon_.complete(open.at(0));
  EXPECT_EQ(gradring_wait(comm_.get(), second, 100, nullptr), GRADRING_ERR_DEADLINE);
  restart();
  const wire::Submit again = drive(second);
  ASSERT_EQ(again.operations_size(), 1) << "the other has ended, if nobody has waited for it yet";
  EXPECT_EQ(again.operations(0).ticket(), second);
  daemon_.complete(open.at(0));
  daemon_.complete(open.at(1));
  wait_good(second);
  wait_good(first);
}

TEST_F(Restart, ASubmissionThatWasLostIsSentAgain) {
  daemon_.freeze();
  const gradring_request request = submit(comm_, barrier_op());
  EXPECT_TRUE(operations().empty());
  daemon_.set([](Script& script) { script.complete = true; });
  restart();
  wait_good(request);
}

// What lay unsent reaches the next life on the old channel, which that life knows nothing of.
TEST_F(Restart, ARefusalBehindTheHangUpIsNotTheOps) {
  const gradring_request request = submit_barrier();
  daemon_.hang_up();
  wire::DaemonMessage refused;
  refused.set_request(request);
  *refused.mutable_refused() = refusal(Code::kIncompatible, "speaks client protocol 1");
  daemon_.send(refused);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it has come
  drive(request);
  daemon_.complete(operations().at(0));
  wait_good(request);
  expect_all_well();
}

TEST_F(Restart, ManyOpsAreSubmittedAgainInOrderAndInMessagesThatTheDaemonTakes) {
  constexpr size_t kOps = 3000;
  gradring_op op = barrier_op();
  std::vector<gradring_request> requests;
  for (size_t i = 0; i < kOps; ++i) {
    const std::string name = std::string(300, 'x') + std::to_string(i % 7);
    op.name = name.c_str();
    requests.push_back(submit(comm_, op));
  }
  submits_ = kOps;
  ASSERT_EQ(operations().size(), kOps);
  daemon_.set([](Script& script) { script.complete = true; });
  restart();
  for (const gradring_request request : requests) wait_good(request);
  std::vector<uint64_t> again;
  // The daemon has answered the last of them, and counts it a moment later.
  for (size_t seen = kOps; again.size() < kOps;) {
    const auto all = daemon_.wait_for_messages(wire::ClientMessage::kSubmit, seen + 1);
    ASSERT_GT(all.size(), seen);
    for (; seen < all.size(); ++seen) {
      EXPECT_LT(all[seen].ByteSizeLong(), 256u * 1024);
      for (const auto& operation : all[seen].submit().operations()) {
        again.push_back(operation.ticket());
      }
    }
  }
  EXPECT_EQ(again, requests);
}

TEST_F(Restart, AllWaitsOfAllThreadsGoOn) {
  std::vector<gradring_request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(submit_barrier());
  std::vector<std::thread> threads;
  for (const gradring_request request : requests) {
    threads.emplace_back([this, request] { wait_good(request); });
  }
  daemon_.set([](Script& script) { script.complete = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  daemon_.die(Listeners::kGone);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  daemon_.come_back();
  for (auto& thread : threads) thread.join();
}

TEST_F(Restart, WaitsEndInTimeWhileTheDaemonIsAway) {
  const gradring_request request = submit_barrier();
  for (const Listeners listeners : {Listeners::kKept, Listeners::kGone}) {
    daemon_.die(listeners);
    const auto start = Clock::now();
    EXPECT_EQ(gradring_wait(comm_.get(), request, 100, nullptr), GRADRING_ERR_DEADLINE);
    EXPECT_THAT(gradring_last_error(), HasSubstr("node fake went away and may come back within 8"));
    EXPECT_GE(ms_since(start), 100);
    EXPECT_LT(ms_since(start), 100 + kSoonMs);
    EXPECT_LT(quickest_of_five([&] {
                int done = 0;
                EXPECT_EQ(gradring_test(comm_.get(), request, &done, nullptr), GRADRING_OK);
              }),
              kLateMs);
  }
  daemon_.come_back();
  drive(request);
  daemon_.complete(operations().at(0));
  wait_good(request);
}

TEST_F(Restart, OpsSubmittedMeanwhileAreKept) {
  const gradring_request before = submit_barrier();
  daemon_.die(Listeners::kGone);
  gradring_op named = barrier_op();
  named.name = "layer";
  named.priority = 7;
  std::vector<gradring_request> meanwhile;
  for (int i = 0; i < 2; ++i) {
    meanwhile.push_back(submit(comm_, barrier_op()));
    meanwhile.push_back(submit(comm_, named));
  }
  daemon_.come_back();
  const wire::Submit again = drive(before);
  ASSERT_EQ(again.operations_size(), 5);
  EXPECT_EQ(again.operations(0).ticket(), before);
  for (int i = 0; i < 2; ++i) {
    const wire::Operation& unnamed = again.operations(1 + 2 * i);
    EXPECT_EQ(unnamed.ticket(), meanwhile[2 * i]);
    EXPECT_EQ(unnamed.key().sequence(), 1u + i);
    const wire::Operation& other = again.operations(2 + 2 * i);
    EXPECT_EQ(other.ticket(), meanwhile[2 * i + 1]);
    EXPECT_EQ(other.name(), "layer");
    EXPECT_EQ(other.key().sequence(), 0u + i);
    EXPECT_EQ(other.priority(), 7);
  }
  for (const auto& operation : again.operations()) daemon_.complete(operation);
  wait_good(before);
  for (const gradring_request request : meanwhile) wait_good(request);
}

// The shared copy holds the sum already when the op is submitted again.
TEST_F(Restart, RegisteredMemoryIsNotCopiedInTwice) {
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), 0.0f);
  ASSERT_EQ(gradring_register(comm_.get(), values.data(), 64 * sizeof(float)), GRADRING_OK);
  const gradring_request request = submit(comm_, sum_of(values.data(), values.data(), 64));
  ++submits_;
  daemon_.finish(operations().at(0));
  restart();
  drive(request);
  daemon_.send(end_of(request));
  wait_good(request);
  EXPECT_EQ(values[21], 42);
}

TEST_F(Restart, RegisteredMemoryIsCopiedInAtSubmitEvenIfTheDaemonIsAway) {
  std::vector<float> values(64, 3.0f);
  ASSERT_EQ(gradring_register(comm_.get(), values.data(), 64 * sizeof(float)), GRADRING_OK);
  daemon_.die(Listeners::kKept);
  const gradring_request request = submit(comm_, sum_of(values.data(), values.data(), 64));
  EXPECT_EQ(gradring_wait(comm_.get(), request, 20, nullptr), GRADRING_ERR_DEADLINE);
  daemon_.set([](Script& script) { script.complete = true; });
  daemon_.come_back();
  wait_good(request);
  EXPECT_EQ(values[63], 6);
}

TEST_F(Restart, TheViewIsToldAgainAndMayBeANewOne) {
  const gradring_request request = submit_barrier();
  for (const uint64_t epoch : {1, 4}) {
    wire::DaemonMessage told;
    told.mutable_view_changed()->set_job(kFakeJob);
    *told.mutable_view_changed()->mutable_view() = view_of("job", epoch, {0, 1}, true);
    daemon_.set([&](Script& script) { script.say_after_open = told; });
    restart();
    drive(request);
    EXPECT_EQ(gradring_epoch(comm_.get()), epoch);
  }
}

TEST_F(Restart, TheJobMayBeOverByThen) {
  const gradring_request request = submit_barrier();
  wire::DaemonMessage closed;
  closed.mutable_closed()->set_job(kFakeJob);
  closed.mutable_closed()->set_message("rank 1 died");
  daemon_.set([&](Script& script) { script.say_after_open = closed; });
  restart();
  EXPECT_STREQ(wait_failed(request, 0, 1000 + kSoonMs).message, "rank 1 died");
}

TEST_F(Restart, WithoutAGraceTheEndIsTheEnd) {
  daemon_.set([](Script& script) { script.restart_grace_ms = 0; });
  const Comm comm = open(daemon_);
  const gradring_request request = submit(comm, barrier_op());
  ASSERT_EQ(daemon_.wait_for_operations(1).size(), 1u);
  restart();
  EXPECT_EQ(gradring_wait(comm.get(), request, -1, nullptr), GRADRING_ERR_FAILED);
  EXPECT_THAT(gradring_last_error(), HasSubstr("the daemon on node fake went away; start it"));
}

}  // namespace
}  // namespace gradring::test
