// A daemon stood still, as a host that is paused does. Meanwhile the others gave it up, and by the
// time it moves again they have forgotten the job.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::HasSubstr;

class MembershipStoodStill : public testing::TestWithParam<const char*> {
 protected:
  void join_all() {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      JoinRequest request = trainer(rank, 3);
      request.policy = GetParam();
      sessions.push_back(town.join(node_of(rank), request));
    }
    town.run();
  }
  void others_leave() {
    for (const uint32_t rank : {0u, 1u}) town.leave(sessions[rank]);
    town.settle();
    ASSERT_EQ(town.engines("a") + town.engines("b"), 0u);
  }
  // What was on the way to it is lost with its connections.
  Failure what_c_hears() {
    for (const char* other : {"a", "b"}) town.cut(other, "c");
    for (const char* other : {"a", "b"}) town.connect(other, "c");
    const Time before = town.now;
    town.settle();
    EXPECT_LT(town.now - before, 10 * kSecond) << "nobody is left that it could wait for";
    return town.closed(sessions[2]).value_or(Failure{});
  }

  Town town{3};
  std::vector<SessionId> sessions;
};

TEST_P(MembershipStoodStill, AndHearsThatTheOthersWentOnWithoutIt) {
  join_all();
  for (const char* other : {"a", "b"}) {
    town.hold(other, "c");
    town.notice_loss(other, "c");
  }
  town.settle();
  others_leave();
  for (const char* other : {"a", "b"}) town.release(other, "c");
  const Failure failure = what_c_hears();
  EXPECT_EQ(failure.cause, Cause::kExcluded);
  EXPECT_EQ(failure.blame.node, "c");
}

TEST_P(MembershipStoodStill, AndHearsWhyTheJobHasEnded) {
  join_all();
  for (const char* other : {"a", "b"}) town.hold(other, "c");
  Failure late{Cause::kDeadline, {}};
  late.blame.node = "b";
  town.at("b").engine_failed(town.job_of(sessions[1]), late);
  town.run();
  others_leave();
  for (const char* other : {"a", "b"}) town.release(other, "c");
  EXPECT_EQ(what_c_hears(), late);
}

INSTANTIATE_TEST_SUITE_P(Policies, MembershipStoodStill, testing::Values("fail", "elastic"));

}  // namespace
}  // namespace gradring::core
