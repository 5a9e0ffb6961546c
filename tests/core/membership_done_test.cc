// Word that a node is done with a job, which comes before it is known that the node came in, or
// when it has come in anew since.

#include <gmock/gmock.h>

#include <vector>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

class MembershipDone : public ::testing::Test {
 protected:
  // So many nodes, of one rank each, are in the job.
  void begin(uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      sessions_.push_back(town_.join(node_of(rank), elastic(rank, ranks)));
    }
    town_.run();
    job_ = town_.job_of(sessions_[0]);
    town_.at_join_points = true;
  }

  // All agree on the next view; what `from` tells `to` comes only as far as they need it.
  void grow_unheard(const std::string& from, const std::string& to) {
    town_.hold(from, to);
    for (const std::string& node : town_.nodes()) town_.at(node).engine_at_join_point(job_);
    for (;;) {
      town_.run();
      const auto waiting = town_.under_way(from, to);
      if (waiting.empty() || waiting.front() == "change::Commit") return;
      town_.deliver(from, to);
    }
  }

  Town town_{3};
  std::vector<SessionId> sessions_;
  JobId job_{};
};

TEST_F(MembershipDone, ByAGuestThatLeavesBeforeAllKnowThatItCame) {
  begin(2);
  const SessionId guest = town_.join("c", elastic(2, 3));
  town_.run();
  grow_unheard("a", "b");
  ASSERT_TRUE(town_.admitted(guest));
  town_.leave(guest);
  town_.run();
  ASSERT_EQ(town_.at("b").view_of(job_)->epoch, 1u);
  town_.release("a", "b");
  town_.settle();
  ASSERT_EQ(town_.at("b").view_of(job_)->epoch, 2u);
  for (const SessionId session : sessions_) town_.leave(session);
  town_.settle();
  for (const std::string& node : town_.nodes()) {
    EXPECT_EQ(town_.engines(node), 0u) << node << " waits for word that it has had";
  }
  // Else the next job of that name never forms.
  const SessionId next = town_.join("b", elastic(0, 1));
  town_.settle();
  EXPECT_TRUE(town_.admitted(next));
}

TEST_F(MembershipDone, ByOneThatHasComeInAnewSince) {
  begin(3);
  town_.hold("b", "c");
  town_.leave(sessions_[1]);
  town_.run();
  const size_t before = town_.under_way("b", "c").size();
  ASSERT_THAT(town_.under_way("b", "c"), testing::Contains("JobDone"));
  const SessionId anew = town_.join("b", elastic(3, 4));
  town_.run();
  for (const std::string& node : town_.nodes()) town_.at(node).engine_at_join_point(job_);
  town_.run();
  ASSERT_TRUE(town_.admitted(anew));
  ASSERT_EQ(town_.at("c").view_of(job_)->epoch, 2u);
  for (size_t i = 0; i < before; ++i) town_.deliver("b", "c");

  JoinRequest group = elastic(0, 2);
  group.job = "group";
  group.within = Within{job_, 2, {2, 3}};
  EXPECT_TRUE(town_.try_join("c", group)) << "rank 3 has come, and not left";
  town_.release("b", "c");
  town_.leave(sessions_[0]);
  town_.leave(sessions_[2]);
  town_.settle();
  EXPECT_EQ(town_.engines("c"), 1u) << "b is not done";
  town_.leave(anew);
  town_.settle();
  for (const std::string& node : town_.nodes()) EXPECT_EQ(town_.engines(node), 0u) << node;
}

// As a guest does that declines, before it is taken in after all.
TEST_F(MembershipDone, OneThatHasLeftIsNotTheOneThatCameInSince) {
  begin(3);
  town_.die(sessions_[1]);
  town_.settle();
  const SessionId anew = town_.join("b", elastic(1, 3));
  town_.run();
  for (const std::string& node : town_.nodes()) town_.at(node).engine_at_join_point(job_);
  town_.settle();
  ASSERT_TRUE(town_.admitted(anew));
  ASSERT_EQ(town_.at("c").view_of(job_)->epoch, 3u);
  Failure failure{Cause::kTrainerLeft, {}};
  failure.blame.node = "b";
  town_.at("c").on_message("b", Left{job_, failure, 2}, town_.now);
  town_.settle();
  EXPECT_TRUE(town_.admitted(anew));
  EXPECT_EQ(town_.at("c").view_of(job_)->epoch, 3u);
  town_.at("c").on_message("b", Left{job_, failure, 3}, town_.now);
  town_.settle();
  EXPECT_EQ(town_.at("c").view_of(job_)->epoch, 4u);
}

}  // namespace
}  // namespace gradring::core
