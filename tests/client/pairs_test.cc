// Send and receive: ops in a job of two ranks, which need not have come about when they are
// submitted.
#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/client/fake_view.h"
#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kCount = 8;

class Pairs : public ::testing::Test {
 protected:
  gradring_op op(gradring_collective collective, uint32_t peer) const {
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = collective;
    op.dtype = GRADRING_FLOAT32;
    op.count = kCount;
    op.root = peer;
    op.input = op.output = memory_;
    return op;
  }
  gradring_request send(uint32_t peer) { return submit(job_, op(GRADRING_SEND, peer)); }
  gradring_request receive(uint32_t peer) { return submit(job_, op(GRADRING_RECV, peer)); }
  gradring_code wait(gradring_request request, int64_t ms = 10'000) {
    result_ = empty_result();
    return gradring_wait(job_.get(), request, ms, &result_);
  }
  std::string refused(const gradring_op& op) {
    gradring_request request = 99;
    EXPECT_EQ(gradring_submit(job_.get(), &op, &request), GRADRING_ERR_INVALID);
    EXPECT_EQ(request, 0u);
    return gradring_last_error();
  }
  wire::ClientMessage join(size_t nth) {
    return daemon_.wait_for_messages(wire::ClientMessage::kJoin, nth).at(nth - 1);
  }
  // As the daemon answers when both are there; the pair must be the one that opened last.
  void let_in(const wire::ClientMessage& join) {
    wire::DaemonMessage message;
    message.set_request(join.request());
    message.mutable_joined()->set_job(kFakeJob);
    *message.mutable_joined()->mutable_view() =
        view_of(join.join().job(), 1, {0, 1}, join.join().rank() == 0);
    daemon_.send(message);
  }
  void hold_joins() {
    daemon_.set([](Script& script) { script.answer_join = script.complete = false; });
  }

  FakeDaemon daemon_;
  Comm job_ = open(daemon_, 1, 8);
  float* memory_ = alloc(job_, kCount);
  gradring_result result_ = empty_result();
};

TEST_F(Pairs, AreJobsOfTwoRanksAndABroadcastEach) {
  EXPECT_EQ(wait(send(5)), GRADRING_OK) << gradring_last_error();
  EXPECT_EQ(wait(receive(0)), GRADRING_OK) << gradring_last_error();
  const wire::Join with_5 = join(2).join(), with_0 = join(3).join();
  EXPECT_EQ(with_5.job(), "job[1:5]");
  EXPECT_EQ(with_5.rank(), 0u);
  EXPECT_EQ(with_5.size(), 2u);
  EXPECT_EQ(with_0.job(), "job[0:1]");
  EXPECT_EQ(with_0.rank(), 1u);
  EXPECT_EQ(with_0.token(), with_5.token());
  EXPECT_THAT(with_5.within().ranks(), testing::ElementsAre(1, 5));
  EXPECT_THAT(with_0.within().ranks(), testing::ElementsAre(0, 1));
  EXPECT_EQ(with_0.within().grown(), 1u);
  const auto operations = daemon_.wait_for_operations(2);
  for (const wire::Operation& operation : operations) {
    Signature signature;
    ASSERT_TRUE(from_wire(operation.signature(), &signature));
    EXPECT_EQ(describe(signature), "broadcast of 8 float32 from rank 0");
  }
  EXPECT_EQ(operations.at(0).name(), "1 to 5");
  EXPECT_EQ(operations.at(1).name(), "0 to 1");
}

TEST_F(Pairs, CountEachDirectionAndEachNameByItself) {
  gradring_op named = op(GRADRING_SEND, 5);
  named.name = "weights";
  wait(send(5));
  wait(receive(5));
  wait(submit(job_, named));
  wait(send(5));
  const auto operations = daemon_.wait_for_operations(4);
  EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kJoin, 2).size(), 2u) << "one pair";
  const auto key = [&](size_t i) {
    return OpKey{operations.at(i).key().space(), operations.at(i).key().sequence()};
  };
  EXPECT_EQ(key(3), (OpKey{key(0).space, 1}));
  EXPECT_EQ(key(0).sequence, 0u);
  EXPECT_EQ(key(1).sequence, 0u);
  EXPECT_NE(key(1).space, key(0).space);
  EXPECT_EQ(operations.at(1).name(), "5 to 1");
  EXPECT_EQ(operations.at(2).name(), "1 to 5, weights");
  EXPECT_EQ(key(2).sequence, 0u);
}

TEST_F(Pairs, TakeOpsBeforeTheOtherRankIsThere) {
  hold_joins();
  const gradring_request request = send(5);
  const wire::Submit early =
      daemon_.wait_for_messages(wire::ClientMessage::kSubmit, 1).at(0).submit();
  EXPECT_EQ(early.job(), 0u);
  EXPECT_EQ(wait(request, 0), GRADRING_ERR_DEADLINE);
  EXPECT_THAT(gradring_last_error(),
              AllOf(HasSubstr("request " + std::to_string(request) +
                              ", send to rank 5, is still under way after 0 ms; "),
                    HasSubstr("gradringctl"), HasSubstr("job 'job[1:5]'")));
  let_in(join(2));
  daemon_.complete(early.operations(0));
  EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
  send(5);
  EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kSubmit, 2).at(1).submit().job(),
            kFakeJob);
}

TEST_F(Pairs, SayWhoDidNotCome) {
  hold_joins();
  const gradring_request request = send(5);
  wire::DaemonMessage late;
  late.set_request(join(2).request());
  *late.mutable_refused() = refusal(Code::kDeadlineExceeded, "missing ranks: 1");
  daemon_.send(late);
  EXPECT_EQ(wait(request), GRADRING_ERR_FAILED);
  EXPECT_STREQ(result_.message, "send to rank 5: missing ranks: 1");
  EXPECT_EQ(result_.cause, static_cast<uint32_t>(Cause::kDeadline));
  // The next one tries anew, under the name by which the other comes: it has tried nothing so far.
  daemon_.set([](Script& script) { script.complete = script.answer_join = true; });
  EXPECT_EQ(wait(send(5)), GRADRING_OK) << gradring_last_error();
  EXPECT_EQ(join(3).join().job(), "job[1:5]");
}

TEST_F(Pairs, TellOfWhatWasSubmittedEarlyWhyTheJoinFailed) {
  hold_joins();
  const gradring_request request = send(5);
  const wire::Operation early = daemon_.wait_for_operations(1).at(0);
  wire::DaemonMessage gone;
  gone.set_request(join(2).request());
  *gone.mutable_refused() = refusal(Code::kAborted, "rank 5 is gone");
  daemon_.send(gone);
  wire::Completion end;
  end.set_verdict(static_cast<uint32_t>(Verdict::kFailed));
  to_wire(Failure{Cause::kRefused, {0, "fake", 1, "", "its job did not come about"}},
          end.mutable_failure());
  daemon_.complete(early, end);
  EXPECT_EQ(wait(request), GRADRING_ERR_FAILED);
  EXPECT_STREQ(result_.message, "send to rank 5: rank 5 is gone");
  EXPECT_EQ(result_.blamed_rank, -1) << "not this rank";
}

TEST_F(Pairs, BlameByTheNumbersOfTheJob) {
  daemon_.set([](Script& script) { script.complete = false; });
  const gradring_request request = receive(0);
  wire::Completion end;
  end.set_verdict(static_cast<uint32_t>(Verdict::kFailed));
  Failure failure{Cause::kTrainerDied, {}};
  failure.blame.rank = 0;
  to_wire(failure, end.mutable_failure());
  end.set_message("rank 0 died");
  end.set_epoch(1);
  daemon_.complete(daemon_.wait_for_operations(1).at(0), end);
  EXPECT_EQ(wait(request), GRADRING_ERR_FAILED);
  EXPECT_EQ(result_.blamed_rank, 0);
  EXPECT_STREQ(result_.message, "receive from rank 0: rank 0 died");
  // As rank 1 of a pair with 5 this one is rank 0 there, and 5 rank 1.
  const gradring_request other = receive(5);
  failure.blame.rank = 1;
  to_wire(failure, end.mutable_failure());
  end.set_message(describe(failure));
  daemon_.complete(daemon_.wait_for_operations(2).at(1), end);
  EXPECT_EQ(wait(other), GRADRING_ERR_FAILED);
  EXPECT_EQ(result_.blamed_rank, 5);
  EXPECT_STREQ(result_.message, "receive from rank 5: trainer died: rank 5");
}

TEST_F(Pairs, AreRefusedWhereTheyMakeNoSense) {
  EXPECT_THAT(refused(op(GRADRING_SEND, 1)), HasSubstr("a send needs another rank"));
  EXPECT_THAT(refused(op(GRADRING_RECV, 8)), HasSubstr("rank 8 is not in job job"));
  gradring_op bad = op(GRADRING_SEND, 5);
  const std::string long_name(520, 'x');
  bad.name = long_name.c_str();
  EXPECT_THAT(refused(bad), HasSubstr("name is longer than"));
  bad.name = "";
  EXPECT_THAT(refused(bad), HasSubstr("name is empty"));
  bad = op(GRADRING_SEND, 5);
  bad.prescale = 2;
  EXPECT_THAT(refused(bad), HasSubstr("transfer of float32 cannot be scaled"));
  bad = op(GRADRING_SEND, 5);
  bad.count = uint64_t{1} << 62;
  EXPECT_THAT(refused(bad), HasSubstr("float32 from rank 1 is more than any memory holds"));
  bad = op(GRADRING_SEND, 5);
  bad.input = &bad;
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(job_.get(), &bad, &request), GRADRING_ERR_NOT_FOUND);
  bad = op(GRADRING_SEND, 5);
  EXPECT_EQ(gradring_submit_all(job_.get(), &bad, 1, &request), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("one by one"));
}

TEST_F(Pairs, EndWithTheirCommunicatorWhileOneWaits) {
  hold_joins();
  const gradring_request request = receive(5);
  std::thread waiting([&] {
    EXPECT_EQ(gradring_wait(job_.get(), request, 10'000, nullptr), GRADRING_ERR_UNAVAILABLE);
    EXPECT_THAT(gradring_last_error(), HasSubstr("closed by another thread"));
  });
  // Who calls when it is closed already uses what is not there any more.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto start = Clock::now();
  gradring_close(job_.get());
  EXPECT_LT(ms_since(start), kSoonMs);
  waiting.join();
  static_cast<void>(job_.release());
}

TEST_F(Pairs, ShareTheTimeThatTheirCommunicatorTakesToClose) {
  for (const uint32_t peer : {0, 2, 3, 4}) EXPECT_EQ(wait(send(peer)), GRADRING_OK);
  daemon_.set([](Script& script) { script.answer_leave = false; });
  const auto start = Clock::now();
  job_.reset();
  EXPECT_LT(ms_since(start), 2000 + kSoonMs);
}

// Else a result would be copied to where there may be anything else by then.
TEST_F(Pairs, KeepTheMemoryThatTheirOpsName) {
  daemon_.set([](Script& script) { script.complete = false; });
  std::vector<float> own(kCount);
  ASSERT_EQ(gradring_register(job_.get(), own.data(), kCount * sizeof(float)), GRADRING_OK);
  gradring_op into = op(GRADRING_RECV, 5);
  into.output = own.data();
  const gradring_request requests[] = {submit(job_, into), send(5)};
  EXPECT_EQ(gradring_unregister(job_.get(), own.data()), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("is lent to requests"));
  EXPECT_EQ(gradring_free(job_.get(), memory_), GRADRING_ERR_INVALID);
  for (const auto& operation : daemon_.wait_for_operations(2)) daemon_.complete(operation);
  for (const gradring_request request : requests) EXPECT_EQ(wait(request), GRADRING_OK);
  EXPECT_EQ(gradring_unregister(job_.get(), own.data()), GRADRING_OK) << gradring_last_error();
  EXPECT_EQ(gradring_free(job_.get(), memory_), GRADRING_OK) << gradring_last_error();
}

TEST_F(Pairs, AreWaitedForBeforeAJoinPoint) {
  daemon_.set([](Script& script) { script.complete = false; });
  const gradring_request request = send(5);
  EXPECT_EQ(gradring_join_point(job_.get(), nullptr, nullptr), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(),
              HasSubstr("request " + std::to_string(request) + ", a send to rank 5"));
}

TEST_F(Pairs, JoinAgainBeforeTheyAskForMoreWhenTheDaemonIsBack) {
  FakeDaemon daemon;
  daemon.set([](Script& script) {
    script.complete = false;
    script.restart_grace_ms = 8000;
  });
  const Comm job = open(daemon, 1, 4);
  float* const memory = alloc(job, kCount);
  daemon.set([](Script& script) { script.answer_join = false; });
  gradring_op receive = op(GRADRING_RECV, 3);
  receive.output = memory;
  const gradring_request request = submit(job, receive);
  daemon.wait_for_messages(wire::ClientMessage::kSubmit, 1);
  daemon.die(Listeners::kKept);
  daemon.come_back();
  std::thread trainer([&] {
    EXPECT_EQ(gradring_wait(job.get(), request, 10'000, nullptr), GRADRING_OK)
        << gradring_last_error();
  });
  const auto joins = daemon.wait_for_messages(wire::ClientMessage::kJoin, 3);
  const auto again = daemon.wait_for_messages(wire::ClientMessage::kSubmit, 2).at(1).submit();
  EXPECT_EQ(joins.at(2).join().job(), "job[1:3]");
  EXPECT_EQ(again.job(), 0u);
  wire::DaemonMessage message;
  message.set_request(joins.at(2).request());
  message.mutable_joined()->set_job(kFakeJob);
  *message.mutable_joined()->mutable_view() = view_of("job[1:3]", 1, {0, 1}, true);
  daemon.send(message);
  daemon.complete(again.operations(0));
  trainer.join();
}

}  // namespace
}  // namespace gradring::test
