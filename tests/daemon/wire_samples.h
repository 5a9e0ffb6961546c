#pragma once

#include <vector>

#include "daemon/core/messages.h"

namespace gradring::daemon {

// No field has the value that it would have if nobody had written or read it.
inline JobId sample_job() {
  JobId id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<uint8_t>(0xf0 + i);
  return id;
}

inline Failure sample_failure(uint32_t rank) {
  return {Cause::kCorrupted, {rank, "node b", 4711, "eth0", "killed by signal 9"}};
}

inline core::View sample_view() {
  core::View view;
  view.job = "resnet";
  view.incarnation = sample_job();
  view.epoch = 7;
  view.size = 3;
  view.policy = "elastic min=2 max=8";
  view.uid = 1000;
  view.members = {{"b", {{1, 0, 4711, 11, 2}, {6, 1, 4712, 12, 7}}}, {"a", {{4, 2, 900, 13, 1}}}};
  view.grown = 6;
  view.closed = sample_failure(2);
  view.explanation = "epoch 7: too few are left";
  view.tuning.classes = {{6, {core::Choice::Way::kParts, 0}, {}},
                         {11,
                          {core::Choice::Way::kRing, 64 << 10},
                          core::Choice{core::Choice::Way::kRing, 128 << 10}}};
  view.tuning.fixed = true;
  return view;
}

inline core::Report sample_report() {
  constexpr uint64_t kCount = 10000;  // 40,000 bytes: 10 slices of 4 KiB, the last one short
  core::OpReport moving;
  moving.key = {0, 12};
  moving.name = "layer1.weight";
  moving.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kAverage, 0, kCount};
  moving.contributions = 2;
  moving.expected = 4;
  moving.slice_bytes = 4096;
  moving.slices = {{6, core::SliceState::kDropped, {6, 4}},
                   {1, core::SliceState::kHeld, {7, 3}},
                   {3, core::SliceState::kUntouched, {}}};
  core::OpReport complete;
  complete.key = {0, 13};
  complete.name = "end of step";
  complete.signature = {Collective::kBarrier, Dtype::kUint8, ReduceOp::kNone, 0, 0};
  complete.completed = true;
  complete.contributions = 2;
  complete.expected = 3;
  complete.outcome = {7, 3};
  core::OpReport gathering;
  gathering.key = {77, 1};
  gathering.root_here = true;

  core::Report report;
  report.node = "b";
  report.ops = {moving, complete, gathering};
  for (uint64_t sequence = 0; sequence < 12; ++sequence) report.ended.insert({0, sequence});
  report.ended.insert({0, 13});
  report.ended.insert({UINT64_MAX, UINT64_MAX});
  report.failed = {{{0, 5}, sample_failure(kNoRank)}, {{9, 0}, sample_failure(3)}};
  core::Condemned& named = report.condemned[{0, 13}];
  named.failure = sample_failure(kNoRank);
  named.receiver = "c";
  report.condemned[{4, 1}].receiver = "a";
  report.ranks = {{1, 0, 4711, 11, 2}, {6, 1, 4712, 12, 6}};
  report.lost = {{5, sample_failure(5)}, {2, sample_failure(2)}};
  report.reachable = {"a", "c"};
  report.wants_out = true;
  return report;
}

inline core::Proposal sample_proposal() {
  core::OpFate recover;
  recover.key = {0, 12};
  recover.kind = core::OpFate::Kind::kRecover;
  recover.expected = 4;
  recover.slice_bytes = 4096;
  recover.root_node = "a";
  recover.spared = true;
  recover.slices = {{6, core::Route::kNone, 0, {6, 4}},
                    {1, core::Route::kHand, 1, {7, 3}},
                    {3, core::Route::kCompute, 0, {}}};
  core::OpFate complete;
  complete.key = {0, 13};
  complete.kind = core::OpFate::Kind::kComplete;
  complete.expected = 3;
  complete.outcome = {7, 3};
  core::OpFate failed;
  failed.key = {0, 14};
  failed.kind = core::OpFate::Kind::kFail;
  failed.failure = sample_failure(0);
  core::OpFate fresh;
  fresh.key = {77, 1};
  fresh.root_node = "b";
  return {sample_view(), std::vector{recover, complete, failed, fresh}};
}

// At least one of each alternative.
inline std::vector<core::JobMessage> sample_messages() {
  const JobId job = sample_job();
  const core::Ballot ballot = {9, "a"};
  core::View open = sample_view();
  open.closed.reset();
  core::change::Promise voted{job, 6, ballot, std::nullopt, sample_report()};
  core::Vote& vote = voted.accepted.emplace();
  vote.ballot = {8, "b"};
  vote.proposal = sample_proposal();
  return {
      core::Claims{
          "resnet", "token", 5, 1000, 8, "elastic", true, {{1, 2, 3, 4, 1}, {7, 6, 5, 4, 1}}},
      core::Propose{"token", open, 6},
      core::Accept{job, 6},
      core::Reject{job, "has other claims"},
      core::Commit{job},
      core::JobFailed{job, 6, sample_failure(3)},
      core::JobDone{job, true, 6},
      core::Left{job, sample_failure(kNoRank), 6},
      core::Unwelcome{"resnet", "token", "it runs already, with another policy"},
      core::change::Prepare{job, 6, ballot, true},
      core::change::Promise{job, 6, ballot, std::nullopt, sample_report()},
      voted,
      core::change::Accept{job, 6, ballot, sample_proposal()},
      core::change::Accepted{job, 6, ballot},
      core::change::Commit{job, 7, ballot, sample_proposal()},
      core::change::Refuse{job, 6, ballot},
      core::change::Ask{job, 6},
  };
}

}  // namespace gradring::daemon
