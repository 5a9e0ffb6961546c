// How a job begins on this node: anew, or where the last life of the daemon left it (rule R1).

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/clock.h"
#include "daemon/data/job_executor.h"

namespace gradring::daemon {
namespace {

// Copies that some slice still has.
KeptPlaces places_in_use(const EngineMemory& before) {
  KeptPlaces used;
  for (const auto& [key, op] : before.record.ops) {
    for (const core::SliceRecord& slice : op.slices) {
      if (slice.kept) used[*slice.kept] = before.places.at(*slice.kept);
    }
  }
  return used;
}

}  // namespace

JobExecutor::JobExecutor(InstallJob install, const core::EngineOptions& options,
                         StagingMemory staging, uint64_t kept_max, uint64_t feedback_max,
                         DataShared* shared)
    : shared_(shared),
      staging_(std::move(staging)),
      engine_(std::move(install.view), install.me, options, this),
      memory_(std::move(install.memory)),
      checksum_(options.checksum),
      checksums_(options.slots, options.start_buffers),
      arriving_(options.slots),
      steps_(monotonic_now()),
      feedback_(feedback_max),
      gpu_orders_(&shared->gpus, this,
                  [this](const GpuWork& work, GpuTask task, uint64_t bytes) {
                    flight_->gpu_began(work.key, work.number, task, bytes);
                  }),
      gpu_ops_(
          &gpu_orders_,
          [this](uint32_t rank, uint64_t ticket, const core::Outcome& outcome) {
            tell_end(rank, ticket, outcome);
          },
          [this](const std::string& why) { gpu_failed(why); }) {
  if (memory_) {
    const KeptPlaces places = install.before ? places_in_use(*install.before) : KeptPlaces();
    kept_ = std::make_unique<KeptSlices>(std::move(memory_->kept), places);
    log_.emplace(&memory_->log, kept_.get(), &told_);
  } else {
    kept_ = std::make_unique<KeptSlices>(kept_max);
  }
  meet_members();
  if (install.before) go_on_from(*install.before, install.lent);
  if (!log_) return;
  engine_.write_to(&*log_);
  log_->begin(engine_.record());
}

Status JobExecutor::have_memory(std::unique_ptr<transport::Registration> pinned,
                                const Lanes& lanes) {
  awaits_memory_ = false;
  staging_.keep_pinned(std::move(pinned));
  return engine_.failed() ? Status() : staging_.make_ready(lanes);
}

void JobExecutor::let_ride(std::unique_ptr<GpuStaging> staging) {
  awaits_ride_ = false;
  if (staging == nullptr) return;
  gpu_ops_.let_ride(staging->gpus());
  gpu_ring_ = std::make_unique<GpuRing>(std::move(staging), &gpu_orders_, &gpu_ops_);
}

std::unique_ptr<JobExecutor::MemoryOfGpus> JobExecutor::take_memory_of_gpus() {
  if (gpu_ring_ == nullptr && !staging_.pinned()) return nullptr;
  auto taken = std::make_unique<MemoryOfGpus>(MemoryOfGpus{std::move(staging_), nullptr});
  taken->host.leave_transports();
  if (gpu_ring_ == nullptr) return taken;
  taken->theirs = gpu_ring_->take_staging();
  taken->theirs->leave_transports();
  return taken;
}

void JobExecutor::go_on_from(const EngineMemory& before,
                             const std::vector<InstallJob::Lent>& lent) {
  for (const core::LocalRecord& known : before.record.locals) {
    const bool here = std::any_of(locals_.begin(), locals_.end(),
                                  [&](const LocalRank& l) { return l.rank == known.rank; });
    if (!here) locals_.push_back({known.rank, 0, 0, {}});
  }
  for (const InstallJob::Lent& l : lent) {
    local(l.rank).session = l.session;
    Lent& known = local(l.rank).lent[l.ticket];
    known = {l.session, l.key, l.input, l.output};
    known.since = monotonic_now();  // when it was submitted the last daemon knew
  }
  told_ = before.told;
  engine_.restore(before.record);
  // When each submitted last the last daemon knew; it was before now.
  for (LocalRank& known : locals_) {
    if (engine_.submitted(known.rank) > 0) known.last_submission = monotonic_now();
  }
  count_again(lent);
  if (!before.landing) return;
  // Half of the slice may have been copied; its value lies where it came from.
  const core::Op* const op = engine_.find(before.landing->key);
  if (op != nullptr && op->open()) deliver(*op, before.landing->slice, before.landing->from);
}

// What they are the engine's record says.
void JobExecutor::count_again(const std::vector<InstallJob::Lent>& lent) {
  for (const InstallJob::Lent& l : lent) {
    const core::Op* const op = engine_.find(l.key);
    const auto known = local(l.rank).lent.find(l.ticket);
    if (op == nullptr || !op->signature || known == local(l.rank).lent.end()) continue;
    known->second.collective = op->signature->collective;
    known->second.bytes = op->signature->bytes();
  }
}

void JobExecutor::remember_told(SessionId session, uint64_t ticket, const core::Outcome& outcome) {
  constexpr size_t kMost = 65536;  // who never says what it has seen will not be told again
  auto& ends = told_[session];
  if (ends.size() >= kMost) ends.erase(ends.begin());
  ends[ticket] = outcome;
  log_->told(session, ticket, outcome);
}

}  // namespace gradring::daemon
