// Where an elastic job grows, as one of its trainers sees it.
#include <gmock/gmock.h>

#include <cstring>
#include <gradring/gradring.hpp>

#include "tests/client/elastic.h"

namespace gradring::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JoinPoint : public Elastic {
 protected:
  static wire::View grown(uint64_t epoch, const std::vector<uint32_t>& ranks, uint32_t newcomer) {
    wire::View view = view_of("job", epoch, ranks);
    came_in(view, newcomer);
    return view;
  }
  gradring_code submit_named(const char* name) {
    gradring_op op = barrier_op();
    op.name = name;
    gradring_request request = 0;
    const gradring_code code = gradring_submit(comm_.get(), &op, &request);
    if (code != GRADRING_OK) return code;
    daemon_.complete(operation(++submitted_), completion(Verdict::kOk, 1, 4, 4));
    return gradring_wait(comm_.get(), request, 5000, nullptr);
  }
};

TEST_F(JoinPoint, IsABarrierOfItsOwnKind) {
  const gradring_view view = join_point({}, completion(Verdict::kOk, 1, 4, 4));
  EXPECT_EQ(view.epoch, 1u);
  EXPECT_EQ(view.size, 4u);
  const auto sent = operation(1);
  Signature signature;
  ASSERT_TRUE(from_wire(sent.signature(), &signature));
  EXPECT_EQ(signature.collective, Collective::kJoinPoint);
  EXPECT_EQ(from_wire(sent.key()).space, OpKey::kJoinSpace);
  EXPECT_FALSE(sent.has_input());
}

TEST_F(JoinPoint, BringsNewRanksAndCountsFromZeroThere) {
  barrier(completion(Verdict::kOk, 1, 4, 4));
  EXPECT_EQ(submit_named("layer"), GRADRING_OK);
  const gradring_view view =
      join_point({grown(2, {0, 1, 2, 3, 5}, 5)}, completion(Verdict::kOk, 2, 5, 5));
  EXPECT_EQ(view.epoch, 2u);
  EXPECT_EQ(view.grew, 2u);
  EXPECT_EQ(view.size, 5u);
  EXPECT_EQ(view.oldest, 0u);
  EXPECT_THAT(ranks(2), ElementsAre(0, 1, 2, 3, 5));
  barrier(completion(Verdict::kOk, 2, 5, 5));
  EXPECT_EQ(from_wire(operation(4).key()), (OpKey{0, 0}));
  EXPECT_EQ(submit_named("layer"), GRADRING_OK);
  EXPECT_EQ(operation(5).key().sequence(), 0u);
  EXPECT_EQ(submit_named("layer"), GRADRING_OK);
  EXPECT_EQ(operation(6).key().sequence(), 1u);
}

TEST_F(JoinPoint, WithoutNewRanksDoesNotDisturbTheCount) {
  barrier(completion(Verdict::kOk, 1, 4, 4));
  join_point({view_of("job", 2, {1, 2, 3})}, completion(Verdict::kOkShrunk, 2, 3, 3));
  barrier(completion(Verdict::kOk, 2, 3, 3));
  EXPECT_EQ(from_wire(operation(3).key()), (OpKey{0, 1}));
  // A second growth begins anew as the first did, and a loss between them does not hide it.
  join_point({grown(3, {1, 2, 3, 4}, 4), view_of("job", 3, {1, 2, 3, 4})},
             completion(Verdict::kOk, 3, 4, 4));
  barrier(completion(Verdict::kOk, 3, 4, 4));
  EXPECT_EQ(from_wire(operation(5).key()), (OpKey{0, 0}));
}

TEST_F(JoinPoint, LeavesAllRanksWithOneView) {
  wire::View next = view_of("job", 3, {2, 3, 5});
  next.set_grown(2);
  // Others left it in epoch 2; what came after that is news for later.
  const gradring_view view =
      join_point({grown(2, {0, 1, 2, 3, 5}, 5), next}, completion(Verdict::kOk, 2, 5, 5));
  EXPECT_EQ(view.epoch, 2u);
  EXPECT_EQ(view.size, 5u);
  EXPECT_EQ(this->view().epoch, 3u);
  EXPECT_EQ(this->view().oldest, 2u);
}

TEST_F(JoinPoint, DoesNotBeginWhileAnOpIsUnderWay) {
  gradring_op op = barrier_op();
  op.name = "slow";
  const gradring_request request = submit(comm_, op);
  EXPECT_EQ(gradring_join_point(comm_.get(), nullptr, nullptr), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(),
              AllOf(HasSubstr("request " + std::to_string(request)), HasSubstr("'slow'")));
  daemon_.complete(operation(++submitted_), completion(Verdict::kOk, 1, 4, 4));
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
  join_point({}, completion(Verdict::kOk, 1, 4, 4));
}

TEST_F(JoinPoint, LetsNoOtherOpBegin) {
  std::thread trainer(
      [&] { EXPECT_EQ(gradring_join_point(comm_.get(), nullptr, nullptr), GRADRING_OK); });
  const auto open = operation(1);
  EXPECT_EQ(gradring_barrier(comm_.get()), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("while a join point"));
  EXPECT_EQ(gradring_join_point(comm_.get(), nullptr, nullptr), GRADRING_ERR_INVALID);
  daemon_.complete(open, completion(Verdict::kOk, 1, 4, 4));
  trainer.join();
  submitted_ = 1;
  barrier(completion(Verdict::kOk, 1, 4, 4));
  EXPECT_EQ(from_wire(operation(2).key()), (OpKey{0, 0})) << "what is refused is not counted";
}

TEST_F(JoinPoint, IsNotSubmitted) {
  gradring_op op = barrier_op();
  const uint32_t number = 4;
  std::memcpy(&op.collective, &number, sizeof(number));
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(comm_.get(), &op, &request), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("call gradring_join_point"));
}

TEST_F(JoinPoint, ThatFailsOrIsRefusedIsOver) {
  const std::string words = "deadline passed: rank 3";
  gradring_view view{};
  view.struct_size = sizeof(view);
  view.epoch = 4711;
  gradring_result result = empty_result();
  std::thread trainer([&] {
    EXPECT_EQ(gradring_join_point(comm_.get(), &result, &view), GRADRING_ERR_FAILED);
    EXPECT_STREQ(gradring_last_error(), words.c_str());
  });
  wire::Completion end = completion(Verdict::kFailed, 1, 0, 0);
  to_wire(Failure{Cause::kDeadline, Blame{3, "", 0, "", ""}}, end.mutable_failure());
  daemon_.complete(operation(++submitted_), end);
  trainer.join();
  EXPECT_EQ(view.epoch, 4711u);
  EXPECT_EQ(result.cause, static_cast<uint32_t>(GRADRING_CAUSE_DEADLINE));

  daemon_.set([](Script& script) { script.refuse_submit = refusal(Code::kAborted, "not now"); });
  EXPECT_EQ(gradring_join_point(comm_.get(), nullptr, nullptr), GRADRING_ERR_FAILED);
  EXPECT_STREQ(gradring_last_error(), "not now");
  daemon_.set([](Script& script) { script.refuse_submit.reset(); });
  submitted_ = 2;
  join_point({}, completion(Verdict::kOk, 1, 4, 4));
}

TEST_F(JoinPoint, EndsWhenAnotherThreadCloses) {
  gradring_comm* comm = comm_.release();
  std::thread trainer(
      [&] { EXPECT_EQ(gradring_join_point(comm, nullptr, nullptr), GRADRING_ERR_UNAVAILABLE); });
  operation(1);
  gradring_close(comm);
  trainer.join();
}

TEST_F(JoinPoint, OfAClosedJobTellsWhy) {
  wire::DaemonMessage closed;
  closed.mutable_closed()->set_job(kFakeJob);
  closed.mutable_closed()->set_message("fewer than 2 ranks are left");
  daemon_.send(closed);
  EXPECT_EQ(gradring_join_point(comm_.get(), nullptr, nullptr), GRADRING_ERR_FAILED);
  EXPECT_STREQ(gradring_last_error(), "fewer than 2 ranks are left");
}

TEST_F(JoinPoint, ComesFirstForWhoeverComesLater) {
  daemon_.set([](Script& script) { script.view = grown(6, {1, 2, 7}, 2); });
  comm_ = open_elastic();
  EXPECT_EQ(view().epoch, 6u);
  EXPECT_EQ(view().grew, 6u);
  EXPECT_EQ(view().oldest, 1u);
  EXPECT_EQ(gradring_size(comm_.get()), 3) << "not what it formed with";
  EXPECT_EQ(gradring_barrier(comm_.get()), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("its first op must be gradring_join_point"));
  const gradring_view view = join_point({}, completion(Verdict::kOk, 6, 3, 3));
  EXPECT_EQ(view.epoch, 6u);
  EXPECT_EQ(view.grew, 6u);
  EXPECT_EQ(view.position, 1u);
  barrier(completion(Verdict::kOk, 6, 3, 3));
  EXPECT_EQ(from_wire(operation(2).key()), (OpKey{0, 0}));
}

TEST_F(JoinPoint, InCppReturnsTheView) {
  daemon_.set([](Script& script) {
    script.complete = true;
    script.view = view_of("job", 1, {0, 1, 2, 3});
  });
  const Communicator job(options_for(daemon_.runtime_dir(), 2, 4));
  gradring_result result{};
  const View joined = job.join_point(&result);
  EXPECT_EQ(result.size, 4u);
  for (const View& view : {joined, job.view()}) {
    EXPECT_EQ(view.epoch, 1u);
    EXPECT_EQ(view.grew, 1u);
    EXPECT_EQ(view.size, 4);
    EXPECT_EQ(view.rank, 2);
    EXPECT_EQ(view.position, 2);
    EXPECT_EQ(view.oldest, 0u);
    EXPECT_THAT(view.ranks, ElementsAre(0, 1, 2, 3));
  }
  daemon_.set([](Script& script) { script.complete = false; });
  const Request open = job.start_barrier();
  try {
    job.join_point();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GRADRING_ERR_INVALID);
  }
  daemon_.complete(daemon_.wait_for_operations(2).at(1));
}

}  // namespace
}  // namespace gradring::test
