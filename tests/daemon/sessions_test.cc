#include "daemon/control/sessions/sessions.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "daemon/control/door/client_router.h"
#include "daemon/control/sessions/segment_name.h"
#include "daemon/fd_name.h"
#include "tests/sanitized.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

constexpr uint64_t kPage = 4096;
const SessionLimits kLimits{4, 2, 3, 8 * kPage};

TEST(Sessions, IdsAndSecretsAreNotRepeated) {
  Sessions sessions({1000, 1000, 1, kPage});
  std::set<std::string> secrets;
  for (uint32_t i = 0; i < 500; ++i) secrets.insert((*sessions.open({i, 1}, 0))->secret);
  EXPECT_EQ(secrets.size(), 500u);
  EXPECT_EQ(secrets.begin()->size(), 32u);
  EXPECT_EQ(sessions.count(), 500u);
}

TEST(Sessions, OneUidCannotTakeThePlacesOfAll) {
  Sessions sessions(kLimits);
  Session* first = *sessions.open({7, 1}, 0);
  ASSERT_TRUE(sessions.open({7, 2}, 0));
  const auto third = sessions.open({7, 3}, 0);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(third.error().message(), HasSubstr("sessions-per-uid"));
  ASSERT_TRUE(sessions.open({8, 4}, 0));
  ASSERT_TRUE(sessions.open({9, 5}, 0));
  const auto fifth = sessions.open({10, 6}, 0);
  ASSERT_FALSE(fifth);
  EXPECT_THAT(fifth.error().message(), HasSubstr("max-sessions"));

  sessions.erase(first->id);
  EXPECT_TRUE(sessions.open({7, 7}, 0));
}

TEST(Sessions, WhoComesBackAfterARestartHasAPlaceAndKeepsIt) {
  Sessions sessions(kLimits);
  for (const SessionId id : {1, 2}) {
    Session& awaited = sessions.restore(id, {7, 1}, 0);
    awaited.welcomed = true;
    awaited.away_until = 1;
  }
  Session* back = *sessions.open({7, 1}, 0);  // it has not said yet that it comes back
  Session* newcomer = *sessions.open({7, 2}, 0);
  EXPECT_FALSE(sessions.open({7, 3}, 0)) << "so many may say it at the same time, and no more";
  const Status refused = sessions.room_for_a_newcomer(*newcomer);
  EXPECT_THAT(refused.message(), HasSubstr("sessions-per-uid"));
  sessions.erase(newcomer->id);

  sessions.find(1)->away_until = 0;  // resumed
  sessions.erase(back->id);
  EXPECT_TRUE(sessions.open({7, 1}, 0)) << "the other one is awaited still";
}

TEST(Sessions, SegmentsLeaveTheLastDescriptorsToTheDaemon) {
  if (kSanitized) GTEST_SKIP() << "UBSan needs descriptors to look at an object's type";
  Sessions sessions(kLimits);
  Session* session = *sessions.open({7, 1}, 0);
  const auto first = sessions.allocate(*session, 1);
  ASSERT_TRUE(first);
  std::array<Fd, 16> others;  // of a daemon with so few that two of them are an eighth
  for (Fd& other : others) other.reset(dup(0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{static_cast<rlim_t>(others.back().get()) + 3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto another = sessions.allocate(*session, 1);
  wire::BorrowSegment of_other;
  of_other.set_session(session->id);
  of_other.set_secret(session->secret);
  of_other.set_segment(first->first);
  session->welcomed = true;
  Session* twin = *sessions.open({7, 1}, 0);
  const auto borrowed = sessions.borrow(*twin, of_other);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(another);
  EXPECT_EQ(another.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(another.error().message(), HasSubstr("left for another segment"));
  EXPECT_TRUE(borrowed) << "which takes none";
  EXPECT_EQ(sessions.most_segment_bytes_of_a_uid(), kPage);
  EXPECT_TRUE(sessions.allocate(*session, 1));
}

TEST(Sessions, SegmentsAreChargedToTheUidInWholePagesAndGivenBack) {
  Sessions sessions(kLimits);
  Session* a = *sessions.open({7, 1}, 0);
  Session* b = *sessions.open({7, 2}, 0);
  Session* other = *sessions.open({8, 3}, 0);
  const auto one = sessions.allocate(*a, 1);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->second->bytes(), kPage);
  ASSERT_TRUE(sessions.allocate(*b, 6 * kPage));
  EXPECT_EQ(sessions.most_segment_bytes_of_a_uid(), 7 * kPage);

  const auto much = sessions.allocate(*a, 2 * kPage);
  ASSERT_FALSE(much);
  EXPECT_THAT(much.error().message(), HasSubstr("segment-limit"));
  EXPECT_TRUE(sessions.allocate(*other, 8 * kPage)) << "another uid has its own limit";

  EXPECT_TRUE(sessions.free(*a, one->first).ok());
  EXPECT_TRUE(sessions.allocate(*a, 2 * kPage));
  sessions.erase(b->id);
  EXPECT_TRUE(sessions.allocate(*a, 6 * kPage));
}

TEST(Sessions, ASegmentFromBeforeARestartHasItsOldNumberAndIsCharged) {
  Sessions sessions(kLimits);
  Session* session = *sessions.open({7, 1}, 0);
  auto memory = transport::Segment::create(9 * kPage);
  ASSERT_TRUE(memory);
  sessions.adopt(*session, 41, std::move(*memory));
  EXPECT_EQ(session->segments.at(41).bytes(), 9 * kPage);
  EXPECT_EQ(sessions.most_segment_bytes_of_a_uid(), 9 * kPage);
  EXPECT_FALSE(sessions.allocate(*session, 1)) << "the limit holds for what is new";
  EXPECT_TRUE(sessions.free(*session, 41).ok());
  const auto next = sessions.allocate(*session, 1);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->first, 42u);
}

wire::BorrowSegment borrow_of(const Session& owner, uint64_t segment) {
  wire::BorrowSegment request;
  request.set_session(owner.id);
  request.set_secret(owner.secret);
  request.set_segment(segment);
  return request;
}

TEST(Sessions, AProcessBorrowsFromItselfAndIsChargedOnce) {
  Sessions sessions(kLimits);
  Session* a = *sessions.open({7, 1}, 0);
  Session* b = *sessions.open({7, 1}, 0);
  a->welcomed = b->welcomed = true;
  const uint64_t segment = sessions.allocate(*a, 4 * kPage)->first;
  const auto borrowed = sessions.borrow(*b, borrow_of(*a, segment));
  ASSERT_TRUE(borrowed) << borrowed.error().message();
  EXPECT_NE(borrowed->first, segment);
  EXPECT_EQ(borrowed->second->memory().data(), a->segments.at(segment).memory().data());
  EXPECT_EQ(sessions.most_segment_bytes_of_a_uid(), 4 * kPage);

  // It is charged as long as one of them has it: nobody gets more memory by lending it.
  EXPECT_TRUE(sessions.free(*a, segment).ok());
  EXPECT_EQ(sessions.most_segment_bytes_of_a_uid(), 4 * kPage);
  std::memset(borrowed->second->memory().data(), 1, 4 * kPage);
  EXPECT_FALSE(sessions.allocate(*a, 5 * kPage));
  sessions.erase(b->id);
  EXPECT_EQ(sessions.most_segment_bytes_of_a_uid(), 0u);
  EXPECT_TRUE(sessions.allocate(*a, 5 * kPage));
}

TEST(Sessions, NobodyBorrowsFromOthers) {
  Sessions sessions({9, 9, 2, 8 * kPage});
  Session* owner = *sessions.open({7, 1}, 0);
  Session* same = *sessions.open({7, 1}, 0);
  Session* process = *sessions.open({7, 2}, 0);
  Session* uid = *sessions.open({8, 1}, 0);
  owner->welcomed = true;
  const uint64_t segment = sessions.allocate(*owner, kPage)->first;
  const wire::BorrowSegment good = borrow_of(*owner, segment);
  for (Session* other : {process, uid}) {
    EXPECT_EQ(sessions.borrow(*other, good).error().code(), Code::kPermissionDenied);
  }
  wire::BorrowSegment guessed = good;
  guessed.set_secret(std::string(32, 'x'));
  EXPECT_EQ(sessions.borrow(*same, guessed).error().code(), Code::kPermissionDenied);
  EXPECT_EQ(sessions.borrow(*same, borrow_of(*owner, segment + 1)).error().code(), Code::kNotFound);
  EXPECT_TRUE(sessions.borrow(*same, good));
  EXPECT_TRUE(sessions.borrow(*same, good)) << "twice is another segment";
  EXPECT_THAT(sessions.borrow(*same, good).error().message(), HasSubstr("segments-per-session"));
  owner->gone = true;
  EXPECT_FALSE(sessions.borrow(*same, good));
}

// Handed on under two names, it is one segment again.
TEST(Sessions, WhatWasSharedBeforeARestartIsShared) {
  Sessions sessions(kLimits);
  Session* a = *sessions.open({7, 1}, 0);
  Session* b = *sessions.open({7, 1}, 0);
  auto memory = transport::Segment::create(kPage), other = transport::Segment::create(kPage);
  ASSERT_TRUE(memory && other);
  auto again = transport::Segment::adopt(dup(memory->fd()));
  ASSERT_TRUE(again);
  sessions.adopt(*a, 3, std::move(*memory));
  sessions.adopt(*b, 5, std::move(*again));
  sessions.adopt(*b, 4, std::move(*other));
  EXPECT_EQ(a->segments.at(3).memory().data(), b->segments.at(5).memory().data());
  EXPECT_NE(a->segments.at(3).memory().data(), b->segments.at(4).memory().data());
  EXPECT_EQ(sessions.most_segment_bytes_of_a_uid(), 2 * kPage);
  EXPECT_EQ(sessions.allocate(*a, 1)->first, 6u);
}

TEST(SegmentName, IsWhatTheSegmentIsKeptUnder) {
  const SegmentName name{0xfedcba98765432, 12};
  EXPECT_EQ(to_string(name), "seg.fedcba98765432.12");
  EXPECT_EQ(parse_segment_name(to_string(name)), name);
  EXPECT_EQ(parse_segment_name("seg.ffffffffffffffff.18446744073709551615"),
            (SegmentName{~uint64_t{0}, ~uint64_t{0}}));
  for (const char* text :
       {"", "seg.", "seg.1", "seg.1.", "seg..1", "seg.1.2.3", "seg.1.2 ", "seg.0x1.2", "seg.01.2",
        "seg.A.2", "seg.1.-2", "seg.10000000000000000.1", "attach.sock", "Seg.1.2"}) {
    EXPECT_FALSE(parse_segment_name(text)) << text;
  }
}

TEST(SegmentName, ThousandsFitOneVariable) {
  const std::string longest = to_string({(uint64_t{1} << 56) - 1, 1'000'000});
  EXPECT_LT(4096 * (longest.size() + 1), kFdNamesBytesMax);
}

TEST(Sessions, RequestsForAbsurdMemoryAreRefusedInWords) {
  Sessions sessions({4, 4, 3, ~uint64_t{0}});
  Session* session = *sessions.open({7, 1}, 0);
  EXPECT_FALSE(sessions.allocate(*session, 0));
  for (const uint64_t bytes : {~uint64_t{0}, ~uint64_t{0} - 4095, uint64_t{1} << 62}) {
    const auto segment = sessions.allocate(*session, bytes);
    ASSERT_FALSE(segment) << bytes;
    EXPECT_FALSE(segment.error().message().empty());
  }
  EXPECT_EQ(sessions.most_segment_bytes_of_a_uid(), 0u);
}

TEST(Sessions, ASessionHasANumberOfSegments) {
  Sessions sessions({4, 4, 3, 1 << 20});
  Session* session = *sessions.open({7, 1}, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(sessions.allocate(*session, 1));
  const auto fourth = sessions.allocate(*session, 1);
  ASSERT_FALSE(fourth);
  EXPECT_THAT(fourth.error().message(), HasSubstr("segments-per-session"));
}

// Where the kernel gives no more, the daemon can neither sum nor speak.
TEST(Sessions, SegmentsLeaveMappingsToOthersAndToTheDaemon) {
  Sessions sessions({4, 4, 100, 1 << 20, 16});
  Session* greedy = *sessions.open({7, 1}, 0);
  Session* twin = *sessions.open({7, 1}, 0);
  Session* other = *sessions.open({8, 2}, 0);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(sessions.allocate(*greedy, 1));
  for (Session* session : {greedy, twin}) {
    const auto fifth = sessions.allocate(*session, 1);
    ASSERT_FALSE(fifth);
    EXPECT_EQ(fifth.error().code(), Code::kResourceExhausted);
    EXPECT_THAT(fifth.error().message(), HasSubstr("uid 7 has 4 segments"));
  }
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(sessions.allocate(*other, 1));
  const auto seventh = sessions.allocate(*other, 1);
  ASSERT_FALSE(seventh);
  EXPECT_THAT(seventh.error().message(), HasSubstr("raise vm.max_map_count"));

  sessions.erase(greedy->id);
  EXPECT_TRUE(sessions.allocate(*other, 1));
  EXPECT_TRUE(sessions.allocate(*twin, 1));
}

// Whoever has all that trainers may have would keep out the others.
TEST(Sessions, AUserHasHalfOfTheDescriptorsAtMost) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{200, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  SessionLimits limits = kLimits;
  limits.segments_per_session = 1000;
  limits.segment_bytes_per_uid = 1 << 30;
  Sessions sessions(limits);
  Session* greedy = *sessions.open({7, 1}, 0);
  std::string why;
  for (int i = 0; i < 150 && why.empty(); ++i) {
    const auto segment = sessions.allocate(*greedy, 1);
    if (!segment) why = segment.error().message();
  }
  Session* other = *sessions.open({8, 2}, 0);
  EXPECT_TRUE(sessions.allocate(*other, 1));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(why, HasSubstr("uid 7 has 100 segments, half of the file descriptors"));
}

// Whoever opens the file else waits until the lease is given up, for 45 s.
TEST(Sessions, ALeaseOnASegmentKeepsNobodyWaiting) {
  Sessions sessions(kLimits);
  Session* a = *sessions.open({7, 1}, 0);
  Session* b = *sessions.open({7, 1}, 0);
  a->welcomed = b->welcomed = true;
  const auto [segment, shared] = *sessions.allocate(*a, 1);
  signal(SIGIO, SIG_IGN);  // by which the kernel asks for it back
  if (fcntl(shared->shared->fd(), F_SETLEASE, F_RDLCK) != 0) GTEST_SKIP() << "no leases here";
  alarm(10);
  const auto borrowed = sessions.borrow(*b, borrow_of(*a, segment));
  alarm(0);
  ASSERT_FALSE(borrowed);
  EXPECT_THAT(borrowed.error().message(), HasSubstr("lease"));
  EXPECT_TRUE(b->segments.empty());
}

TEST(Sessions, ASegmentInUseIsNotFreedNorIsAStrangers) {
  Sessions sessions(kLimits);
  Session* a = *sessions.open({7, 1}, 0);
  Session* b = *sessions.open({8, 2}, 0);
  const auto segment = sessions.allocate(*a, 1);
  ++segment->second->uses;
  EXPECT_THAT(sessions.free(*a, segment->first).message(), HasSubstr("in use"));
  EXPECT_EQ(sessions.free(*b, segment->first).code(), Code::kNotFound);
  --segment->second->uses;
  EXPECT_TRUE(sessions.free(*a, segment->first).ok());
  EXPECT_EQ(sessions.free(*a, segment->first).code(), Code::kNotFound);
}

TEST(Sessions, AConnectionBelongsToOneSessionAtATime) {
  Sessions sessions(kLimits);
  Session* a = *sessions.open({7, 1}, 0);
  Session* b = *sessions.open({8, 2}, 0);
  sessions.bind_route(*a, "r1");
  EXPECT_EQ(sessions.find_by_route("r1"), a);
  sessions.bind_route(*a, "r2");
  EXPECT_EQ(sessions.find_by_route("r1"), nullptr);
  sessions.bind_route(*b, "r2");
  EXPECT_EQ(sessions.find_by_route("r2"), b);
  EXPECT_EQ(a->routing_id, "");
  sessions.erase(b->id);
  EXPECT_EQ(sessions.find_by_route("r2"), nullptr);
}

TEST(Users, AllWhoAreNotMappedIntoAUserNamespaceAreOne) {
  const std::string whole = "         0          0 4294967295\n", part = "0 100000 65536\n";
  EXPECT_TRUE(is_one_user(65534, whole, 65534));  // nobody, of the machine itself
  EXPECT_TRUE(is_one_user(65533, part, 65534));
  EXPECT_FALSE(is_one_user(65534, part, 65534));
  EXPECT_FALSE(is_one_user(65534, "0 1000 1\n1 4294967294 1\n", 65534));
  EXPECT_FALSE(is_one_user(7, part, 7));
  EXPECT_TRUE(is_one_user(7));
}

TEST(Users, OneWhosePidIsNotSeenHasNone) {
  EXPECT_EQ(describe({1000, 71}), "pid 71, uid 1000");
  EXPECT_EQ(describe({1000, 0}), "in a pid namespace not seen from here, uid 1000");
}

TEST(PeerAddress, TheLastThreeFieldsCount) {
  EXPECT_EQ(parse_peer_address("localhost:1000:100:4711"), (Credentials{1000, 4711}));
  EXPECT_EQ(parse_peer_address("a:b:c:0:0:1"), (Credentials{0, 1}));
  for (const char* bad :
       {"", "localhost", "1:2", "x:y:z:w", "localhost:-1:0:5", "localhost:1:2:", ":::"}) {
    EXPECT_EQ(parse_peer_address(bad), (Credentials{~0u, 0})) << bad;
  }
  EXPECT_EQ(parse_peer_address(nullptr), (Credentials{~0u, 0}));
}

}  // namespace
}  // namespace gradring::daemon
