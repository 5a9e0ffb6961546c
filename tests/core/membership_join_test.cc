// What a trainer is told at once when it cannot join.

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <vector>

#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(MembershipJoin, NonsenseIsRefusedInWords) {
  MembershipOptions options;
  options.job_size_max = 8;
  Town town(1, true, options);
  JoinRequest request = trainer(0, 1);
  request.job = "";
  EXPECT_THAT(town.refused_join("a", request).message(), HasSubstr("no name"));
  EXPECT_THAT(town.refused_join("a", trainer(0, 0)).message(), HasSubstr("size 0"));
  EXPECT_THAT(town.refused_join("a", trainer(0, 9)).message(), HasSubstr("between 1 and 8"));
  EXPECT_THAT(town.refused_join("a", trainer(2, 2)).message(),
              HasSubstr("rank 2 is outside the size 2"));
  request = trainer(0, 1);
  request.policy = "rubber";
  const Status status = town.refused_join("a", request);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("policy 'rubber'"), HasSubstr("use 'fail'")));
  request.policy = "elastic min=2";
  EXPECT_THAT(town.refused_join("a", request).message(),
              AllOf(HasSubstr("size 1"), HasSubstr("elastic min=2")));
  EXPECT_TRUE(town.at("a").jobs().empty()) << "nothing is kept of a refusal";
}

TEST(MembershipJoin, OneSessionIsInOneJob) {
  Town town(1);
  JoinRequest again = trainer(1, 2);
  again.session = town.join("a", trainer(0, 2));
  again.job = "other";
  EXPECT_THAT(town.refused_join("a", again).message(), HasSubstr("already waits for job train"));
  town.join("a", trainer(1, 2));
  EXPECT_THAT(town.refused_join("a", again).message(), HasSubstr("already in job train"));
}

TEST(MembershipJoin, ARankThatIsTakenOnThisNodeConcernsOnlyTheNewcomer) {
  Town town(1);
  const SessionId zero = town.join("a", trainer(0, 2));
  const Status status = town.refused_join("a", trainer(0, 2));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("rank 0"), HasSubstr("pid " + std::to_string(town.pid_of(zero)))));
  EXPECT_THAT(town.refused_join("a", trainer(1, 3)).message(),
              AllOf(HasSubstr("size 3"), HasSubstr("size 2")));
  JoinRequest elastic = trainer(1, 2);
  elastic.policy = "elastic min=1";
  EXPECT_THAT(town.refused_join("a", elastic).message(),
              AllOf(HasSubstr("says policy elastic min=1"), HasSubstr("said policy fail"),
                    HasSubstr("pid " + std::to_string(town.pid_of(zero)))));
  EXPECT_TRUE(town.waits(zero));
  const SessionId one = town.join("a", trainer(1, 2));
  EXPECT_TRUE(town.admitted(zero));
  EXPECT_TRUE(town.admitted(one));
}

TEST(MembershipJoin, APolicyMayBeSaidInOtherWordsOnOneNode) {
  Town town(1);
  JoinRequest request = trainer(0, 2);
  request.policy = "elastic";
  const SessionId zero = town.join("a", request);
  request = trainer(1, 2);
  request.policy = "elastic min=1";
  EXPECT_TRUE(town.admitted(town.join("a", request)));
  EXPECT_TRUE(town.admitted(zero));
}

TEST(MembershipJoin, ANameBelongsToTheUidThatUsesItAsLongAsItDoes) {
  Town town(1);
  const SessionId owner = town.join("a", trainer(0, 2));
  JoinRequest stranger = trainer(0, 1);
  stranger.uid = 2000;
  stranger.token = "mine";
  for (int times = 0; times < 2; ++times) {  // while it forms, and while it runs
    const Status status = town.refused_join("a", stranger);
    EXPECT_EQ(status.code(), Code::kPermissionDenied);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("job train belongs to uid 1000"),
                                        HasSubstr("uid 2000 must choose another name")));
    if (times == 0) town.join("a", trainer(1, 2));
  }
  ASSERT_TRUE(town.admitted(owner));
  town.leave(owner);
  EXPECT_EQ(town.refused_join("a", stranger).code(), Code::kPermissionDenied) << "rank 1 is in it";
  town.leave(owner + 2);  // the session of rank 1
  EXPECT_TRUE(town.admitted(town.join("a", stranger)));
}

TEST(MembershipJoin, TooManyJobsAreRefusedInWords) {
  MembershipOptions options;
  options.jobs_max = 2;
  Town town(2, true, options);
  JoinRequest request = trainer(0, 1);
  request.job = "one";
  const SessionId one = town.join("a", request);  // runs
  request = trainer(0, 2);
  request.job = "two";
  request.uid = 2000;
  town.join("a", request);  // forms
  request.job = "three";
  const Status status = town.refused_join("a", request);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("node a already has 2 jobs"), HasSubstr("max-jobs")));
  request = trainer(1, 2);
  request.job = "two";
  request.uid = 2000;
  town.join("a", request);  // more ranks of a job that is here are welcome
  town.leave(one);
  request = trainer(0, 1);
  request.job = "three";
  EXPECT_TRUE(town.admitted(town.join("a", request)));
}

TEST(MembershipJoin, OneUidCannotTakeThePlacesOfAllJobs) {
  MembershipOptions options;
  options.jobs_max = 4;
  Town town(2, true, options);
  const auto job = [](const std::string& name, uint32_t uid) {
    JoinRequest request = trainer(0, 2);  // never fills
    request.job = name;
    request.uid = uid;
    return request;
  };
  const SessionId one = town.join("a", job("one", 1000));
  town.join("a", job("two", 1000));
  const Status status = town.refused_join("a", job("three", 1000));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("2 jobs of uid 1000"), HasSubstr("half of max-jobs")));
  town.join("a", job("four", 2000));
  town.leave(one);
  town.join("a", job("three", 1000));
  town.join("a", job("five", 0));
  EXPECT_THAT(town.refused_join("a", job("six", 0)).message(), HasSubstr("already has 4 jobs"));
  town.leave(town.join("b", job("seven", 0)));
  town.join("b", job("eight", 0));
  town.join("b", job("nine", 0));
  town.join("b", job("ten", 0));  // root has no share
}

}  // namespace
}  // namespace gradring::core
