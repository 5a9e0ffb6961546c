// A job that all have left is forgotten; a daemon that stops says so; a name may live again.

#include <gmock/gmock.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<SessionId> run_job(Town* town, uint32_t ranks) {
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    sessions.push_back(town->join(node_of(rank), trainer(rank, ranks)));
  }
  town->run();
  for (const SessionId session : sessions) EXPECT_TRUE(town->admitted(session));
  return sessions;
}

TEST(MembershipEnd, WhenAllHaveLeftTheJobIsRemovedEverywhere) {
  Town town(3);
  const std::vector<SessionId> sessions = run_job(&town, 3);
  EXPECT_EQ(town.at("a").busy_jobs(), 1u);
  town.leave(sessions[0]);
  EXPECT_THAT(town.under_way("a", "b"), ElementsAre("JobDone"));
  town.run();
  EXPECT_EQ(town.engines("a"), 1u) << "slices of the others may still pass through";
  EXPECT_EQ(town.at("a").busy_jobs(), 0u);
  EXPECT_EQ(town.at("b").busy_jobs(), 1u);
  EXPECT_FALSE(town.at("a").jobs().at(0).over);
  town.leave(sessions[1]);
  town.leave(sessions[2]);
  town.run();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(town.engines(node_of(rank)), 0u);
    const std::vector<JobInfo> jobs = town.at(node_of(rank)).jobs();
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_EQ(jobs[0].state, JobState::kEnded);
    EXPECT_TRUE(jobs[0].over);
    EXPECT_EQ(jobs[0].explanation, "all ranks have left");
    EXPECT_EQ(town.closed(sessions[rank]), std::nullopt);
  }
}

// A daemon that is to end when its jobs have must not take from the others what they wait for.
TEST(MembershipEnd, AJobIsNotOverHereBeforeTheOthersNeedNothingMoreOfIt) {
  Town town(2);
  town.drains_at_once = false;
  const std::vector<SessionId> sessions = run_job(&town, 2);
  town.leave(sessions[0]);
  town.run();
  EXPECT_EQ(town.at("a").live_jobs(), std::vector<std::string>{"train"});
  town.drain("a");
  town.run();
  EXPECT_TRUE(town.at("a").live_jobs().empty());
  town.at("a").shut_down({Cause::kDrained, {}});
  town.run();
  EXPECT_TRUE(town.admitted(sessions[1])) << "no failure for whoever stays";
}

TEST(MembershipEnd, WhoseJobsThereWereIsNotForgotten) {
  Town town(1);
  EXPECT_FALSE(town.at("a").all_jobs_ever_of(1000)) << "there were none";
  town.leave(run_job(&town, 1).front());
  town.run();
  EXPECT_TRUE(town.at("a").all_jobs_ever_of(1000));
  EXPECT_FALSE(town.at("a").all_jobs_ever_of(1001));
  JoinRequest other = trainer(0, 1);
  other.job = "other";
  other.uid = 1001;
  town.join("a", other);
  EXPECT_FALSE(town.at("a").all_jobs_ever_of(1000));
  EXPECT_FALSE(town.at("a").all_jobs_ever_of(1001));
}

// Word that nobody lacks its copies may have been lost with the connection.
TEST(MembershipEnd, WhoIsCutOffFromOthersThatAreDoneIsNotKeptWaiting) {
  Town town(3);
  town.drains_at_once = false;
  const std::vector<SessionId> sessions = run_job(&town, 3);
  for (const SessionId session : sessions) town.leave(session);
  town.drain("a");
  town.drain("b");
  town.run();
  EXPECT_EQ(town.engines("c"), 1u);
  town.cut("b", "c");
  EXPECT_EQ(town.engines("c"), 0u);
  town.settle();
  EXPECT_EQ(town.engines("a") + town.engines("b"), 0u);
}

TEST(MembershipEnd, NotBeforeTheEngineIsDrained) {
  Town town(2);
  town.drains_at_once = false;
  const std::vector<SessionId> sessions = run_job(&town, 2);
  for (const SessionId session : sessions) town.leave(session);
  town.run();
  EXPECT_THAT(town.under_way("a", "b"), IsEmpty());
  town.drain("b");
  town.run();
  EXPECT_EQ(town.engines("a") + town.engines("b"), 2u);
  town.drain("a");
  town.run();
  EXPECT_EQ(town.engines("a") + town.engines("b"), 0u);
}

TEST(MembershipEnd, ANodeThatIsDoneMayStopWithoutHarm) {
  for (const bool crashes : {true, false}) {
    Town town(3);
    const std::vector<SessionId> sessions = run_job(&town, 3);
    town.leave(sessions[1]);
    town.run();
    if (crashes) {
      town.crash("b");
    } else {
      town.at("b").shut_down({Cause::kDrained, {}});
    }
    town.run();
    EXPECT_TRUE(town.admitted(sessions[0])) << "b had nothing to do with it any more";
    EXPECT_TRUE(town.admitted(sessions[2]));
    // The engines decide whether somebody still needs b after all.
    if (crashes) {
      EXPECT_THAT(town.gone_members("a"), ElementsAre(1u));
    }
    town.leave(sessions[0]);
    town.leave(sessions[2]);
    town.run();
    EXPECT_EQ(town.engines("a") + town.engines("c"), 0u);
    EXPECT_EQ(town.at("a").jobs().at(0).state, JobState::kEnded);
  }
}

// c has voted for the view that they enter, but a has no connection to it any more. The engine
// counts on c there unless it is told.
TEST(MembershipEnd, WhoIsDoneAndCutOffIsGoneInTheNextViewAsWell) {
  for (const bool back : {false, true}) {
    Town town(3);
    const std::vector<SessionId> sessions = run_job(&town, 3);
    town.leave(sessions[2]);
    town.run();
    town.hold("b", "a");
    town.at("b").engine_condemned(town.job_of(sessions[1]), 1);
    town.run();
    while (town.at("b").view_of(sessions[1])->epoch == 1) {
      ASSERT_TRUE(town.deliver("b", "a"));
      town.run();
    }
    ASSERT_EQ(town.at("a").view_of(sessions[0])->epoch, 1u);
    ASSERT_TRUE(town.at("b").view_of(sessions[1])->index_of("a"));
    town.cut("a", "c");
    EXPECT_THAT(town.gone_members("a"), ElementsAre(2u));
    if (back) town.connect("a", "c");
    town.release("b", "a");
    town.run();
    ASSERT_EQ(town.at("a").view_of(sessions[0])->epoch, 2u);
    EXPECT_EQ(town.gone_members("a").size(), back ? 1u : 2u);
  }
}

// c's last word is lost with the connection. The view that follows has the same members, and c must
// say again that it is done.
TEST(MembershipEnd, WhoIsDoneSaysSoAgainInTheNextView) {
  Town town(3);
  const std::vector<SessionId> sessions = run_job(&town, 3);
  town.leave(sessions[2]);
  EXPECT_THAT(town.under_way("c", "b"), ElementsAre("JobDone"));
  town.cut("b", "c");
  town.connect("b", "c");
  town.settle();
  EXPECT_TRUE(town.admitted(sessions[0]) && town.admitted(sessions[1])) << "nobody is lost";
  EXPECT_EQ(town.at("a").view_of(sessions[0])->epoch, 2u);
  for (const uint32_t rank : {0u, 1u}) town.leave(sessions[rank]);
  town.run();
  EXPECT_EQ(town.engines("a") + town.engines("b") + town.engines("c"), 0u);
}

TEST(MembershipEnd, ADaemonThatStopsFailsWhatItIsIn) {
  Town town(2);
  const std::vector<SessionId> running = run_job(&town, 2);
  JoinRequest request = trainer(0, 2);
  request.job = "other";
  const SessionId forming = town.join("b", request);
  Failure drained{Cause::kDrained, {}};
  drained.blame.node = "b";
  town.at("b").shut_down(drained);
  EXPECT_EQ(town.closed(running[1]), drained);
  EXPECT_THAT(town.refusal(forming), HasSubstr("node b"));
  town.run();
  EXPECT_EQ(town.closed(running[0]), drained);
  const Status status = town.refused_join("b", trainer(0, 1));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(town.at("b").busy_jobs(), 0u);
  town.leave(running[1]);
  EXPECT_EQ(town.engines("b"), 0u);
}

TEST(MembershipEnd, ADaemonThatStopsWhileAJobIsProposed) {
  Town town(2);
  const SessionId one = town.join("b", trainer(1, 2));
  town.run();
  const SessionId zero = town.join("a", trainer(0, 2));
  town.at("a").shut_down({Cause::kDrained, {}});
  EXPECT_NE(town.refusal(zero), "");
  EXPECT_EQ(town.engines("a"), 0u) << "removed at once, nobody is in it";
  town.run();
  EXPECT_NE(town.refusal(one), "");
  EXPECT_EQ(town.engines("b"), 0u);
}

TEST(MembershipEnd, ADaemonThatStopsRejectsAProposalInWords) {
  Town town(2);
  town.join("b", trainer(1, 2));
  town.run();
  const SessionId zero = town.join("a", trainer(0, 2));
  town.at("b").shut_down({Cause::kDrained, {}});
  town.run();
  EXPECT_THAT(town.refusal(zero), HasSubstr("node b"));
  EXPECT_EQ(town.engines("a"), 0u);
}

TEST(MembershipEnd, TheHistoryIsBounded) {
  MembershipOptions options;
  options.history = 3;
  Town town(1, true, options);
  for (int life = 0; life < 5; ++life) {
    JoinRequest request = trainer(0, 1);
    request.job = "job" + std::to_string(life);
    town.leave(town.join("a", request));
  }
  std::vector<std::string> names;
  for (const JobInfo& info : town.at("a").jobs()) names.push_back(info.name);
  EXPECT_THAT(names, ElementsAre("job2", "job3", "job4"));
}

TEST(MembershipEnd, TheSecondLifeOfAJobDoesNotMeetTheFirst) {
  Town town(2);
  const std::vector<SessionId> first = run_job(&town, 2);
  const JobId first_life = town.job_of(first[0]);
  // Rank 1 dies, and the launcher starts both anew while a's first trainer has not even noticed.
  town.hold("b", "a");
  town.die(first[1]);
  const SessionId new_one = town.join("b", trainer(1, 2));
  const SessionId new_zero = town.join("a", trainer(0, 2));
  EXPECT_TRUE(town.admitted(first[0]));
  town.release("b", "a");
  town.run();
  EXPECT_TRUE(town.closed(first[0]).has_value());
  ASSERT_TRUE(town.admitted(new_zero));
  ASSERT_TRUE(town.admitted(new_one));
  EXPECT_NE(town.job_of(new_zero), first_life);
  EXPECT_EQ(town.job_of(new_zero), town.job_of(new_one));
  EXPECT_EQ(town.engines("a"), 2u) << "the old trainer has not left";

  // Whatever is still said about the first life does not touch the second.
  Failure late{Cause::kPeerLost, {}};
  for (const char* node : {"a", "b"}) {
    const std::string other = node == std::string("a") ? "b" : "a";
    town.at(node).on_message(other, JobFailed{first_life, 1, late}, town.now);
    town.at(node).on_message(other, JobDone{first_life}, town.now);
    town.at(node).on_message(other, Commit{first_life}, town.now);
    town.at(node).on_message(other, Reject{first_life, "late"}, town.now);
  }
  town.at("a").engine_failed(first_life, late);
  town.at("a").engine_drained(first_life);
  town.run();
  EXPECT_TRUE(town.admitted(new_zero));
  EXPECT_TRUE(town.admitted(new_one));
  town.leave(first[0]);
  EXPECT_EQ(town.engines("a"), 1u);
  town.leave(new_zero);
  town.leave(new_one);
  town.run();
  EXPECT_EQ(town.engines("a") + town.engines("b"), 0u);
}

TEST(MembershipEnd, AfterTheJobFailedALateFailureOfItIsNoNews) {
  Town town(2);
  const std::vector<SessionId> sessions = run_job(&town, 2);
  const JobId job = town.job_of(sessions[0]);
  town.die(sessions[0]);
  town.run();
  town.leave(sessions[1]);
  town.at("a").on_message("b", JobFailed{job, 1, {Cause::kPeerLost, {}}}, town.now);
  town.at("a").engine_failed(job, {Cause::kProtocol, {}});
  ASSERT_EQ(town.at("a").jobs().size(), 1u);
  EXPECT_THAT(town.at("a").jobs()[0].explanation, HasSubstr("killed by signal 9"));
}

// Whoever is done is missed by nobody, but a majority without it there is not.
TEST(MembershipEnd, ARankThatDiesWhereAllOtherNodesAreDoneAndGoneEndsTheJob) {
  Town town(2);
  const SessionId zero = town.join("a", trainer(0, 3));
  const SessionId one = town.join("b", trainer(1, 3));
  const SessionId two = town.join("b", trainer(2, 3));
  town.run();
  town.leave(zero);
  town.run();
  town.crash("a");
  town.run();
  EXPECT_FALSE(town.closed(two));
  town.die(one);
  for (int i = 0; i < 20 && !town.closed(two); ++i) {
    town.run();
    town.tick(100 * kMillisecond);
  }
  ASSERT_TRUE(town.closed(two));
  EXPECT_EQ(town.closed(two)->cause, Cause::kTrainerDied);
  EXPECT_EQ(town.closed(two)->blame.rank, 1u);
}

}  // namespace
}  // namespace gradring::core
