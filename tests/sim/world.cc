#include "tests/sim/world.h"

#include <algorithm>
#include <stdexcept>

#include "daemon/core/planted.h"
#include "tests/sim/arithmetic.h"
#include "tests/sim/reference.h"

namespace gradring::sim {
namespace {

// Everything must have ended long before: formation gives up after 300 s, an elastic job without a
// quorum after 60 s, lost peers are known after 4 s.
constexpr Time kEnd = 1500 * core::kSecond;
// Thirty times what a run of 64 nodes takes.
constexpr uint64_t kEventsMax = 3'000'000;

constexpr Time kTick = 250 * core::kMillisecond;

}  // namespace

World::World(const Scenario& scenario)
    : scenario_(scenario),
      random_(scenario.seed),
      oracle_(scenario.engine.stable_completion,
              [this](const std::string& what) { violation(what); }) {
#ifdef GRADRING_PLANTED_BUGS
  core::planted_bug = scenario.bug;
#endif
  links_.resize(size_t{scenario_.nodes} * scenario_.nodes);
  if (scenario_.links_max != 0) {
    std::vector<std::string> addresses;
    for (uint32_t i = 0; i < scenario_.nodes; ++i) addresses.push_back(address_of(i));
    overlay_.emplace(std::move(addresses), scenario_.links_max);
  }
  for (uint32_t i = 0; i < scenario_.nodes; ++i)
    nodes_.push_back(std::make_unique<SimNode>(this, i, 0));
  for (uint32_t a = 0; a < scenario_.nodes; ++a) {
    for (uint32_t b = a + 1; b < scenario_.nodes; ++b) {
      if (!is_relayed(a, b)) connect(a, b);
    }
  }
  for (uint32_t j = 0; j < scenario_.jobs.size(); ++j) {
    trainers_of_job_.emplace_back();
    for (uint32_t r = 0; r < scenario_.jobs[j].node_of_rank.size(); ++r) {
      trainers_.push_back(std::make_unique<Trainer>(this, j, r));
      trainers_of_job_.back().push_back(trainers_.back().get());
      if (const auto& within = scenario_.jobs[j].within) {
        trainers_of_job_[within->outer][within->ranks[r]]->take_part_in(trainers_.back().get());
        continue;
      }
      events_.in(scenario_.begins + delay(60 * core::kMillisecond),
                 [t = trainers_.back().get()] { t->start(); });
    }
  }
  for (const Fault& fault : scenario_.faults) {
    events_.at(scenario_.begins + fault.at, [this, fault] { strike(fault); });
  }
  for (const Retune& retune : scenario_.retunes) {
    events_.at(scenario_.begins + retune.at,
               [this, retune] { nodes_[retune.node]->retune(retune.tuning); });
  }
  events_.in(kTick, [this] { keep_ticking(); });
}

World::~World() {
#ifdef GRADRING_PLANTED_BUGS
  core::planted_bug = core::Bug::kNone;
#endif
}

std::string World::run() {
  while (!events_.empty() && violation_.empty()) {
    if (events_.now() > kEnd) {
      check_end();
      violation("events go on although everything has ended");
      break;
    }
    if (events_.executed() > kEventsMax) {
      violation("P4: messages without end");
      break;
    }
    try {
      events_.step();
    } catch (const std::logic_error& stopped) {
      violation(stopped.what());
    }
  }
  if (violation_.empty()) check_end();
  stats_.events = events_.executed();
  return violation_;
}

// Time passes for the daemons as long as anything is under way.
void World::keep_ticking() {
  for (const auto& node : nodes_) node->tick();
  check_in_time();
  const bool over = all_over() && std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
                      return !node->alive() || node->engines() == 0;
                    });
  if (!over) quiet_since_ = 0;
  if (over && quiet_since_ == 0) quiet_since_ = events_.now();
  if (is_quiet() && !std::exchange(all_met_, true)) check_all_met();
  const bool idle = over && events_.empty();
  if (!idle) events_.in(kTick, [this] { keep_ticking(); });
}

bool World::all_over() const {
  return std::all_of(trainers_.begin(), trainers_.end(), [](const auto& t) { return t->over(); });
}

void World::check_end() {
  for (const auto& trainer : trainers_) {
    trace([&] {
      return trainer->name() + " session " + std::to_string(trainer->session()) + " on n" +
             std::to_string(trainer->node()) + ": " + trainer->doing();
    });
    if (trainer->over()) continue;
    std::string text = "P4: " + trainer->name() + " on n" + std::to_string(trainer->node()) +
                       " never ends: " + trainer->doing();
    for (const auto& node : nodes_) text += "\n    " + node->doing();
    violation(text);
  }
  for (const auto& node : nodes_) {
    if (!node->alive()) continue;
    trace([&] { return node->doing(); });
    if (node->engines() != 0) violation("P5: keeps an engine of an ended job: " + node->doing());
    for (const core::JobInfo& job : node->membership().jobs()) {
      if (job.state != core::JobState::kEnded && job.state != core::JobState::kFailed) {
        violation(node->name() + " keeps job " + job.name + " as " + name_of(job.state));
      }
    }
    if (node->membership().busy_jobs() != 0) violation(node->name() + " is busy at the end");
  }
  oracle_.check_agreement([this](const JobId& job, uint32_t rank, int64_t pid) {
    const core::View* last = oracle_.last_view(job);
    if (last == nullptr || !last->has(rank) || last->info_of(rank).pid != pid) return false;
    const uint32_t host = index_of(last->members[last->host_of(rank)].node);
    const Trainer* trainer = sessions_.at(static_cast<core::SessionId>(pid));
    const bool same_life = trainer->session() == static_cast<core::SessionId>(pid);
    return same_life && trainer->state() != Trainer::State::kDead && left_.count({job, host}) == 0;
  });
}

core::SessionId World::new_session(Trainer* trainer) {
  const core::SessionId session = sessions_.size() + 1;
  sessions_[session] = trainer;
  return session;
}

uint32_t World::step_of(const core::View& view) {
  const auto [known, first] = first_steps_.try_emplace({view.incarnation, view.grown}, 0);
  if (!first) return known->second;
  const Trainer* oldest = nullptr;
  uint64_t since = view.epoch;  // who came in just now has no step of its own
  for (const core::Member& member : view.members) {
    for (const core::RankInfo& info : member.ranks) {
      const auto session = static_cast<core::SessionId>(info.pid);
      const Trainer* trainer = sessions_.at(session);
      const bool alive =
          trainer->session() == session && trainer->state() == Trainer::State::kTraining;
      if (!alive || info.since >= since) continue;
      since = info.since;
      oldest = trainer;
    }
  }
  // Where everybody who had the model is gone, or goes back, what follows is not what was lost.
  const bool anew = oldest == nullptr || oldest->goes_back();
  known->second = anew ? last_steps_[view.incarnation] + 1 : oldest->step();
  return known->second;
}

// Who goes back does other ops than before, as far as anybody can tell them apart.
uint32_t World::step_after(const core::View& view, uint64_t grown, uint32_t number) {
  if (view.grown != grown) return step_of(view);
  const auto [known, first] = met_steps_.try_emplace({view.incarnation, grown, number}, 0);
  if (first) known->second = last_steps_[view.incarnation] + 1;
  return known->second;
}

void World::note_step(const JobId& job, uint32_t step) {
  last_steps_[job] = std::max(last_steps_[job], step);
}

// ---- what is right ----

const std::vector<std::byte>& World::input_of(const OpId& id, const Signature& signature,
                                              uint32_t rank) {
  std::vector<std::byte>& input = inputs_[{id, rank}];
  // Of uneven blocks more than it has, whichever is its own.
  const bool uneven = signature.blocks.uneven();
  const uint64_t bytes = uneven ? elements_of(signature) * size_of(signature.dtype)
                                : extent_of(signature, rank, 0).input;
  if (input.size() >= bytes) return input;
  input.resize(bytes);
  fill(signature.dtype, seed_of(id.job, id.op, id.step), rank, bytes / size_of(signature.dtype),
       input.data());
  return input;
}

void World::check_written(const Trainer& trainer, const OpId& id, const Signature& signature,
                          const std::vector<uint32_t>& ranks, const std::byte* output) {
  const uint32_t rank = trainer.rank();
  const uint32_t target = goes_to_one(signature.collective) ? rank : kNoRank;
  const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
  const uint64_t bytes = extent_of(signature, rank, static_cast<uint32_t>(place)).output;
  std::string fault = oracle_.fault_of_output({id, target}, bytes, output);
  if (fault.empty() && needs_all_ranks(signature.collective)) {
    const InputOf input = [&](uint32_t other) -> const std::vector<std::byte>& {
      return input_of(id, signature, other);
    };
    fault = fault_of_blocks(signature, rank, ranks, input, output);
  }
  if (!fault.empty()) violation(trainer.name() + ": " + fault);
}

void World::violation(const std::string& what) {
  if (violation_.empty()) violation_ = "at " + std::to_string(events_.now()) + " ns: " + what;
}

}  // namespace gradring::sim
