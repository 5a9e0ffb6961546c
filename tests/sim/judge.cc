// Whether what a trainer was told may be.

#include <algorithm>

#include "proto/policy.h"
#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

// Who asks in vain waits up to 5 s before it asks again, and others may be before it then.
constexpr Time kAgreesWithin = 7 * core::kSecond;

}  // namespace

bool World::has_fault(FaultKind kind) const {
  return std::any_of(scenario_.faults.begin(), scenario_.faults.end(),
                     [kind](const Fault& fault) { return fault.kind == kind; });
}

// Ranks may have been lost, of those that somebody else waits for: whose job has failed ends as
// well.
bool World::ranks_missing() const {
  return struck() || stats_.jobs_failed > 0 ||
         std::any_of(scenario_.jobs.begin(), scenario_.jobs.end(),
                     [](const JobSpec& job) { return !job.early_leavers.empty(); });
}

// Somebody made its buffers for ranks that were lost meanwhile.
void World::op_mismatched(const Trainer& trainer, const OpId& id, const Signature& signature) {
  if (was_mismatched(id) || (needs_all_ranks(signature.collective) && ranks_missing())) return;
  violation(trainer.name() + ": mismatch that nobody made");
}

void World::op_failed(const Trainer& trainer, const Signature& signature, const Failure& failure) {
  const bool may_fail =
      signature.collective == Collective::kBroadcast || needs_all_ranks(signature.collective);
  if (!may_fail || !ranks_missing()) {
    violation(trainer.name() + ": an op failed without a cause: " + describe(failure));
  }
}

void World::op_corrupted(const Trainer& trainer, const Failure& failure) {
  if (!has_fault(FaultKind::kDamage)) {
    violation(trainer.name() + ": damage that nobody did: " + describe(failure));
  }
}

void World::job_failed(const Trainer& trainer, const Failure& failure) {
  ++stats_.jobs_failed;
  bool planned = false;
  switch (failure.cause) {
    case Cause::kTrainerDied:
      planned = has_fault(FaultKind::kKillTrainer) || has_fault(FaultKind::kCrashNode) ||
                has_fault(FaultKind::kDieSpeaking) || has_fault(FaultKind::kStop) ||
                (trainer.within() && failure.blame.evidence == "left while the job formed");
      break;
    case Cause::kPeerLost:
    case Cause::kPeerSilent:
    case Cause::kExcluded:
    case Cause::kNoQuorum:
      planned = struck();
      break;
    case Cause::kDeadline:
      planned = trainer.spec().op_deadline.has_value();
      judge_expired(trainer, failure);
      break;
    case Cause::kDrained:
      planned = has_fault(FaultKind::kStop);
      break;
    case Cause::kCorrupted:
      planned = has_fault(FaultKind::kDamage);
      break;
    case Cause::kTrainerLeft:
      // Who comes back to a job and had done all before leaves it at once.
      planned = struck() || trainer.life() > 1 ||
                std::any_of(scenario_.jobs.begin(), scenario_.jobs.end(),
                            [](const JobSpec& j) { return !j.early_leavers.empty(); });
      break;
    default:
      break;
  }
  if (!planned) violation(trainer.name() + " failed without a cause: " + describe(failure));
  if (failure.cause == Cause::kNoQuorum && had_quorum(trainer)) {
    violation("P4: " + trainer.name() + " gave up although there is a quorum of the last view");
  }
}

// A job that can be no more is refused at once, and only then.
void World::group_refused(const Trainer& trainer, const Status& why) {
  const GroupSpec& group = *trainer.spec().within;
  if (why.code() == Code::kDeadlineExceeded) {
    std::string text = "P4: " + trainer.name() + " waits in vain: " + why.message();
    for (const uint32_t rank : group.ranks) {
      const Trainer& outer = *trainers_of_job_[group.outer][rank];
      text +=
          "\n    " + outer.name() + " on n" + std::to_string(outer.node()) + ": " + outer.doing();
    }
    if (group.timeout == 0) violation(text);
    return;
  }
  const bool whole = std::ranges::all_of(group.ranks, [&](uint32_t rank) {
    const Trainer& outer = *trainers_of_job_[group.outer][rank];
    return outer.state() == Trainer::State::kTraining && outer.job_id() == trainer.within()->job;
  });
  // Of another rank that waits less.
  const bool in_vain =
      group.timeout != 0 && why.message().find("time ran out while forming") != std::string::npos;
  if (whole && !in_vain && !ranks_missing())
    violation(trainer.name() + " was refused: " + why.message());
}

void World::job_refused(const Trainer& trainer, const Status& why) {
  ++stats_.refused;
  if (trainer.within()) return group_refused(trainer, why);
  // In a second life the ranks that had left in good order do not come back, and the others wait in
  // vain.
  if (!struck() && trainer.life() == 1)
    violation(trainer.name() + " was refused without a fault: " + why.message());
}

// P4: whether this trainer is in the last view of its job, enough of the others in it live and can
// be reached for long enough to agree on the next one, and the view is known to one of them or to
// somebody whom they could ask.
bool World::had_quorum(const Trainer& trainer) const {
  const JobId& job = trainer.job_id();
  const core::View* last = oracle_.last_view(job);
  if (last == nullptr || last->closed || !last->has(trainer.rank())) return false;
  if (!parse_policy(last->policy)->elastic) return false;
  if (last->info_of(trainer.rank()).pid != static_cast<int64_t>(trainer.session())) return false;
  const uint32_t self = trainer.node();
  const Time before = events_.now() - kAgreesWithin;
  const auto reached = [&](uint32_t node) {
    return node == self ||
           (nodes_[node]->alive() && !nodes_[node]->paused() && nodes_[node]->woken() < before &&
            reaches(self, node) && link(self, node).disturbed < before);
  };
  std::vector<std::string> votes;
  for (const core::Member& member : last->members) {
    const uint32_t node = index_of(member.node);
    const auto epoch = known_.find({job, node});  // none in another life
    const bool takes_part =
        nodes_[node]->testifies(job) ||
        (nodes_[node]->has_engine(job) && epoch != known_.end() && epoch->second > 0);
    if (reached(node) && takes_part && (node == self || left_.count({job, node}) == 0)) {
      votes.push_back(member.node);
    }
  }
  bool known = false;
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    const auto epoch = known_.find({job, node});
    known = known || (reached(node) && epoch != known_.end() && epoch->second >= last->epoch);
  }
  return known && core::is_quorum(*last, votes);
}

}  // namespace gradring::sim
