#include "daemon/records/engine_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/core/plan.h"
#include "proto/types.h"

namespace gradring::daemon {
namespace {

const Signature kSum{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 4096};

core::View some_view(uint64_t epoch) {
  core::View view;
  view.job = "train";
  view.incarnation = {1, 2, 3};
  view.epoch = epoch;
  view.size = 3;
  view.policy = "elastic";
  view.members = {{"a", {{0, 0, 10, 100, 1}, {1, 1, 11, 101, 1}}}, {"b", {{2, 0, 20, 102, 1}}}};
  view.explanation = "epoch 1: formed of 3 ranks on 2 nodes";
  return view;
}

core::EngineRecord some_record(uint64_t epoch = 1) {
  core::EngineRecord record;
  record.view = some_view(epoch);
  record.locals = {{0, std::nullopt, 0, 0}, {1, std::nullopt, 0, 0}};
  return record;
}

core::Submission submission(uint32_t rank, uint64_t ticket, const OpKey& key) {
  return {rank, ticket, key, "grad", kSum, {5, 64 * rank}, {6, 128 * rank}, 0, 0.5 + rank};
}

Failure some_failure() {
  Failure failure{Cause::kMismatch, {}};
  failure.blame = {1, "a", 11, "", "submitted another count"};
  return failure;
}

// A journal written down and one kept as a value, told the same.
class EngineLogTest : public testing::Test {
 protected:
  EngineLogTest() : log_(RecordLog::create(1 << 20).value()), kept_(1 << 20) {
    op_.key = {0, 7};
    op_.name = "grad";
    op_.expected = 3;
    op_.seats = {{0, "alpha"}, {4, "beta"}};
    op_.since = 123456789;
    op_.plan = core::make_plan(kSum, 2, 0, {}, {4096, 1024});
    op_.slices.resize(op_.plan.slices);
  }

  template <typename Tell>
  void both(Tell tell) {
    tell(static_cast<core::EngineJournal&>(written_));
    tell(static_cast<core::EngineJournal&>(value_));
  }

  EngineMemory found() {
    auto next = RecordLog::adopt(dup(log_.fd()));
    EXPECT_TRUE(next);
    auto memory = read_engine_log(*next);
    EXPECT_TRUE(memory) << memory.error();
    return memory ? std::move(*memory) : EngineMemory();
  }

  RecordLog log_;
  KeptSlices kept_;
  ToldOutcomes told_;
  EngineLog written_{&log_, &kept_, &told_};
  core::EngineRecord value_;
  core::Op op_;
};

TEST_F(EngineLogTest, SaysWhatTheEngineSaid) {
  both([&](auto& journal) { journal.begin(some_record()); });
  EXPECT_EQ(found().record, value_);
  for (uint32_t rank : {1u, 0u}) {
    both([&](auto& journal) {
      journal.submitted(op_, submission(rank, 40 + rank, op_.key), {rank, std::nullopt, 1, 0});
    });
  }
  EXPECT_EQ(found().record, value_);
  EXPECT_EQ(found().record.ops.at(op_.key).locals.size(), 2u);
  both([&](auto& journal) { journal.held(op_, 2, {1, 3}, {core::Staging::Kind::kSlot, 9}); });
  EXPECT_EQ(found().record, value_);
  op_.slices[2].kept = kept_.keep(std::vector<std::byte>(5000));
  ASSERT_TRUE(op_.slices[2].kept);
  both([&](auto& journal) { journal.kept(op_, 2); });
  EXPECT_EQ(found().record, value_);
  const EngineMemory memory = found();
  EXPECT_EQ(memory.places.at(*op_.slices[2].kept).length, 5000u);
  both([&](auto& journal) { journal.held(op_, 0, {1, 3}, {core::Staging::Kind::kStart, 1}); });
  both([&](auto& journal) { journal.dropped(op_, 0); });
  both([&](auto& journal) { journal.elsewhere(op_, 1, {1, 3}); });
  EXPECT_EQ(found().record, value_);
  EXPECT_EQ(found().record.ops.at(op_.key).slices[1].state, core::SliceState::kDropped);
  EXPECT_FALSE(found().landing) << "nothing is copied for it";
  op_.outcome = {1, 3};
  both([&](auto& journal) { journal.decided(op_); });
  EXPECT_EQ(found().record, value_);
  EXPECT_EQ(found().record.ops.at(op_.key).outcome, op_.outcome);
  op_.state = core::OpState::kCompleted;
  op_.signature = kSum;
  both([&](auto& journal) { journal.ended(op_); });
  EXPECT_EQ(found().record, value_);
  EXPECT_TRUE(found().record.ended_keys.contains(op_.key));
  both([&](auto& journal) { journal.local({1, some_failure(), 5, 2}); });
  both([&](auto& journal) { journal.forgotten(op_.key); });
  EXPECT_EQ(found().record, value_);
  EXPECT_TRUE(found().record.ops.empty());
}

TEST_F(EngineLogTest, UnevenBlocksAreKnownAgain) {
  both([&](auto& journal) { journal.begin(some_record()); });
  core::Submission gather = submission(1, 41, op_.key);
  gather.signature = {Collective::kAllgather, Dtype::kFloat32, ReduceOp::kNone, 0, 900, 3};
  gather.signature.blocks = *Blocks::of_ranks({900, 0, 4});
  gather.prescale = 1;
  both([&](auto& journal) { journal.submitted(op_, gather, {1, std::nullopt, 1, 0}); });
  const core::EngineRecord record = found().record;
  EXPECT_EQ(record, value_);
  const Blocks& blocks = record.ops.at(op_.key).locals.front().signature.blocks;
  ASSERT_TRUE(blocks.known());
  EXPECT_EQ(blocks.total(), 904u);
}

TEST_F(EngineLogTest, AFailedOpIsRememberedAsSuch) {
  both([&](auto& journal) { journal.begin(some_record()); });
  op_.state = core::OpState::kFailed;
  op_.signature = kSum;
  op_.failure = some_failure();
  both([&](auto& journal) { journal.ended(op_); });
  EXPECT_EQ(found().record, value_);
  EXPECT_EQ(found().record.failed.front().second, some_failure());
}

TEST_F(EngineLogTest, BeginsAnewWithAllThereIs) {
  core::EngineRecord whole = some_record(4);
  whole.ended_keys.insert_interval(0, 0, 5);
  whole.failed.emplace_back(OpKey{0, 3}, some_failure());
  core::OpFate fate;
  fate.key = {9, 1};
  fate.kind = core::OpFate::Kind::kFresh;
  fate.expected = 3;
  whole.carried[fate.key] = fate;
  core::OpRecord& op = whole.ops[op_.key] = core::head_of(op_);
  op.add(submission(0, 3, op_.key));
  op.slice_bytes = 1024;
  const uint32_t number = kept_.keep(std::vector<std::byte>(1024)).value();
  op.slices = {{core::SliceState::kUntouched, {}, std::nullopt},
               {core::SliceState::kHeld, {3, 2}, number},
               {core::SliceState::kDropped, {4, 3}, std::nullopt}};
  told_[1001][2].verdict = Verdict::kOkShrunk;
  written_.begin(whole);
  const EngineMemory memory = found();
  EXPECT_EQ(memory.record, whole);
  EXPECT_EQ(memory.told.at(1001).at(2).verdict, Verdict::kOkShrunk);
  EXPECT_EQ(memory.places.count(number), 1u);
}

TEST_F(EngineLogTest, BeginsAnewTwiceInARow) {
  const core::EngineRecord guest = some_record(0);
  written_.begin(guest);
  EXPECT_EQ(found().record, guest) << "it waits to be taken in";
  core::EngineRecord next = some_record(34);
  next.ended_keys.insert_interval(0, 0, 5);
  written_.begin(next);
  EXPECT_EQ(found().record, next);
  written_.begin(next);
  EXPECT_EQ(found().record, next) << "nothing of the one before is left in it";
}

TEST_F(EngineLogTest, KnowsOfASliceThatWasBeingCopied) {
  both([&](auto& journal) { journal.begin(some_record()); });
  both([&](auto& journal) {
    journal.submitted(op_, submission(0, 40, op_.key), {0, std::nullopt, 1, 0});
  });
  both([&](auto& journal) { journal.held(op_, 1, {1, 3}, {core::Staging::Kind::kStart, 2}); });
  const EngineMemory torn = found();
  ASSERT_TRUE(torn.landing);
  EXPECT_EQ(torn.landing->key, op_.key);
  EXPECT_EQ(torn.landing->slice, 1u);
  EXPECT_EQ(torn.landing->from, (core::Staging{core::Staging::Kind::kStart, 2}));
  written_.landed();
  EXPECT_FALSE(found().landing);
}

TEST_F(EngineLogTest, RemembersWhatWasToldUntilItIsTakenIn) {
  written_.begin(some_record());
  core::Outcome outcome;
  outcome.verdict = Verdict::kFailed;
  outcome.failure = some_failure();
  outcome.epoch = 3;
  written_.told(1001, 44, outcome);
  const EngineMemory memory = found();
  EXPECT_EQ(memory.told.at(1001).at(44).failure, some_failure());
  EXPECT_EQ(memory.told.at(1001).at(44).epoch, 3u);
  written_.begin(some_record());  // `told_` has it no more
  EXPECT_TRUE(found().told.empty());
}

TEST_F(EngineLogTest, WhatItDoesNotUnderstandIsAnErrorInWords) {
  EXPECT_FALSE(read_engine_log(log_)) << "nothing was begun";
  written_.begin(some_record());
  wire::EngineEntry later;  // of a version with other fields
  log_.append(later);
  const auto memory = read_engine_log(log_);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error(), "entry 2 of its record cannot be understood");
}

TEST(RecordWireTest, AJobIsReadAsItWasWritten) {
  core::JobRecord job;
  job.view = some_view(3);
  job.token = "launch";
  job.since = 77;
  job.local = {{1001, 0, 0, 10, 100, true}, {1002, 1, 1, 11, 101, false}};
  job.lost = {{1, some_failure()}};
  job.done = {"b"};
  job.acceptor.epoch = 3;
  job.acceptor.promised = {2, "b"};
  job.acceptor.accepted = core::Vote{{2, "b"}, {some_view(4), {}}};
  core::Report& report = job.acceptor.report.emplace();
  report.node = "a";
  report.ranks = {{0, 0, 10, 100, 1}};
  report.condemned = {{{0, 7}, {some_failure(), "b"}}};
  job.acceptor.last_commit =
      core::change::Commit{job.view.incarnation, 3, {1, "a"}, {some_view(3), {}}};
  wire::JobRecord wire;
  to_wire(job, &wire);
  core::JobRecord read;
  ASSERT_TRUE(from_wire(wire, &read));
  EXPECT_EQ(read, job);
}

}  // namespace
}  // namespace gradring::daemon
