// The data thread's end of a trainer's rings; the test is the trainer, good or bad.

#include "daemon/data/session_ring.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "tests/daemon/ring_entry.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSegment = 5;
constexpr uint64_t kPage = 4096;

struct OnAGpu final : transport::OpenGpuMemory {
  uint64_t bytes() const override { return kPage / 2; }
};

class SessionRingTest : public testing::Test {
 protected:
  static OpenRing opened(std::span<std::byte> memory, Fd* heard) {
    std::array<int, 2> bell{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, bell.data()), 0);
    heard->reset(bell[1]);
    SharedRing shared{std::move(*transport::Segment::create(sizeof(RingPair))),
                      Fd(eventfd(0, EFD_NONBLOCK)), Fd(bell[0])};
    OpenRing open{1001, JobId{7}, 1, std::make_shared<const SharedRing>(std::move(shared)), {}};
    open.segments.push_back({1001, kSegment, memory});
    return open;
  }
  void share() { ring_.lend({1001, kSegment, segment_.memory(), shared_}); }
  static RingSubmission good(uint64_t ticket) { return ring_allreduce(kSegment, ticket); }
  // Of what the segment stands for, with a word behind it.
  static RingSubmission on_gpu(uint64_t ticket) {
    RingSubmission entry = good(ticket);
    entry.reached_segment = kSegment;
    entry.reached_offset = kPage - 64;
    entry.reached_value = 7;
    entry.on_gpu = kOnGpu;
    return entry;
  }
  tl::expected<Submit, std::string> checked(const RingSubmission& entry) {
    EXPECT_TRUE(trainer_.put(entry));
    EXPECT_TRUE(ring_.any() && !ring_.broken());
    EXPECT_EQ(ring_.take().ticket(), entry.ticket);
    return ring_.check();
  }
  bool end(const Submit& submit, Verdict verdict) {
    core::Outcome outcome;
    outcome.verdict = verdict;
    outcome.epoch = 3;
    outcome.ranks_min = 1;
    outcome.ranks_max = 2;
    return ring_.end(submit.submission.ticket, segments_of(submit.submission), outcome);
  }
  bool woken() const {
    eventfd_t count = 0;
    return eventfd_read(heard_.get(), &count) == 0;  // as trainers do
  }

  transport::Segment segment_ = std::move(*transport::Segment::create(kPage));
  const std::shared_ptr<const SharedGpuMemory> shared_ = std::make_shared<const SharedGpuMemory>(
      SharedGpuMemory{nullptr, std::make_shared<const OnAGpu>(), nullptr});
  Fd heard_;
  OpenRing open_ = opened(segment_.memory(), &heard_);
  SessionRing ring_{open_};
  RingPair* const pair_ = reinterpret_cast<RingPair*>(open_.shared->memory.memory().data());
  RingWriter<RingSubmission> trainer_{&pair_->submissions};
  RingReader<RingEnd> ends_{&pair_->ends};
};

TEST_F(SessionRingTest, ASubmissionIsCheckedAndFindsItsMemory) {
  RingSubmission entry = good(9);
  entry.input_offset = 64;
  entry.output_offset = kPage - 64;
  const auto submit = checked(entry);
  ASSERT_TRUE(submit) << submit.error();
  EXPECT_EQ(submit->session, 1001u);
  EXPECT_EQ(submit->job, JobId{7});
  EXPECT_EQ(submit->submission.rank, 1u);
  EXPECT_EQ(submit->submission.ticket, 9u);
  EXPECT_EQ(submit->submission.key, (OpKey{0, 9}));
  EXPECT_EQ(submit->submission.signature.count, 16u);
  EXPECT_EQ(submit->input, segment_.memory().data() + 64);
  EXPECT_EQ(submit->output, segment_.memory().data() + kPage - 64);
  EXPECT_EQ(submit->ring, &ring_);
}

TEST_F(SessionRingTest, NothingInAnEntryIsBelieved) {
  uint64_t ticket = 0;
  const auto told = [&](const std::function<void(RingSubmission&)>& spoil) {
    RingSubmission entry = good(++ticket);
    spoil(entry);
    const auto submit = checked(entry);
    return submit ? "" : submit.error();
  };
  EXPECT_THAT(told([](auto& e) { e.collective = 0; }), HasSubstr("unknown collective"));
  EXPECT_THAT(told([](auto& e) { e.collective = 255; }), HasSubstr("unknown collective"));
  EXPECT_THAT(told([](auto& e) { e.dtype = 77; }), HasSubstr("element type"));
  EXPECT_THAT(told([](auto& e) { e.op = 99; }), HasSubstr("reduce op"));
  EXPECT_THAT(told([](auto& e) { e.count = UINT64_MAX; }), HasSubstr("count"));
  EXPECT_THAT(told([](auto& e) { e.input_segment = 6; }), HasSubstr("does not belong"));
  EXPECT_THAT(told([](auto& e) { e.output_offset = kPage - 60; }), HasSubstr("beyond segment"));
  EXPECT_THAT(told([](auto& e) { e.output_offset = UINT64_MAX - 3; }), HasSubstr("beyond"));
  EXPECT_THAT(told([](auto& e) { e.input_offset = 2; }), HasSubstr("multiple"));
  EXPECT_TRUE(ring_.take_back(kSegment)) << "nothing that was refused holds on to it";
}

TEST_F(SessionRingTest, ASegmentThatIsLentLaterMayBeNamed) {
  const auto later = transport::Segment::create(kPage);
  RingSubmission entry = good(1);
  entry.input_segment = entry.output_segment = 8;
  EXPECT_FALSE(checked(entry));
  EXPECT_TRUE(ring_.postpone());
  ring_.lend({1001, 8, later->memory()});
  ASSERT_TRUE(ring_.any());
  EXPECT_EQ(ring_.take().ticket(), 1u) << "the same once more";
  EXPECT_TRUE(ring_.check());
  EXPECT_FALSE(ring_.any());
}

TEST_F(SessionRingTest, ASegmentThatNeverComesIsWaitedForOnce) {
  RingSubmission entry = good(1);
  entry.input_segment = 8;
  EXPECT_FALSE(checked(entry));
  EXPECT_TRUE(ring_.postpone());
  ring_.take();
  EXPECT_FALSE(ring_.check());
  EXPECT_FALSE(ring_.postpone());
  EXPECT_TRUE(checked(good(2))) << "the next one";
}

TEST_F(SessionRingTest, WhatLiesOnAGpuIsNamedByTheSegmentThatStandsForIt) {
  RingSubmission entry = on_gpu(1);
  entry.input_offset = entry.output_offset = 64;
  EXPECT_FALSE(checked(entry)) << "it was not shared";
  EXPECT_TRUE(ring_.postpone());
  share();
  ring_.take();
  const auto submit = ring_.check();
  ASSERT_TRUE(submit) << submit.error();
  EXPECT_EQ(submit->gpu_input.memory, shared_->open.get());
  EXPECT_EQ(submit->gpu_input.offset, 64u);
  EXPECT_EQ(submit->gpu_output.memory, shared_->open.get());
  EXPECT_EQ(submit->reached.parts, 1u);
  EXPECT_EQ(submit->reached.at, reinterpret_cast<uint32_t*>(segment_.memory().data() + kPage - 64));

  RingSubmission scattered = on_gpu(2);
  scattered.collective = static_cast<uint8_t>(Collective::kReduceScatter);
  scattered.ranks = 2;
  const auto leaves = checked(scattered);
  ASSERT_TRUE(leaves) << leaves.error();
  EXPECT_EQ(leaves->gpu_output.memory, nullptr);
  scattered.on_gpu |= kStaysOnGpu;
  const auto stays = checked(scattered);
  ASSERT_TRUE(stays) << stays.error();
  EXPECT_EQ(stays->gpu_output.memory, shared_->open.get());

  EXPECT_EQ(checked(good(3))->gpu_input.memory, nullptr) << "that one means the segment";
}

TEST_F(SessionRingTest, NothingOfThatIsBelievedEither) {
  share();
  uint64_t ticket = 0;
  const auto told = [&](const std::function<void(RingSubmission&)>& spoil) {
    RingSubmission entry = on_gpu(++ticket);
    spoil(entry);
    const auto submit = checked(entry);
    return submit ? "" : submit.error();
  };
  EXPECT_EQ(told([](auto& e) { e.on_gpu = UINT32_MAX; }), "");
  EXPECT_THAT(told([](auto& e) { e.input_offset = kPage / 2 - 32; }), HasSubstr("on the GPU"));
  EXPECT_THAT(told([](auto& e) { e.output_offset = UINT64_MAX - 3; }), HasSubstr("beyond"));
  EXPECT_THAT(told([](auto& e) { e.reached_value = 0; }), HasSubstr("needs a word"));
  EXPECT_THAT(told([](auto& e) { e.reached_offset = kPage - 2; }), HasSubstr("beyond segment"));
  EXPECT_THAT(told([](auto& e) { e.reached_offset = kPage - 62; }), HasSubstr("multiple"));
  EXPECT_THAT(told([](auto& e) { e.reached_segment = 6; }), HasSubstr("none of the op's buffers"));
  EXPECT_THAT(told([](auto& e) { e.part_kib = 1; }), HasSubstr("parts of 1024 bytes"));
  const auto broadcast = [](auto& e) {
    e.collective = static_cast<uint8_t>(Collective::kBroadcast);
    e.op = 0;
  };
  EXPECT_THAT(told(broadcast), HasSubstr("have no part in"));
}

TEST_F(SessionRingTest, MemoryOfAGpuIsLetGoOfWhereNoOpenOpUsesIt) {
  share();
  const long before = shared_.use_count();
  const auto open = checked(on_gpu(1));
  ring_.let_go_of(shared_.get());
  EXPECT_EQ(shared_.use_count(), before);
  EXPECT_TRUE(end(*open, Verdict::kOk));
  ring_.let_go_of(shared_.get());
  EXPECT_EQ(shared_.use_count(), before - 1);
  EXPECT_FALSE(checked(on_gpu(2)));
}

TEST_F(SessionRingTest, ASegmentIsTakenBackWhenNoOpenOpUsesIt) {
  const auto first = checked(good(1));
  const auto second = checked(good(2));
  EXPECT_FALSE(ring_.take_back(kSegment));
  EXPECT_TRUE(end(*first, Verdict::kOk));
  EXPECT_FALSE(ring_.take_back(kSegment));
  EXPECT_FALSE(end(*second, Verdict::kFailed)) << "told in a message";
  EXPECT_TRUE(ring_.take_back(kSegment));
  EXPECT_TRUE(ring_.take_back(kSegment)) << "it is nobody's any more";
  EXPECT_FALSE(checked(good(3)));
}

TEST_F(SessionRingTest, AnEndIsWrittenAndWakesATrainerThatSleeps) {
  const auto first = checked(good(1));
  ASSERT_TRUE(ends_.rest());
  EXPECT_TRUE(end(*first, Verdict::kOkShrunk));
  EXPECT_TRUE(woken());
  ASSERT_TRUE(ends_.any());
  const RingEnd told = ends_.take();
  EXPECT_EQ(told.ticket, 1u);
  EXPECT_EQ(told.epoch, 3u);
  EXPECT_EQ(told.verdict, static_cast<uint32_t>(Verdict::kOkShrunk));
  EXPECT_EQ(std::pair(told.ranks_min, told.ranks_max), std::pair(1u, 2u));
  const auto second = checked(good(2));
  EXPECT_TRUE(end(*second, Verdict::kOk));
  EXPECT_FALSE(woken()) << "nobody sleeps";
}

TEST_F(SessionRingTest, EndsThatFindNoRoomWaitForIt) {
  for (uint64_t ticket = 1; ticket <= kRingSlots + 2; ++ticket) {
    const auto submit = checked(good(ticket));
    ASSERT_TRUE(submit);
    EXPECT_TRUE(end(*submit, Verdict::kOk));
  }
  EXPECT_EQ(ring_.flush(), 0);
  EXPECT_EQ(ends_.take().ticket, 1u);
  EXPECT_EQ(ring_.flush(), 1);
  for (uint64_t ticket = 2; ticket <= kRingSlots + 1; ++ticket) ends_.take();
  EXPECT_EQ(ring_.flush(), 1);
  EXPECT_EQ(ends_.take().ticket, kRingSlots + 2);
}

TEST_F(SessionRingTest, WhatIsOpenWhenItIsClosedKeepsIt) {
  const auto open = checked(good(1));
  ring_.close();
  ASSERT_TRUE(trainer_.put(good(2)));
  EXPECT_FALSE(ring_.any()) << "nothing is taken any more";
  EXPECT_TRUE(ring_.rest());
  EXPECT_FALSE(ring_.may_be_freed());
  EXPECT_TRUE(end(*open, Verdict::kOk));
  EXPECT_FALSE(ends_.any()) << "nobody is there to read it";
  EXPECT_TRUE(ring_.may_be_freed());
}

TEST_F(SessionRingTest, ATrainerThatWritesNonsenseIsNoticed) {
  pair_->submissions.written = kRingSlots + 1;
  EXPECT_TRUE(ring_.any());
  EXPECT_TRUE(ring_.broken());
}

// It has a descriptor of the same open file.
TEST_F(SessionRingTest, ABellThatItsTrainerHasReadMeanwhileKeepsNobodyWaiting) {
  fcntl(ring_.bell(), F_SETFL, O_RDWR);  // no O_NONBLOCK
  const auto quiet = std::async(std::launch::async, [this] { ring_.rise(true); });
  EXPECT_EQ(quiet.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  eventfd_write(ring_.bell(), 1);  // lets it go in any case
}

}  // namespace
}  // namespace gradring::daemon
