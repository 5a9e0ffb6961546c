// Ops on memory of a GPU, whose streams come to them later: the trainer is the test, and its GPU
// two words in memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "proto/stream_word.h"
#include "proto/verdict.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSummed = 16;
constexpr int kAMoment = 50;  // milliseconds, for what must not come

class LiveStreams : public testing::Test {
 protected:
  explicit LiveStreams(const std::vector<std::string>& flags = {}) : daemon_(flags) {}
  void SetUp() override {
    ASSERT_TRUE(form_job("job", {x_.get(), y_.get()}));
    theirs_ = x_->allocate(4096);
    mine_ = y_->allocate(4096);
  }
  StreamWord word(uint32_t number, uint32_t value) const {
    return {reinterpret_cast<uint32_t*>(theirs_.data) + 256 + 16 * number, value};
  }
  // Of x, which counts when its first word has come to `value`, and sets its second.
  wire::Operation held(uint64_t sequence, uint32_t value = 7) const {
    wire::Operation operation = RawTrainer::allreduce(theirs_, kSummed, sequence);
    for (auto* to : {operation.mutable_reached(), operation.mutable_ended()}) {
      to->set_segment(theirs_.segment);
      to->set_value(value);
    }
    operation.mutable_reached()->set_offset(1024);
    operation.mutable_ended()->set_offset(1024 + 64);
    return operation;
  }
  wire::RankReport rank_of_x() {
    wire::ClientMessage query;
    query.mutable_query()->set_what(wire::Query::JOB);
    query.mutable_query()->set_job("job");
    return y_->ask(query).reply().job().ranks(0);
  }
  static Verdict verdict(const wire::Completion& end) {
    return static_cast<Verdict>(end.verdict());
  }
  static Cause cause(const wire::Completion& end) {
    return static_cast<Cause>(end.failure().cause());
  }

  LiveDaemon daemon_;
  std::unique_ptr<RawTrainer> x_ = std::make_unique<RawTrainer>(daemon_.runtime_dir());
  std::unique_ptr<RawTrainer> y_ = std::make_unique<RawTrainer>(daemon_.runtime_dir());
  RawTrainer::Memory theirs_, mine_;
};

TEST_F(LiveStreams, AnOpCountsWhenItsStreamHasComeToIt) {
  x_->submit(held(0));
  y_->submit(RawTrainer::allreduce(mine_, kSummed, 0));
  EXPECT_FALSE(y_->receive(kAMoment)) << "its input is not there";
  EXPECT_EQ(rank_of_x().state(), "GPU behind");
  EXPECT_EQ(rank_of_x().ops_held(), 1u);
  EXPECT_EQ(rank_of_x().ops_submitted(), 0u);

  theirs_.data[0] = 2;  // what the stream writes last
  mine_.data[0] = 3;
  word(0, 7).set();
  EXPECT_EQ(verdict(x_->completion()), Verdict::kOk);
  EXPECT_EQ(verdict(y_->completion()), Verdict::kOk);
  EXPECT_EQ(theirs_.data[0], 5);
  EXPECT_TRUE(word(1, 7).has_come());
  EXPECT_EQ(rank_of_x().ops_held(), 0u);
}

TEST_F(LiveStreams, AStreamThatIsThereAlreadyIsNotWaitedFor) {
  word(0, 9).set();  // it may have come further
  x_->submit(held(0));
  y_->submit(RawTrainer::allreduce(mine_, kSummed, 0));
  EXPECT_EQ(verdict(x_->completion()), Verdict::kOk);
  EXPECT_EQ(verdict(y_->completion()), Verdict::kOk);
}

TEST_F(LiveStreams, OtherOpsDoNotWaitForIt) {
  x_->submit(held(0));
  y_->submit(RawTrainer::allreduce(mine_, kSummed, 0));
  const RawTrainer::Memory more = x_->allocate(4096), others = y_->allocate(4096);
  x_->submit(RawTrainer::allreduce(more, kSummed, 1));
  y_->submit(RawTrainer::allreduce(others, kSummed, 1));
  EXPECT_EQ(y_->completion().ticket(), RawTrainer::allreduce(others, kSummed, 1).ticket());
  x_->completion();
  word(0, 7).set();
  EXPECT_EQ(verdict(y_->completion()), Verdict::kOk);
}

TEST_F(LiveStreams, WhoLeavesBeforeThatHasNotSubmittedIt) {
  x_->submit(held(0));
  y_->submit(RawTrainer::allreduce(mine_, kSummed, 0));
  EXPECT_FALSE(y_->receive(kAMoment));
  x_->leave();
  const wire::Completion end = y_->completion();
  EXPECT_EQ(verdict(end), Verdict::kFailed);
  EXPECT_EQ(cause(end), Cause::kTrainerLeft);
  EXPECT_EQ(end.failure().blame().rank(), 0u);
}

TEST_F(LiveStreams, SoWithOneThatDies) {
  x_->submit(held(0));
  y_->submit(RawTrainer::allreduce(mine_, kSummed, 0));
  EXPECT_FALSE(y_->receive(kAMoment));
  x_.reset();
  const wire::Completion end = y_->completion();
  EXPECT_EQ(cause(end), Cause::kTrainerDied);
  EXPECT_TRUE(daemon_.runs());
}

TEST_F(LiveStreams, AJobThatFailsEndsItAndSetsItsWord) {
  x_->submit(held(0));
  EXPECT_FALSE(x_->receive(kAMoment));
  y_.reset();
  wire::Completion end = x_->completion();
  EXPECT_EQ(verdict(end), Verdict::kFailed);
  EXPECT_EQ(cause(end), Cause::kTrainerDied);
  EXPECT_TRUE(word(1, 7).has_come()) << "or the stream would wait for ever";
}

TEST_F(LiveStreams, SomeThousandOfOneTrainerAndNoMore) {
  constexpr uint64_t kMostHeld = 4096;  // daemon/data/stream_gate.h
  for (uint64_t i = 0; i <= kMostHeld; ++i) x_->submit(held(i));
  const wire::Completion end = x_->completion();
  EXPECT_EQ(cause(end), Cause::kRefused);
  EXPECT_THAT(end.message(), HasSubstr("4096 ops wait for a GPU"));
}

// Inputs of several slices, that come in parts.
class LiveParts : public LiveStreams {
 protected:
  using LiveStreams::LiveStreams;
  static constexpr uint64_t kPart = uint64_t{1} << 20;
  static constexpr uint32_t kParts = 4;
  static constexpr uint64_t kFloats = kPart / sizeof(float);

  void SetUp() override {
    LiveStreams::SetUp();
    theirs_ = x_->allocate(4096 + kParts * kPart);
    mine_ = y_->allocate(kParts * kPart);
    std::fill_n(mine_.data, kParts * kFloats, 2.0f);
  }
  StreamWord word(uint32_t number) const {
    auto* const words = reinterpret_cast<uint32_t*>(theirs_.data + kParts * kFloats);
    return {words + 16 * number, 7, kParts};
  }
  void submit_both() {
    wire::Operation operation = RawTrainer::allreduce(theirs_, kParts * kFloats, 0);
    for (auto* to : {operation.mutable_reached(), operation.mutable_ended()}) {
      to->set_segment(theirs_.segment);
      to->set_value(7);
    }
    operation.mutable_reached()->set_offset(kParts * kPart);
    operation.mutable_ended()->set_offset(kParts * kPart + 64);
    operation.set_part_bytes(kPart);
    x_->submit(operation);
    y_->submit(RawTrainer::allreduce(mine_, kParts * kFloats, 0));
  }
  // As its GPU does.
  void come(uint32_t parts) {
    std::fill_n(theirs_.data + (parts - 1) * kFloats, kFloats, 1.0f * parts);
    word(0).set_come(parts);
  }
  bool gone(uint32_t parts) const {
    for (int i = 0; i < 1000 && word(1).parts_come() < parts; ++i) ::usleep(10'000);
    return word(1).parts_come() == parts;
  }
};

TEST_F(LiveParts, AreExchangedAsTheyCome) {
  submit_both();
  EXPECT_FALSE(y_->receive(kAMoment));
  EXPECT_EQ(rank_of_x().ops_submitted(), 0u);
  for (uint32_t part = 1; part < kParts; ++part) {
    come(part);
    ASSERT_TRUE(gone(part)) << part;
    EXPECT_EQ(theirs_.data[part * kFloats - 1], 2.0f + part) << "the result may be fetched";
    EXPECT_EQ(mine_.data[part * kFloats], 2.0f) << "and what comes behind it is as it was";
  }
  EXPECT_EQ(rank_of_x().ops_submitted(), 1u);
  EXPECT_EQ(rank_of_x().ops_held(), 1u) << "it is not all there";
  come(kParts);
  EXPECT_EQ(verdict(x_->completion()), Verdict::kOk);
  EXPECT_EQ(verdict(y_->completion()), Verdict::kOk);
  EXPECT_TRUE(word(1).has_come());
  for (uint32_t i = 0; i < kParts * kFloats; ++i) {
    const auto part = static_cast<uint32_t>(i / kFloats);
    ASSERT_EQ(mine_.data[i], static_cast<float>(3 + part)) << i;
  }
  EXPECT_EQ(rank_of_x().ops_held(), 0u);
}

TEST_F(LiveParts, OfATrainerThatDiesBetweenThemEndTheOp) {
  submit_both();
  come(1);
  ASSERT_TRUE(gone(1));
  x_.reset();
  const wire::Completion end = y_->completion();
  EXPECT_EQ(verdict(end), Verdict::kFailed);
  EXPECT_EQ(cause(end), Cause::kTrainerDied);
  EXPECT_TRUE(daemon_.runs());
}

TEST_F(LiveParts, OfOneThatLeavesBetweenThemAreNamed) {
  submit_both();
  come(1);
  ASSERT_TRUE(gone(1));
  x_->leave();
  const wire::Completion end = y_->completion();
  EXPECT_EQ(cause(end), Cause::kTrainerLeft);
  EXPECT_THAT(end.failure().blame().evidence(), HasSubstr("before the whole input of"));
}

class LivePartsOnRecord : public LiveParts {
 protected:
  LivePartsOnRecord() : LiveParts({"--keep", "--restart-grace", "20s"}) {}
};

// The next daemon could not tell what of them its predecessor had seen.
TEST_F(LivePartsOnRecord, AreWaitedForAsOne) {
  submit_both();
  for (uint32_t part = 1; part < kParts; ++part) come(part);
  EXPECT_FALSE(y_->receive(kAMoment));
  EXPECT_EQ(rank_of_x().ops_submitted(), 0u);
  come(kParts);
  EXPECT_EQ(verdict(x_->completion()), Verdict::kOk);
  EXPECT_EQ(verdict(y_->completion()), Verdict::kOk);
  EXPECT_EQ(mine_.data[kParts * kFloats - 1], 2.0f + kParts);
}

TEST_F(LiveParts, ThatAreTooSmallAreRefused) {
  wire::Operation operation = RawTrainer::allreduce(theirs_, 16, 0);
  operation.set_part_bytes(4096);
  x_->submit(operation);
  EXPECT_THAT(x_->completion().message(), HasSubstr("parts of 4096 bytes"));
}

TEST_F(LiveStreams, WordsOutsideOfItsBuffersSegmentsAreRefused) {
  wire::Operation operation = held(0);
  operation.mutable_reached()->set_segment(mine_.segment);
  x_->submit(operation);
  EXPECT_THAT(x_->completion().message(), HasSubstr("has none of the op's buffers"));
  operation = held(1);
  operation.mutable_ended()->set_offset(UINT64_MAX - 1);
  x_->submit(operation);
  EXPECT_THAT(x_->completion().message(), HasSubstr("word of the end"));
  operation = held(2);
  operation.mutable_reached()->set_offset(1025);
  x_->submit(operation);
  EXPECT_THAT(x_->completion().message(), HasSubstr("not a multiple of the 4 bytes"));
}

}  // namespace
}  // namespace gradring::daemon
