// What a trainer submits before its job has come about, in raw protocol, to a real daemon.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/verdict.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

class LiveEarlyTest : public testing::Test {
 protected:
  LiveDaemon daemon_;
};

TEST_F(LiveEarlyTest, WaitsForTheJobAndGoesThen) {
  RawTrainer a(daemon_.runtime_dir()), b(daemon_.runtime_dir());
  const auto memory_a = a.allocate(4096), memory_b = b.allocate(4096);
  memory_a.data[5] = 3;
  memory_b.data[5] = 4;
  const uint64_t join_a = a.begin_join("job", 0, 2);
  for (uint64_t i = 0; i < 3; ++i) a.submit(RawTrainer::allreduce(memory_a, 16, i), 0);
  EXPECT_FALSE(a.receive(50)) << "nothing can have ended";
  const uint64_t join_b = b.begin_join("job", 1, 2);
  for (uint64_t i = 0; i < 3; ++i) b.submit(RawTrainer::allreduce(memory_b, 16, i), 0);
  EXPECT_TRUE(a.finish_join(join_a).has_joined()) << "before any op of it is told to have ended";
  EXPECT_TRUE(b.finish_join(join_b).has_joined());
  for (RawTrainer* trainer : {&a, &b}) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(trainer->completion().verdict(), kOk);
  }
  // It is the session's job under this number also later.
  a.submit(RawTrainer::allreduce(memory_a, 16, 3), 0);
  b.submit(RawTrainer::allreduce(memory_b, 16, 3));
  EXPECT_EQ(a.completion().verdict(), kOk);
  EXPECT_EQ(b.completion().verdict(), kOk);
}

TEST_F(LiveEarlyTest, FailsWithTheJoin) {
  RawTrainer a(daemon_.runtime_dir());
  const auto memory = a.allocate(4096);
  wire::ClientMessage message;
  message.set_request(a.next_request());
  message.mutable_join()->set_job("job");
  message.mutable_join()->set_size(2);
  message.mutable_join()->set_timeout_ms(50);
  a.send(message);
  a.submit(RawTrainer::allreduce(memory, 16, 0), 0);
  EXPECT_THAT(a.answer_to(message.request()).refused().message(), HasSubstr("missing ranks: 1"));
  const wire::Completion completion = a.completion();
  EXPECT_EQ(completion.verdict(), kFailed);
  EXPECT_THAT(completion.message(), HasSubstr("its job did not come about"));
}

TEST_F(LiveEarlyTest, IsRefusedBeyondItsBoundsAndWithoutAJoin) {
  RawTrainer a(daemon_.runtime_dir()), b(daemon_.runtime_dir());
  const auto memory_a = a.allocate(4096), memory_b = b.allocate(4096);
  a.submit(RawTrainer::allreduce(memory_a, 16, 0), 0);
  EXPECT_THAT(a.completion().message(), HasSubstr("join one first"));
  const uint64_t join_a = a.begin_join("job", 0, 2);
  const auto submit = [&](RawTrainer& trainer, const RawTrainer::Memory& memory, uint64_t i) {
    wire::Operation operation = RawTrainer::allreduce(memory, 1, i);
    operation.set_ticket(100 + i);
    trainer.submit(operation, 0);
  };
  for (uint64_t i = 0; i <= 1024; ++i) submit(a, memory_a, i);
  const wire::Completion completion = a.completion();
  EXPECT_EQ(completion.ticket(), 100u + 1024);
  EXPECT_THAT(completion.message(), HasSubstr("1024 ops wait"));
  // Those that were taken go on.
  const uint64_t join_b = b.begin_join("job", 1, 2);
  for (uint64_t i = 0; i < 1024; ++i) submit(b, memory_b, i);
  EXPECT_TRUE(a.finish_join(join_a).has_joined());
  EXPECT_TRUE(b.finish_join(join_b).has_joined());
  for (int i = 0; i < 1024; ++i) {
    ASSERT_EQ(a.completion().verdict(), kOk);
    ASSERT_EQ(b.completion().verdict(), kOk);
  }
}

TEST_F(LiveEarlyTest, IsForgottenWithItsTrainer) {
  RawTrainer b(daemon_.runtime_dir());
  {
    RawTrainer a(daemon_.runtime_dir());
    const auto memory = a.allocate(4096);
    a.begin_join("job", 0, 1 + 1);
    a.submit(RawTrainer::allreduce(memory, 16, 0), 0);
  }
  ASSERT_TRUE(form_job("other", {&b}));
  const auto memory = b.allocate(4096);
  b.submit(RawTrainer::allreduce(memory, 16, 0));
  EXPECT_EQ(b.completion().verdict(), kOk);
}

}  // namespace
}  // namespace gradring::daemon
