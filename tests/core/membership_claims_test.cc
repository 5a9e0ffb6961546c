// Gathering: who may claim what, and what happens when claims contradict one another.

#include <gmock/gmock.h>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

// Joins one trainer on a and one on b that do not agree; both must be told about both.
void expect_contradiction(Town* town, SessionId at_a, SessionId at_b,
                          const std::vector<std::string>& words) {
  for (const SessionId session : {at_a, at_b}) {
    const std::string text = town->refusal(session);
    EXPECT_THAT(text, AllOf(HasSubstr("job train"), HasSubstr("node a"), HasSubstr("node b")));
    EXPECT_THAT(text, HasSubstr("pid " + std::to_string(town->pid_of(at_a))));
    EXPECT_THAT(text, HasSubstr("pid " + std::to_string(town->pid_of(at_b))));
    for (const std::string& word : words) EXPECT_THAT(text, HasSubstr(word));
  }
  EXPECT_THAT(town->at("a").jobs(), IsEmpty());
  EXPECT_THAT(town->at("b").jobs(), IsEmpty());
}

TEST(MembershipClaims, AnotherSize) {
  for (const bool first_heard : {true, false}) {
    Town town(2);
    const SessionId at_a = town.join("a", trainer(0, 2));
    if (first_heard) town.run();
    const SessionId at_b = town.join("b", trainer(1, 3));
    town.run();
    expect_contradiction(&town, at_a, at_b, {"size 2", "size 3"});
  }
}

TEST(MembershipClaims, TheSameRank) {
  for (const bool first_heard : {true, false}) {
    Town town(2);
    const SessionId at_a = town.join("a", trainer(1, 2));
    if (first_heard) town.run();
    const SessionId at_b = town.join("b", trainer(1, 2));
    town.run();
    expect_contradiction(&town, at_a, at_b,
                         {"rank 1 (node a", "rank 1 (node b", "claim the same rank"});
  }
}

TEST(MembershipClaims, AnotherOwner) {
  Town town(2);
  const SessionId at_a = town.join("a", trainer(0, 2));
  JoinRequest other = trainer(1, 2);
  other.uid = 2000;
  const SessionId at_b = town.join("b", other);
  town.run();
  expect_contradiction(&town, at_a, at_b, {"owner uid 1000", "owner uid 2000"});
}

TEST(MembershipClaims, AnotherPolicy) {
  // This version knows one policy; a peer of another version may claim another.
  Town town(2);
  const SessionId at_a = town.join("a", trainer(0, 2));
  Claims claims;
  claims.job = "train";
  claims.token = "t";
  claims.revision = 1;
  claims.uid = 1000;
  claims.size = 2;
  claims.policy = "elastic";
  claims.ranks = {{1, 0, 4711, 1}};
  town.at("a").on_message("b", claims, town.now);
  EXPECT_THAT(town.refusal(at_a), AllOf(HasSubstr("policy fail"), HasSubstr("policy elastic"),
                                        HasSubstr("node b, pid 4711")));
}

TEST(MembershipClaims, OnePolicyInOtherWordsIsTheSame) {
  for (const char* words : {"elastic max=4 min=2", "elastic  min=2 max=4", "elastic min=2 max=4"}) {
    Town town(2);
    JoinRequest zero = trainer(0, 2), one = trainer(1, 2);
    zero.policy = "elastic min=2 max=4";
    one.policy = words;
    const SessionId at_a = town.join("a", zero), at_b = town.join("b", one);
    town.run();
    EXPECT_TRUE(town.admitted(at_a)) << town.refusal(at_a);
    EXPECT_TRUE(town.admitted(at_b)) << town.refusal(at_b);
  }
}

TEST(MembershipClaims, AContradictionBetweenTwoOthersEndsTheGatheringToo) {
  Town town(3);
  const SessionId at_c = town.join("c", trainer(0, 3));
  town.hold("a", "b");
  town.hold("b", "a");
  const SessionId at_a = town.join("a", trainer(1, 3));
  const SessionId at_b = town.join("b", trainer(1, 3));
  town.run();
  EXPECT_THAT(town.refusal(at_c), AllOf(HasSubstr("rank 1 (node a"), HasSubstr("rank 1 (node b")));
  town.release("a", "b");
  town.release("b", "a");
  town.run();
  expect_contradiction(&town, at_a, at_b, {"claim the same rank"});
}

TEST(MembershipClaims, AfterAContradictionTheLaunchMayBeMended) {
  Town town(2);
  const SessionId wrong = town.join("a", trainer(0, 3));
  const SessionId right = town.join("b", trainer(1, 2));
  town.run();
  EXPECT_NE(town.refusal(wrong), "");
  EXPECT_NE(town.refusal(right), "");
  const SessionId zero = town.join("a", trainer(0, 2));
  const SessionId one = town.join("b", trainer(1, 2));
  town.run();
  EXPECT_TRUE(town.admitted(zero));
  EXPECT_TRUE(town.admitted(one));
}

// Everybody hears all claims. When the job has formed they are history, wherever it was formed.
TEST(MembershipClaims, OfAJobThatHasFormedAreForgotten) {
  Town town(3);
  const SessionId first = town.join("a", trainer(0, 1));
  town.run();
  ASSERT_TRUE(town.admitted(first));
  town.leave(first);
  town.run();
  const SessionId second = town.join("b", trainer(0, 1));
  town.run();
  EXPECT_TRUE(town.admitted(second)) << town.refusal(second);

  // While it runs another launch of the same name on c has its own life.
  const SessionId third = town.join("c", trainer(0, 1));
  town.run();
  EXPECT_TRUE(town.admitted(third)) << town.refusal(third);
}

TEST(MembershipClaims, OfAJobOfSeveralNodesAreForgottenByMembersAndStrangers) {
  Town town(4);
  // The claim of b reaches c only after the job has formed.
  town.hold("b", "c");
  std::vector<SessionId> sessions;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    sessions.push_back(town.join(std::string(1, static_cast<char>('a' + rank)), trainer(rank, 3)));
  }
  town.run();
  for (const SessionId session : sessions) ASSERT_TRUE(town.admitted(session));
  town.release("b", "c");
  town.run();
  for (const SessionId session : sessions) town.leave(session);
  town.run();
  // The next launch is smaller and elsewhere.
  const SessionId zero = town.join("c", trainer(0, 2));
  const SessionId one = town.join("d", trainer(1, 2));
  town.run();
  EXPECT_TRUE(town.admitted(zero)) << town.refusal(zero);
  EXPECT_TRUE(town.admitted(one)) << town.refusal(one);
}

TEST(MembershipClaims, OfAFormationThatFailedAreForgotten) {
  Town town(3);
  const SessionId zero = town.join("a", trainer(0, 2));
  town.hold("a", "b");  // b does not hear of the proposal
  const SessionId one = town.join("b", trainer(1, 2));
  town.run();
  ASSERT_EQ(town.engines("a"), 1u);
  town.die(zero);
  town.release("a", "b");
  town.run();
  EXPECT_NE(town.refusal(one), "");
  // Another launch, with the ranks the other way round, and c in it.
  const SessionId new_zero = town.join("c", trainer(0, 2));
  const SessionId new_one = town.join("a", trainer(1, 2));
  town.run();
  EXPECT_TRUE(town.admitted(new_zero)) << town.refusal(new_zero);
  EXPECT_TRUE(town.admitted(new_one)) << town.refusal(new_one);
}

TEST(MembershipClaims, AnotherTokenIsAnotherJobAtTheSameTime) {
  Town town(2);
  std::vector<SessionId> first, second;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    first.push_back(town.join(rank == 0 ? "a" : "b", trainer(rank, 2)));
    JoinRequest request = trainer(rank, 2);
    request.token = "u";
    second.push_back(town.join(rank == 0 ? "b" : "a", request));
  }
  town.run();
  for (const SessionId session : first) {
    ASSERT_TRUE(town.admitted(session));
    EXPECT_EQ(town.job_of(session), town.job_of(first[0]));
  }
  for (const SessionId session : second) {
    ASSERT_TRUE(town.admitted(session));
    EXPECT_EQ(town.job_of(session), town.job_of(second[0]));
  }
  EXPECT_NE(town.job_of(first[0]), town.job_of(second[0]));
  // What happens to one does not happen to the other.
  town.die(first[0]);
  town.run();
  EXPECT_TRUE(town.closed(first[1]).has_value());
  for (const SessionId session : second) EXPECT_TRUE(town.admitted(session));
}

TEST(MembershipClaims, TheExplanationCountsWhoIsMissingNow) {
  Town town(3);
  town.join("a", trainer(0, 3));
  const auto explanation = [&] { return town.at("a").jobs().at(0).explanation; };
  EXPECT_EQ(explanation(), "waits for 2 of 3 ranks: 1 2");
  const SessionId at_b = town.join("b", trainer(1, 3));
  town.run();
  EXPECT_EQ(explanation(), "waits for 1 of 3 ranks: 2");
  EXPECT_EQ(town.at("a").jobs().at(0).missing.first, std::vector<uint32_t>{2});
  town.leave(at_b);
  town.run();
  EXPECT_EQ(explanation(), "waits for 2 of 3 ranks: 1 2");
  town.join("b", trainer(2, 3));
  town.run();
  EXPECT_EQ(explanation(), "waits for 1 of 3 ranks: 1");
  town.cut("a", "b");
  EXPECT_EQ(explanation(), "waits for 2 of 3 ranks: 1 2");
  EXPECT_EQ(town.at("a").jobs().at(0).missing.first, (std::vector<uint32_t>{1, 2}));
}

// Anybody can claim a rank of such a job, and of many.
TEST(MembershipClaims, OfAMillionMissingRanksTheFirstAreNamedAndAllAreCounted) {
  constexpr uint32_t kSize = 1 << 20;
  Town town(1);
  town.join("a", trainer(kSize - 1, kSize));
  town.join("a", trainer(1, kSize));
  const MissingRanks missing = town.at("a").jobs().at(0).missing;
  EXPECT_EQ(missing.count, kSize - 2);
  ASSERT_EQ(missing.first.size(), kMissingNamed);
  EXPECT_EQ(missing.first[0], 0u);
  EXPECT_EQ(missing.first[1], 2u);
  EXPECT_EQ(missing.first.back(), kMissingNamed);
}

MembershipOptions with_a_pause() {
  MembershipOptions options;
  options.claims_pause = 20 * kMillisecond;
  return options;
}

// Peers do nothing else soon, if each is told each time.
TEST(MembershipClaims, OfTrainersThatComeAndGoFastAreToldTogether) {
  Town town(2, true, with_a_pause());
  for (int i = 0; i < 1000; ++i) {
    JoinRequest request = trainer(1, 3);
    request.job += std::to_string(i);  // for each a claim and a withdrawal, if they were told
    town.leave(town.join("a", request));
    town.leave(town.join("a", trainer(1, 3)));
  }
  EXPECT_LT(town.under_way("a", "b").size(), 10u);
  town.run();
  const SessionId last = town.join("a", trainer(2, 3));
  town.settle();
  town.join("b", trainer(0, 3));
  EXPECT_EQ(town.at("b").jobs().at(0).missing.first, std::vector<uint32_t>{1});
  EXPECT_EQ(town.at("b").jobs().size(), 1u);
  town.leave(last);
  town.settle();
  EXPECT_EQ(town.at("b").jobs().at(0).missing.first, (std::vector<uint32_t>{1, 2}));
}

TEST(MembershipClaims, ThatWaitAreToldBeforeAnythingElse) {
  Town town(2, true, with_a_pause());
  town.join("a", trainer(0, 3));
  town.run();
  const SessionId one = town.join("a", trainer(1, 3));
  EXPECT_EQ(town.under_way("a", "b").size(), 0u);
  town.at("a").tick(town.now);
  EXPECT_EQ(town.under_way("a", "b").size(), 0u);
  const SessionId two = town.join("b", trainer(2, 3));
  ASSERT_TRUE(town.deliver("b", "a"));
  EXPECT_EQ(town.under_way("a", "b"), (std::vector<std::string>{"Claims(0 1)", "Propose"}));
  town.settle();
  EXPECT_TRUE(town.admitted(one));
  EXPECT_TRUE(town.admitted(two));
}

}  // namespace
}  // namespace gradring::core
