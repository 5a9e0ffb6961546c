// How an epoch of a job ends on this node, and the next one begins.

#include <fmt/format.h>

#include <utility>

#include "daemon/clock.h"
#include "daemon/data/job_executor.h"

namespace gradring::daemon {
namespace {

constexpr uint32_t kSlicesAtOnce = 64;

}  // namespace

void JobExecutor::freeze(uint64_t epoch) {
  to_freeze_.reset();
  if (engine_.view().epoch != epoch || engine_.failed()) return;
  // What GPUs are overwriting is to be final, and known to be.
  if (!gpu_ops_.come_to_rest()) {
    to_freeze_ = {epoch, monotonic_now()};
    return;
  }
  const bool alone =
      engine_.view().members.size() == 1;  // else they overwrite nothing by themselves
  while (alone && !gpu_ops_.empty() && engine_.pump(kSlicesAtOnce) > 0) continue;
  shared_->events->post(JobFrozen{id(), epoch, std::make_shared<core::Report>(engine_.freeze())});
}

void JobExecutor::freeze_when_at_rest() {
  if (!to_freeze_) return;
  const auto [epoch, since] = *to_freeze_;
  freeze(epoch);
  if (!to_freeze_) return;
  to_freeze_->since = since;
  if (monotonic_now() - since >= shared_->gpus_rest_within) {
    give_up_gpus("the view cannot change before");
  }
}

void JobExecutor::look_at_gpus(core::Time now) {
  const transport::Gpus* const gpus = shared_->gpus.gpus();
  // Whatever is broken tells nobody by itself: what is under way may never end.
  if (gpus != nullptr && gpu_ops_.under_way()) {
    if (const Status fault = gpus->fault(); !fault.ok()) gpu_ops_.fail(fault);
  }
  if (gpu_ops_.hang(now, shared_->gpus_rest_within)) give_up_gpus("an op is over but for that");
}

void JobExecutor::give_up_gpus(std::string_view what_waits) {
  if (gpu_ops_.gave_up()) return;
  gpu_ops_.give_up(
      {Code::kUnavailable,
       fmt::format("it has not ended within {:g} s what it was given, and {}; see nvidia-smi and "
                   "the kernel's log",
                   static_cast<double>(shared_->gpus_rest_within) / core::kSecond, what_waits)});
}

void JobExecutor::adopt(const core::Proposal& proposal, core::Time now) {
  if (engine_.failed()) return;
  engine_.tick(now);  // one of a daemon that has just restarted knows no time yet
  told_drained_ = false;
  feedback_.clear();
  settle();
  gpu_ops_.end_epoch(&engine_);
  // The engine speaks to the new members from inside adopt(), so they must be known before.
  peer_of_.clear();
  for (const core::Member& member : proposal.view.members) {
    peer_of_.push_back(shared_->peers.by_node(member.node));
  }
  // It counts from 0 again for a rank that comes in.
  for (LocalRank& local : locals_) local.submitted_before += engine_.submitted(local.rank);
  engine_.adopt(proposal);
  for (LocalRank& local : locals_) local.submitted_before -= engine_.submitted(local.rank);
  parts_.begin_epoch();
  meet_members();
  for (const auto& [from, frame] : gate_.take_waiting()) on_frame(from, frame, now);
  settle();
}

}  // namespace gradring::daemon
