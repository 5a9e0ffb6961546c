// A rank without more data, as its library sees it.
#include <gmock/gmock.h>

#include <string>
#include <thread>

#include "tests/client/elastic.h"

namespace gradring::test {
namespace {

using ::testing::HasSubstr;

class NoMore : public Elastic {
 protected:
  void SetUp() override {
    Elastic::SetUp();
    joiner_ = std::thread([this] { code_ = gradring_join(comm_.get(), &last_, nullptr); });
    join_ = operation(++submitted_);
  }
  void TearDown() override {
    if (joiner_.joinable()) joiner_.join();
  }

  void ask(const OpKey& key, const std::optional<Signature>& signature) {
    wire::DaemonMessage message;
    message.mutable_stand_in()->set_job(kFakeJob);
    to_wire(key, message.mutable_stand_in()->mutable_key());
    if (signature) to_wire(*signature, message.mutable_stand_in()->mutable_signature());
    daemon_.send(message);
  }
  // What it submits when it is asked.
  wire::Operation asked(const OpKey& key, const std::optional<Signature>& signature) {
    ask(key, signature);
    return operation(++submitted_);
  }
  void end(const wire::Operation& operation) {
    daemon_.complete(operation, completion(Verdict::kOk, 1, 4, 4));
  }
  gradring_code end_join() {
    end(join_);
    joiner_.join();
    return code_;
  }
  static Signature signature_of(const wire::Operation& operation) {
    Signature signature;
    EXPECT_TRUE(from_wire(operation.signature(), &signature));
    return signature;
  }

  const Signature sum_{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 4};
  std::thread joiner_;
  wire::Operation join_;
  uint32_t last_ = 99;
  gradring_code code_ = GRADRING_OK;
};

TEST_F(NoMore, IsAnOpOfItsOwnKind) {
  EXPECT_EQ(signature_of(join_).collective, Collective::kJoin);
  EXPECT_EQ(from_wire(join_.key()), (OpKey{OpKey::kNoMoreSpace, 0}));
  EXPECT_EQ(end_join(), GRADRING_OK) << gradring_last_error();
  EXPECT_EQ(last_, 2u) << "nobody has another value";
  EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kFree, 1).size(), 1u)
      << "its memory is given back";
}

TEST_F(NoMore, StandsInUnderTheKeyThatItIsAskedFor) {
  const wire::Operation named = asked({77, 3}, sum_);
  EXPECT_EQ(from_wire(named.key()), (OpKey{77, 3}));
  EXPECT_EQ(signature_of(named), sum_);
  EXPECT_TRUE(named.has_input() && named.has_output());
  end(named);
  EXPECT_EQ(end_join(), GRADRING_OK) << gradring_last_error();
}

TEST_F(NoMore, CountsAsIfItHadSubmittedThemItself) {
  for (const uint64_t sequence : {1, 0, 2}) end(asked({0, sequence}, sum_));
  ASSERT_EQ(end_join(), GRADRING_OK) << gradring_last_error();
  submit(comm_, barrier_op());
  EXPECT_EQ(from_wire(operation(++submitted_).key()), (OpKey{0, 3}));
}

TEST_F(NoMore, IsAskedTwiceAndAnswersOnce) {
  const wire::Operation once = asked({0, 0}, sum_);
  ask({0, 0}, sum_);
  const wire::Operation next = asked({0, 1}, sum_);
  EXPECT_EQ(from_wire(next.key()), (OpKey{0, 1}));
  end(once);
  end(next);
  EXPECT_EQ(end_join(), GRADRING_OK) << gradring_last_error();
}

TEST_F(NoMore, StandsInForWhatItWasRefusedBefore) {
  ASSERT_EQ(end_join(), GRADRING_OK);
  const gradring_request own = submit(comm_, barrier_op());
  wire::Completion refused = completion(Verdict::kFailed, 1, 0, 0);
  refused.mutable_failure()->set_cause(static_cast<uint32_t>(Cause::kRefused));
  daemon_.complete(operation(++submitted_), refused);
  EXPECT_EQ(gradring_wait(comm_.get(), own, 5000, nullptr), GRADRING_ERR_FAILED);
  joiner_ = std::thread([this] { code_ = gradring_join(comm_.get(), &last_, nullptr); });
  join_ = operation(++submitted_);
  const wire::Operation again = asked({0, 0}, sum_);
  EXPECT_EQ(from_wire(again.key()), (OpKey{0, 0})) << "the others wait for it";
  end(again);
  EXPECT_EQ(end_join(), GRADRING_OK);
}

TEST_F(NoMore, SaysSoWhereItsOwnValuesAreNeeded) {
  const Signature from_here{Collective::kBroadcast, Dtype::kFloat32, ReduceOp::kNone, 2, 4};
  for (const auto& signature : {std::optional(from_here), std::optional<Signature>()}) {
    const wire::Operation answer = asked({0, submitted_ - 1}, signature);
    EXPECT_EQ(signature_of(answer).collective, Collective::kJoin);
    EXPECT_FALSE(answer.has_input());
    end(answer);
  }
  EXPECT_EQ(end_join(), GRADRING_OK) << gradring_last_error();
}

TEST_F(NoMore, SubmitsNothingElseMeanwhile) {
  const gradring_op op = barrier_op();
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(comm_.get(), &op, &request), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("rank 2 has joined"));
  uint32_t last = 0;
  EXPECT_EQ(gradring_join(comm_.get(), &last, nullptr), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("rank 2 has joined already"));
  EXPECT_EQ(end_join(), GRADRING_OK);
  EXPECT_NE(submit(comm_, op), 0u) << "and then it does";
}

TEST(Abandon, IsRefusedByADaemonThatCouldKeepItForEver) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.asks_for_failed = false; });
  EXPECT_EQ(gradring_abandon(open(daemon).get(), nullptr), GRADRING_ERR_INCOMPATIBLE);
  EXPECT_THAT(gradring_last_error(), HasSubstr("upgrade gradringd"));
  daemon.set([](Script& script) { script.asks_for_failed = true; });
  EXPECT_EQ(gradring_abandon(open(daemon).get(), nullptr), GRADRING_OK) << gradring_last_error();
}

}  // namespace
}  // namespace gradring::test
