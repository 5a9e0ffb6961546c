// Ops past their deadlines: who says so when, and whose fault it is.

#include <algorithm>

#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

// In which what is said arrives, and whoever knows more has spoken first.
constexpr Time kCalm = 2 * core::kSecond;
// From a deadline, or since the daemon is back, until the trainer knows: the time that daemons give
// one another to speak, and a restart of theirs that takes long.
constexpr Time kToldWithin = 20 * core::kSecond;

std::vector<std::string> titles_of(const OpKey& key) {
  std::vector<std::string> titles{describe(key) + " ("};
  if (key.space >= 1000) {
    titles.push_back("op 'op" + std::to_string(key.space - 1000) + "' use " +
                     std::to_string(key.sequence) + " (");
  }
  return titles;
}

}  // namespace

core::EngineOptions World::options_of(const std::string& job) const {
  core::EngineOptions options = scenario_.engine;
  for (const JobSpec& spec : scenario_.jobs) {
    if (spec.name == job) options.op_deadline = spec.op_deadline.value_or(options.op_deadline);
  }
  return options;
}

std::optional<Time> World::submitted(const KeyUse& use, uint32_t rank) const {
  const auto of = submitted_.find(use);
  if (of == submitted_.end()) return std::nullopt;
  const auto at = of->second.find(rank);
  if (at == of->second.end()) return std::nullopt;
  return at->second;
}

// For long enough nothing has happened to the ways between these two, and both are in one epoch.
bool World::calm(uint32_t a, uint32_t b, const JobId& job) const {
  const Time before = events_.now() - kCalm;
  const SimJob* const jobs[] = {nodes_[a]->job(job), nodes_[b]->job(job)};
  for (const SimJob* of : jobs) {
    if (of == nullptr || of->engine().frozen() || of->engine().failed()) return false;
    if (of->entered() > before) return false;
  }
  if (jobs[0]->engine().view().epoch != jobs[1]->engine().view().epoch) return false;
  if (is_relayed(a, b) && !relays_calm(10 * core::kSecond)) return false;
  return std::ranges::all_of(std::array{std::pair(a, b), std::pair(b, a)}, [&](const auto& way) {
    const Link& l = link(way.first, way.second);
    const bool lane = l.broken && !l.avoids;
    const SimNode& node = *nodes_[way.first];
    const bool awake = node.alive() && !node.paused() && node.woken() < before;
    return awake && (a == b || (l.up && l.open && !lane && l.disturbed < before));
  });
}

void World::op_expired(const SimNode& node, const SimJob& job, const Failure& failure) {
  ++stats_.expired;
  const core::View& view = job.engine().view();
  const std::string& evidence = failure.blame.evidence;
  const auto wrong = [&](const std::string& what) {
    violation(node.name() + " gives up an op of " + view.job + " " + what + ": " +
              describe(failure));
  };
  const auto use = std::ranges::find_if(submitted_, [&](const auto& entry) {
    if (entry.first.job != view.incarnation || entry.first.grown != view.grown) return false;
    const auto titles = titles_of(entry.first.key);
    return std::ranges::any_of(titles, [&](const auto& t) { return evidence.starts_with(t); });
  });
  // Whom the last view is without speaks for nobody else.
  const core::View* const last = oracle_.last_view(view.incarnation);
  const bool stale = last != nullptr && last->epoch > view.epoch && !last->index_of(node.name());
  const auto known = expired_.try_emplace({view.incarnation, describe(failure)}, stale).first;
  known->second = known->second && stale;
  if (use == submitted_.end()) return;  // a join, or a join point
  const auto& ranks = use->second;
  Time first = events_.now();
  for (const auto& [rank, at] : ranks) first = std::min(first, at);
  if (events_.now() - first < options_of(view.job).op_deadline) wrong("too early");
  // What was handed in just now is still on its way.
  const auto has = [&](uint32_t rank, Time ago) {
    const auto at = ranks.find(rank);
    return at != ranks.end() && at->second < events_.now() - ago;
  };
  if (failure.blame.rank != kNoRank) {
    ++stats_.expired_names_rank;
    const bool never = evidence.ends_with("never submitted it");
    // A real daemon looks at its mail before it says so; ranks come back to one that restarted.
    const bool awake = events_.now() - node.woken() > 50 * core::kMillisecond;
    const Trainer* const trainer = trainer_of(static_cast<core::SessionId>(failure.blame.pid));
    const bool lives = trainer->state() != Trainer::State::kDead &&
                       trainer->session() == static_cast<core::SessionId>(failure.blame.pid);
    if (never && awake && lives && has(failure.blame.rank, 5 * core::kMillisecond)) {
      wrong("for a rank that has submitted it");
    }
    return;
  }
  const uint32_t blamed = index_of(failure.blame.node);
  if (evidence.ends_with("what is missing comes from this node")) {
    // There is much to exchange, of this op or before it, and nothing stands still.
    const auto arrived = arrived_.find(view.incarnation);
    const Time before = events_.now() - kCalm;
    if (arrived != arrived_.end() && arrived->second > before) return;
    const bool all_calm = std::ranges::all_of(view.members, [&](const core::Member& a) {
      return std::ranges::all_of(view.members, [&](const core::Member& b) {
        return calm(index_of(a.node), index_of(b.node), view.incarnation);
      });
    });
    const bool long_ago = std::ranges::all_of(view.members, [&](const core::Member& member) {
      return std::ranges::all_of(member.ranks,
                                 [&](const auto& info) { return has(info.rank, kCalm); });
    });
    if (all_calm && long_ago) wrong("that nothing keeps from ending");
    return;
  }
  if (job.engine().view().members.size() > scenario_.engine.ready_tree_above) return;
  if (!calm(node.index(), blamed, view.incarnation)) return;
  // Since when an op waits it looks after it has heard of it, and what it heard of an epoch that it
  // had not entered waits as well.
  const Time entered = nodes_[blamed]->job(view.incarnation)->entered();
  if (nodes_[blamed]->woken() > first || entered > job.entered() + core::kSecond / 2) return;
  const core::Member& member = view.members[*view.index_of(failure.blame.node)];
  // By what its own ranks did it is not that late, if it has missed that others did so before.
  const bool began_later = std::ranges::any_of(member.ranks, [&](const auto& info) {
    const auto at = ranks.find(info.rank);
    return at != ranks.end() && at->second > first + core::kSecond / 2;
  });
  if (began_later) return;
  const auto late =
      std::ranges::find_if(member.ranks, [&](const auto& info) { return !has(info.rank, kCalm); });
  wrong(late == member.ranks.end()
            ? "for a node whose ranks have submitted it"
            : "for a node that could name rank " + std::to_string(late->rank));
}

// A member that knows of no later view believes one that this leaves out, and is believed itself.
void World::note_failed(const SimNode& node, const JobId& job, const Failure& failure) {
  const core::View* const last = oracle_.last_view(job);
  const auto known = expired_.find({job, describe(failure)});
  if (last == nullptr || known == expired_.end() || !last->index_of(node.name())) return;
  if (known_[{job, node.index()}] < last->epoch) known->second = false;
}

// That somebody who is no member any more has given up an op is no member's concern.
void World::judge_expired(const Trainer& trainer, const Failure& failure) {
  const core::View* const last = oracle_.last_view(trainer.job_id());
  if (last == nullptr || !last->has(trainer.rank())) return;
  if (last->info_of(trainer.rank()).pid != static_cast<int64_t>(trainer.session())) return;
  const auto known = expired_.find({trainer.job_id(), describe(failure)});
  if (known != expired_.end() && known->second) {
    violation(trainer.name() + " ends with who was left out: " + describe(failure));
  }
}

// Whoever waits is told not long after the deadline.
void World::check_in_time() {
  for (const auto& trainer : trainers_) {
    const std::optional<Time> deadline = trainer->spec().op_deadline;
    const SimNode& node = *nodes_[trainer->node()];
    if (!deadline || !trainer->attached() || !node.alive() || node.paused()) continue;
    const std::optional<Time> since = trainer->waits_since();
    if (since && events_.now() - std::max(*since + *deadline, node.woken()) > kToldWithin) {
      violation("P4: " + trainer->name() + " waits for an op past its deadline: " + node.doing());
    }
  }
}

}  // namespace gradring::sim
