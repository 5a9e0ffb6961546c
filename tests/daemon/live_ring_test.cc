// One daemon, and trainers that submit through shared memory, as they should and as they should
// not.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <gradring/gradring.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "proto/ring.h"
#include "proto/verdict.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_rings.h"
#include "tests/daemon/raw_trainer.h"
#include "tests/daemon/ring_entry.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

class LiveRingTest : public testing::Test {
 protected:
  void form() {
    ASSERT_TRUE(form_job("job", {&a_, &b_}));
    rings_of_a_.emplace(a_);
    rings_of_b_.emplace(b_);
    memory_of_a_ = a_.allocate(4096);
    memory_of_b_ = b_.allocate(4096);
    for (int i = 0; i < 16; ++i) {
      memory_of_a_.data[i] = static_cast<float>(i);
      memory_of_b_.data[i] = 100;
    }
  }
  void expect_sum() {
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(memory_of_a_.data[i], 100 + static_cast<float>(i));
      EXPECT_EQ(memory_of_b_.data[i], 100 + static_cast<float>(i));
    }
  }

  LiveDaemon daemon_;
  RawTrainer a_{daemon_.runtime_dir()}, b_{daemon_.runtime_dir()};
  std::optional<RawRings> rings_of_a_, rings_of_b_;
  RawTrainer::Memory memory_of_a_, memory_of_b_;
};

TEST_F(LiveRingTest, TwoTrainersAdd) {
  form();
  rings_of_a_->put(ring_allreduce(memory_of_a_.segment, 7));
  rings_of_b_->put(ring_allreduce(memory_of_b_.segment, 7));
  for (RawRings* rings : {&*rings_of_a_, &*rings_of_b_}) {
    const RingEnd end = rings->end();
    EXPECT_EQ(end.ticket, 7u);
    EXPECT_EQ(end.verdict, kOk);
    EXPECT_EQ(end.epoch, 1u);
    EXPECT_EQ(end.ranks_min, 2u);
  }
  expect_sum();
  EXPECT_TRUE(a_.leave().has_left());
  EXPECT_TRUE(b_.leave().has_left());
}

TEST_F(LiveRingTest, OneBringsARingAndTheOtherMessages) {
  form();
  rings_of_a_->put(ring_allreduce(memory_of_a_.segment, 0));
  b_.submit(RawTrainer::allreduce(memory_of_b_, 16, 0));
  EXPECT_EQ(rings_of_a_->end().verdict, kOk);
  EXPECT_EQ(b_.completion().verdict(), kOk);
  expect_sum();
}

TEST_F(LiveRingTest, BadSubmissionsAreRefusedInMessagesAndGoodOnesGoOn) {
  form();
  RingSubmission entry = ring_allreduce(memory_of_a_.segment, 1);
  entry.input_segment = memory_of_b_.segment;
  rings_of_a_->put(entry);
  wire::Completion told = a_.completion();
  EXPECT_EQ(told.ticket(), 1u);
  EXPECT_EQ(told.verdict(), kFailed);
  EXPECT_THAT(told.message(), HasSubstr("does not belong to this session"));
  entry = ring_allreduce(memory_of_a_.segment, 2);
  entry.count = UINT64_MAX / 2;
  rings_of_a_->put(entry);
  EXPECT_EQ(a_.completion().verdict(), kFailed);
  entry = ring_allreduce(memory_of_a_.segment, 3);
  rings_of_a_->put(entry);
  rings_of_a_->put(entry);  // the same ticket, and key
  told = a_.completion();
  EXPECT_THAT(told.message(), HasSubstr("in use"));
  rings_of_b_->put(ring_allreduce(memory_of_b_.segment, 3));
  EXPECT_EQ(rings_of_a_->end().verdict, kOk);
  EXPECT_EQ(rings_of_b_->end().verdict, kOk);
  expect_sum();
}

TEST_F(LiveRingTest, WhatFailsIsToldWithItsReason) {
  form();
  rings_of_a_->put(ring_allreduce(memory_of_a_.segment, 0));
  RingSubmission odd = ring_allreduce(memory_of_b_.segment, 0);
  odd.count = 17;
  rings_of_b_->put(odd);
  for (RawTrainer* trainer : {&a_, &b_}) {
    const wire::Completion told = trainer->completion();
    EXPECT_EQ(told.failure().cause(), static_cast<uint32_t>(Cause::kMismatch));
    EXPECT_THAT(told.message(), HasSubstr("rank 1"));
  }
}

TEST_F(LiveRingTest, MemoryInUseIsNotFreed) {
  form();
  rings_of_a_->put(ring_allreduce(memory_of_a_.segment, 0));
  wire::ClientMessage free;
  free.mutable_free()->set_segment(memory_of_a_.segment);
  // The entry may be read a moment after the message.
  pollfd nothing{-1, 0, 0};
  poll(&nothing, 1, 100);
  EXPECT_THAT(a_.ask(free).refused().message(), HasSubstr("in use"));
  rings_of_b_->put(ring_allreduce(memory_of_b_.segment, 0));
  EXPECT_EQ(rings_of_a_->end().verdict, kOk);
  EXPECT_TRUE(a_.ask(free).has_freed());
  rings_of_a_->put(ring_allreduce(memory_of_a_.segment, 1));
  EXPECT_THAT(a_.completion().message(), HasSubstr("does not belong"));
}

// The one that came by message is still open, and its memory in use.
TEST_F(LiveRingTest, ARefusalInTheRingIsNotTheEndOfAnOpOfTheSameTicketThatCameByMessage) {
  form();
  wire::Operation operation = RawTrainer::allreduce(memory_of_a_, 16, 0);
  a_.submit(operation);
  RingSubmission nonsense = ring_allreduce(memory_of_a_.segment, operation.ticket());
  nonsense.count = UINT64_MAX / 2;
  rings_of_a_->put(nonsense);
  EXPECT_EQ(a_.completion().verdict(), kFailed);
  wire::ClientMessage free;
  free.mutable_free()->set_segment(memory_of_a_.segment);
  EXPECT_THAT(a_.ask(free).refused().message(), HasSubstr("in use"));
  b_.submit(RawTrainer::allreduce(memory_of_b_, 16, 0));
  EXPECT_EQ(a_.completion().verdict(), kOk);
  expect_sum();
}

TEST_F(LiveRingTest, AMessageOfTheTicketOfAnOpInTheRingIsRefused) {
  form();
  rings_of_a_->put(ring_allreduce(memory_of_a_.segment, 1));
  pollfd nothing{-1, 0, 0};
  poll(&nothing, 1, 100);
  a_.submit(RawTrainer::allreduce(memory_of_a_, 1000, 0));  // likewise ticket 1
  EXPECT_THAT(a_.completion().message(), HasSubstr("ticket 1 is in use"));
  rings_of_b_->put(ring_allreduce(memory_of_b_.segment, 1));
  EXPECT_EQ(rings_of_a_->end().verdict, kOk);
  expect_sum();
}

TEST_F(LiveRingTest, NonsenseInTheRingEndsTheTrainersSessionAndNothingElse) {
  form();
  rings_of_b_->put(ring_allreduce(memory_of_b_.segment, 0));
  rings_of_a_->pair().submissions.written = uint64_t{1} << 63;
  rings_of_a_->wake();
  const wire::Completion told = b_.completion();
  EXPECT_EQ(told.failure().cause(), static_cast<uint32_t>(Cause::kTrainerDied));
  EXPECT_THAT(told.message(), HasSubstr("nonsense"));
  EXPECT_TRUE(a_.attach().closed_by_daemon());
  RawTrainer c(daemon_.runtime_dir()), d(daemon_.runtime_dir());
  EXPECT_TRUE(form_job("next", {&c, &d}));
}

TEST_F(LiveRingTest, WhatWasSubmittedBeforeItsEndCounts) {
  form();
  const RingSubmission entry = ring_allreduce(memory_of_a_.segment, 0);
  // Without a word to the daemon, which sleeps: it looks when the trainer leaves.
  RingWriter<RingSubmission> quiet(&rings_of_a_->pair().submissions);
  ASSERT_TRUE(quiet.put(entry));
  EXPECT_TRUE(a_.leave().has_left());
  rings_of_b_->put(ring_allreduce(memory_of_b_.segment, 0));
  EXPECT_EQ(rings_of_b_->end().verdict, kOk);
  expect_sum();
}

TEST_F(LiveRingTest, RingsBelongToAJobAndOneIsEnough) {
  std::vector<Fd> fds;
  EXPECT_THAT(ask_for_rings(a_, &fds)->refused().message(), HasSubstr("join one first"));
  form();
  EXPECT_THAT(ask_for_rings(a_, &fds)->refused().message(), HasSubstr("already"));
  EXPECT_TRUE(fds.empty());
}

// What it leaves unread has a bound, and others go on.
TEST_F(LiveRingTest, WhoReadsNoEndsIsPutOut) {
  ASSERT_TRUE(form_job("alone", {&a_}));
  rings_of_a_.emplace(a_);
  memory_of_a_ = a_.allocate(4096);
  EXPECT_FALSE(rings_of_a_->put_all(200'000, [this](uint64_t ticket) {
    RingSubmission entry = ring_allreduce(memory_of_a_.segment, ticket);
    entry.count = 0;  // so that it ends as it begins
    return entry;
  }));
  EXPECT_TRUE(form_job("next", {&b_}));
}

// More than the daemon keeps ends of; slowly, since whoever finds no room reads.
TEST(LiveRingAhead, ATrainerMaySubmitForLongBeforeItWaits) {
  LiveDaemon daemon;
  gradring_options options{};
  options.struct_size = sizeof(options);
  options.runtime_dir = daemon.runtime_dir().c_str();
  options.job = "alone";
  options.size = 1;
  options.local_rank = options.local_size = -1;
  const Communicator job(options);
  std::vector<Request> open;
  for (int i = 0; i < 70'000; ++i) {
    if (i % 256 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    open.push_back(job.start_barrier());
  }
  for (Request& request : open) ASSERT_EQ(request.wait().verdict, GRADRING_VERDICT_OK);
}

TEST_F(LiveRingTest, WhoIsNotThereForAnswersIsPutOut) {
  ASSERT_TRUE(form_job("alone", {&a_}));
  rings_of_a_.emplace(a_);
  a_.close_control();
  EXPECT_FALSE(
      rings_of_a_->put_all(1'000'000, [](uint64_t ticket) { return ring_allreduce(77, ticket); }));
  EXPECT_TRUE(form_job("next", {&b_}));
}

// Whoever has a descriptor of an eventfd may take O_NONBLOCK from it, for all who have one.
TEST_F(LiveRingTest, ABellThatIsFullKeepsNobodyWaiting) {
  form();
  RawTrainer bad(daemon_.runtime_dir());
  ASSERT_TRUE(form_job("bad", {&bad}));
  RawRings rings(bad);
  const RawTrainer::Memory memory = bad.allocate(4096);
  const int bell = rings.ended_bell();
  fcntl(bell, F_SETFL, fcntl(bell, F_GETFL) & ~O_NONBLOCK);
  eventfd_write(bell, UINT64_MAX - 1);
  for (uint64_t i = 0; i < 100; ++i) {  // more than a pair of sockets keeps
    rings.pair().ends.asleep.store(1);
    rings.put(ring_allreduce(memory.segment, i));
    for (int turn = 0; turn < 10'000 && !rings.any(); ++turn) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    ASSERT_TRUE(rings.any());
    rings.take();
  }
  rings_of_a_->put(ring_allreduce(memory_of_a_.segment, 0));
  rings_of_b_->put(ring_allreduce(memory_of_b_.segment, 0));
  EXPECT_EQ(rings_of_a_->end().verdict, kOk);
  EXPECT_EQ(rings_of_b_->end().verdict, kOk);
}

// Libraries of ours count on. To the daemon it looks like what is asked for once more after a
// restart.
TEST(LiveRingRestart, ATicketThatHasEndedIsToldOnceMoreInTheRing) {
  LiveDaemon daemon({"--keep", "--restart-grace", "20s"});
  RawTrainer a(daemon.runtime_dir());
  ASSERT_TRUE(form_job("alone", {&a}));
  RawRings rings(a);
  const RawTrainer::Memory memory = a.allocate(4096);
  for (int i = 0; i < 2; ++i) {
    rings.put(ring_allreduce(memory.segment, 1));
    const RingEnd end = rings.end();
    EXPECT_EQ(end.ticket, 1u);
    EXPECT_EQ(end.verdict, kOk);
  }
  wire::ClientMessage free;
  free.mutable_free()->set_segment(memory.segment);
  EXPECT_TRUE(a.ask(free).has_freed());
}

}  // namespace
}  // namespace gradring::daemon
