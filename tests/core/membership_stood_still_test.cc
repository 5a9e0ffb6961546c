// A daemon stood still, as a host that is paused does. Meanwhile the others gave it up, and by the
// time it moves again they have forgotten the job.

#include <gtest/gtest.h>

#include <vector>

#include "daemon/core/departed.h"
#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

class MembershipStoodStill : public testing::TestWithParam<const char*> {
 protected:
  void join_all() {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      JoinRequest request = trainer(rank, 3);
      request.policy = GetParam();
      sessions_.push_back(town_.join(node_of(rank), request));
    }
    town_.run();
  }
  void others_leave() {
    for (const uint32_t rank : {0u, 1u}) town_.leave(sessions_[rank]);
    town_.settle();
    ASSERT_EQ(town_.engines("a") + town_.engines("b"), 0u);
  }
  // What was on the way to it is lost with its connections.
  Failure what_c_hears() {
    for (const char* other : {"a", "b"}) town_.cut(other, "c");
    for (const char* other : {"a", "b"}) town_.connect(other, "c");
    const Time before = town_.now;
    town_.settle();
    EXPECT_LT(town_.now - before, 10 * kSecond) << "nobody is left that it could wait for";
    return town_.closed(sessions_[2]).value_or(Failure{});
  }

  Town town_{3};
  std::vector<SessionId> sessions_;
};

TEST_P(MembershipStoodStill, AndHearsThatTheOthersWentOnWithoutIt) {
  join_all();
  for (const char* other : {"a", "b"}) {
    town_.hold(other, "c");
    town_.notice_loss(other, "c");
  }
  town_.settle();
  others_leave();
  for (const char* other : {"a", "b"}) town_.release(other, "c");
  const Failure failure = what_c_hears();
  EXPECT_EQ(failure.cause, Cause::kExcluded);
  EXPECT_EQ(failure.blame.node, "c");
}

TEST_P(MembershipStoodStill, AndHearsWhyTheJobHasEnded) {
  join_all();
  for (const char* other : {"a", "b"}) town_.hold(other, "c");
  Failure late{Cause::kDeadline, {}};
  late.blame.node = "b";
  town_.at("b").engine_failed(town_.job_of(sessions_[1]), late);
  town_.run();
  others_leave();
  for (const char* other : {"a", "b"}) town_.release(other, "c");
  EXPECT_EQ(what_c_hears(), late);
}

TEST(MembershipLeftOut, EndsTheJobForNobodyElse) {
  Town town(3);
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 3; ++rank)
    sessions.push_back(town.join(node_of(rank), elastic(rank, 3)));
  town.run();
  for (const char* other : {"a", "b"}) {
    town.hold(other, "c");
    town.notice_loss(other, "c");
  }
  town.settle();
  for (const char* other : {"a", "b"}) town.cut(other, "c");
  for (const char* other : {"a", "b"}) town.connect(other, "c");
  // It does not know yet that it is no member.
  town.at("c").engine_failed(town.job_of(sessions[2]), {Cause::kDeadline, {}});
  for (const char* other : {"a", "b"}) town.release(other, "c");
  town.run();
  EXPECT_TRUE(town.admitted(sessions[0]) && town.admitted(sessions[1]));
  EXPECT_TRUE(town.closed(sessions[2]).has_value());
}

TEST(Departed, ForgetsTheOldestOfManyJobs) {
  Departed departed;
  const JobId oldest{255, 255}, second{255, 254}, newest{0, 1};
  const Failure failure{Cause::kDeadline, {}};
  departed.remember(oldest, failure);
  departed.remember(second, failure);
  for (uint8_t i = 1; i < 255; ++i) departed.remember(JobId{i}, failure);
  ASSERT_NE(departed.failure(oldest), nullptr) << "256 are not too many";
  departed.remember(change::Commit{oldest, 2, {}, {}});  // no other job
  departed.remember(newest, failure);
  EXPECT_EQ(departed.failure(oldest), nullptr);
  EXPECT_EQ(departed.commit(oldest), nullptr);
  EXPECT_NE(departed.failure(second), nullptr);
  EXPECT_NE(departed.failure(newest), nullptr) << "though its number is the least";
}

INSTANTIATE_TEST_SUITE_P(Policies, MembershipStoodStill, testing::Values("fail", "elastic"));

}  // namespace
}  // namespace gradring::core
