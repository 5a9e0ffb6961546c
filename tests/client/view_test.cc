// What a trainer sees of its job when ranks are lost.
#include <gmock/gmock.h>

#include <tuple>

#include "tests/client/elastic.h"

namespace gradring::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(Elastic, PolicyTravels) {
  const auto joins = daemon_.wait_for_messages(wire::ClientMessage::kJoin, 1);
  ASSERT_EQ(joins.size(), 1u);
  EXPECT_EQ(joins[0].join().policy(), "elastic min=2 max=8");
}

TEST_F(Elastic, TheFirstViewIsWhole) {
  const gradring_view first = view();
  EXPECT_EQ(first.epoch, 1u);
  EXPECT_EQ(first.grew, 1u);
  EXPECT_EQ(first.size, 4u);
  EXPECT_EQ(first.rank, 2u);
  EXPECT_EQ(first.position, 2u);
  EXPECT_EQ(first.oldest, 0u);
  EXPECT_THAT(ranks(1), ElementsAre(0, 1, 2, 3));
}

TEST_F(Elastic, ALossIsSeenAfterTheNextOp) {
  tell(view_of("job", 2, {1, 2, 3}), "rank 0 died");
  const gradring_result result = barrier(completion(Verdict::kOkShrunk, 2, 3, 3));
  EXPECT_EQ(result.epoch, 2u);
  EXPECT_EQ(result.size, 3u);
  const gradring_view now = view();
  EXPECT_EQ(now.epoch, 2u);
  EXPECT_EQ(now.grew, 1u);
  EXPECT_EQ(now.size, 3u);
  EXPECT_EQ(now.rank, 2u) << "ranks keep their numbers";
  EXPECT_EQ(now.position, 1u);
  EXPECT_EQ(now.oldest, 1u);
  EXPECT_STREQ(now.explanation, "rank 0 died");
  EXPECT_EQ(gradring_rank(comm_.get()), 2);
  EXPECT_EQ(gradring_size(comm_.get()), 3);
  EXPECT_EQ(gradring_local_size(comm_.get()), 3);
  EXPECT_EQ(gradring_epoch(comm_.get()), 2u);
}

TEST_F(Elastic, ShrunkIsASuccessWithItsFigures) {
  float* memory = alloc(comm_, 16);
  const gradring_request request = submit(comm_, sum_of(memory, memory, 16));
  tell(view_of("job", 2, {0, 1, 2}));
  daemon_.complete(operation(1), completion(Verdict::kOkShrunk, 2, 3, 4));
  gradring_result result = empty_result();
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, &result), GRADRING_OK);
  EXPECT_EQ(result.verdict, static_cast<uint32_t>(GRADRING_VERDICT_OK_SHRUNK));
  EXPECT_EQ(result.cause, static_cast<uint32_t>(GRADRING_CAUSE_NONE));
  EXPECT_EQ(result.blamed_rank, -1);
  EXPECT_EQ(result.ranks_min, 3u);
  EXPECT_EQ(result.ranks_max, 4u);
  EXPECT_EQ(result.epoch, 2u);
  EXPECT_EQ(result.size, 3u);
}

TEST_F(Elastic, AnOpOfTheEpochBeforeHasTheSizeOfThat) {
  tell(view_of("job", 2, {1, 2, 3}));
  const gradring_result result = barrier(completion(Verdict::kOk, 1, 4, 4));
  EXPECT_EQ(result.epoch, 1u);
  EXPECT_EQ(result.size, 4u);
  EXPECT_EQ(view().epoch, 2u);
}

TEST_F(Elastic, ALossDoesNotDisturbTheCount) {
  barrier(completion(Verdict::kOk, 1, 4, 4));
  tell(view_of("job", 2, {1, 2, 3}));
  barrier(completion(Verdict::kOkShrunk, 2, 3, 3));
  EXPECT_EQ(from_wire(operation(2).key()), (OpKey{0, 1}));
}

TEST_F(Elastic, RanksAreListedByEpochForAWhile) {
  tell(view_of("job", 3, {2, 5}));
  barrier(completion(Verdict::kOk, 3, 2, 2));
  EXPECT_THAT(ranks(1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ranks(3), ElementsAre(2, 5));
  uint32_t some[] = {99, 99};
  uint32_t count = 0;
  EXPECT_EQ(gradring_view_ranks(comm_.get(), 1, some, 1, &count), GRADRING_OK);
  EXPECT_EQ(count, 4u);
  EXPECT_THAT(some, ElementsAre(0, 99));
  EXPECT_EQ(gradring_view_ranks(comm_.get(), 1, nullptr, 0, &count), GRADRING_OK);
  EXPECT_EQ(gradring_view_ranks(comm_.get(), 1, nullptr, 1, &count), GRADRING_ERR_INVALID);
  EXPECT_EQ(gradring_view_ranks(comm_.get(), 2, some, 1, &count), GRADRING_ERR_NOT_FOUND);
  EXPECT_THAT(gradring_last_error(), HasSubstr("epoch 2"));
  for (uint64_t epoch = 4; epoch < 20; ++epoch) tell(view_of("job", epoch, {2, 5}));
  barrier(completion(Verdict::kOk, 19, 2, 2));
  EXPECT_EQ(gradring_view_ranks(comm_.get(), 1, some, 1, &count), GRADRING_ERR_NOT_FOUND);
  EXPECT_THAT(ranks(19), ElementsAre(2, 5));
}

TEST_F(Elastic, OlderProgramsGetWhatTheyKnow) {
  struct {
    gradring_result result;
    char behind[64];
  } old{};
  std::fill_n(old.behind, sizeof(old.behind), 'x');
  old.result = empty_result();
  old.result.struct_size = 688;  // of version 0.1
  old.result.size = 4711;
  const gradring_request request = submit(comm_, barrier_op());
  daemon_.complete(operation(1), completion(Verdict::kOk, 1, 4, 4));
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, &old.result), GRADRING_OK);
  EXPECT_EQ(old.result.ranks_min, 4u);
  EXPECT_EQ(old.result.size, 4711u);
  gradring_view small{};
  small.struct_size = 16;
  EXPECT_EQ(gradring_get_view(comm_.get(), &small), GRADRING_OK);
  EXPECT_EQ(small.epoch, 1u);
  EXPECT_EQ(small.size, 0u);
  small.struct_size = 0;
  EXPECT_EQ(gradring_get_view(comm_.get(), &small), GRADRING_ERR_INVALID);
}

TEST_F(Elastic, AnyRankMayBeTheRoot) {
  gradring_op op = barrier_op();
  op.collective = GRADRING_BROADCAST;
  op.dtype = GRADRING_UINT8;
  op.root = 7;  // one that came later, with a number above the size
  submit(comm_, op);
  EXPECT_EQ(operation(1).signature().root(), 7u);
}

TEST_F(Elastic, AViewRightBehindTheJoinCounts) {
  wire::ViewChanged changed;
  changed.set_job(kFakeJob);
  *changed.mutable_view() = view_of("job", 2, {0, 2, 3});
  daemon_.set([&](Script& script) { script.change_after_join = changed; });
  for (int i = 0; i < 5; ++i) {
    comm_ = open_elastic();
    barrier(completion(Verdict::kOk, 2, 3, 3));
    EXPECT_EQ(view().epoch, 2u);
    EXPECT_EQ(view().position, 1u);
  }
}

TEST_F(Elastic, FailuresOfViewsAreToldInWords) {
  const std::tuple<Cause, gradring_cause, const char*> cases[] = {
      {Cause::kExcluded, GRADRING_CAUSE_EXCLUDED, "excluded: node fake: why"},
      {Cause::kNoQuorum, GRADRING_CAUSE_NO_QUORUM, "no quorum: node fake: why"},
      {Cause::kRootLost, GRADRING_CAUSE_ROOT_LOST, "root lost: node fake: why"},
      {Cause::kCorrupted, GRADRING_CAUSE_CORRUPTED, "corrupted: node fake: why"}};
  for (const auto& [cause, number, words] : cases) {
    const gradring_request request = submit(comm_, barrier_op());
    wire::Completion end = completion(Verdict::kFailed, 1, 0, 0);
    to_wire(Failure{cause, Blame{kNoRank, "fake", 0, "", "why"}}, end.mutable_failure());
    daemon_.complete(operation(++submitted_), end);
    gradring_result result = empty_result();
    EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, &result), GRADRING_ERR_FAILED);
    EXPECT_EQ(result.cause, static_cast<uint32_t>(number));
    EXPECT_EQ(result.size, 4u);
    EXPECT_STREQ(gradring_last_error(), words);
  }
}

// What a daemon should not say ends the session, in words.
class HostileView : public Elastic {
 protected:
  std::string refused(const wire::View& view, uint64_t job = kFakeJob) {
    comm_ = open_elastic();
    const gradring_request request = submit(comm_, barrier_op());
    tell(view, "", job);
    gradring_result result = empty_result();
    EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, &result), GRADRING_ERR_FAILED);
    EXPECT_EQ(result.cause, static_cast<uint32_t>(GRADRING_CAUSE_PROTOCOL));
    EXPECT_EQ(result.size, 4u) << "the view before it stays";
    return gradring_last_error();
  }
};

TEST_F(HostileView, EndsTheSession) {
  EXPECT_THAT(refused(view_of("job", 2, {1, 2}), 78), HasSubstr("of job 78, not ours"));
  EXPECT_THAT(refused(view_of("job", 2, {1, 3})), HasSubstr("rank 2, which is told of it"));
  EXPECT_THAT(refused(view_of("job", 2, {1, 2, 1})), HasSubstr("rank 1 is in it twice"));
  EXPECT_THAT(refused(view_of("job", 0, {1, 2})), HasSubstr("no epoch"));
  EXPECT_THAT(refused(wire::View()), HasSubstr("no epoch"));
  wire::View view = view_of("job", 2, {1, 2});
  view.set_size(3);
  EXPECT_THAT(refused(view), HasSubstr("says that it has 3 ranks and lists 2"));
  view = view_of("job", 2, {1, 2});
  view.set_grown(3);
  EXPECT_THAT(refused(view), HasSubstr("of epoch 2 and grew in epoch 3"));
}

TEST_F(HostileView, OfAnEarlierEpochEndsTheSession) {
  tell(view_of("job", 5, {1, 2}));
  tell(view_of("job", 5, {1, 2}));
  barrier(completion(Verdict::kOk, 5, 2, 2));
  const gradring_request request = submit(comm_, barrier_op());
  tell(view_of("job", 4, {1, 2, 3}));
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_ERR_FAILED);
  EXPECT_THAT(gradring_last_error(), HasSubstr("epoch 4 was told after epoch 5"));
}

TEST_F(HostileView, ThatGrowsAtNoJoinPointEndsTheSession) {
  wire::View view = view_of("job", 2, {0, 1, 2, 3, 4});
  came_in(view, 4);
  EXPECT_THAT(refused(view), HasSubstr("rank 2 was at no join point"));
}

TEST_F(HostileView, AsTheAnswerToTheJoinIsRefused) {
  for (const wire::View& view :
       {wire::View(), view_of("job", 1, {0, 1, 3}), view_of("job", 1, {0, 1, 2, 2})}) {
    daemon_.set([&](Script& script) { script.view = view; });
    const Refusal refused = open_refused(options_for(daemon_.runtime_dir(), 2, 4));
    EXPECT_EQ(refused.code, GRADRING_ERR_INTERNAL);
    EXPECT_THAT(refused.message, HasSubstr("a view that makes no sense"));
  }
  daemon_.set([](Script& script) { script.view = view_of("job", 1, {0, 1, 2}); });
  EXPECT_THAT(open_refused(options_for(daemon_.runtime_dir(), 2, 4)).message,
              HasSubstr("it has 3 ranks, for a job of size 4"));
}

TEST_F(HostileView, BehindTheJoinIsRefused) {
  wire::ViewChanged changed;
  changed.set_job(78);
  *changed.mutable_view() = view_of("job", 2, {0, 2, 3});
  daemon_.set([&](Script& script) { script.change_after_join = changed; });
  for (int i = 0; i < 5; ++i) {
    gradring_options options = options_for(daemon_.runtime_dir(), 2, 4);
    gradring_comm* comm = nullptr;
    // The news may arrive together with the answer or after it.
    gradring_code code = gradring_open(&options, &comm);
    if (code == GRADRING_OK) code = gradring_barrier(comm);
    EXPECT_THAT(code, ::testing::AnyOf(GRADRING_ERR_INTERNAL, GRADRING_ERR_FAILED));
    EXPECT_THAT(gradring_last_error(), HasSubstr("of job 78, not ours"));
    gradring_close(comm);
  }
}

}  // namespace
}  // namespace gradring::test
